//! Marks on disk, in step with those on the board: what a delivery went through beside its own row.
//! There are few of them; most deliveries never have one.

use postrider_core::DeliveryId;
use postrider_core::model::id::order_key;
use postrider_core::ports::store::StoreResult;
use rusqlite::{Connection, params};

use super::board::Board;
use super::draft::Draft;
use super::error::sql;
use super::flight::Left;
use super::writer::Writer;
use crate::progress::Mark;

/// Counts what was in flight when the run before ended without a word, once.
pub(super) fn count_crash(conn: &Connection, left: &Left) -> StoreResult<()> {
    let counted = conn
        .query_row("SELECT value FROM meta WHERE key = 'crash_counted'", [], |row| row.get(0))
        .unwrap_or(0i64);
    if left.in_flight.is_empty() || counted as u64 >= left.run {
        return Ok(());
    }
    let transaction = conn.unchecked_transaction().map_err(sql)?;
    for (seq, at) in &left.in_flight {
        // Whatever was settled since is no longer in flight, also if that was not noted any more.
        let count = "INSERT INTO mark (seq, crashes, started, cancelled) \
                     SELECT seq, 1, 0, 0 FROM delivery \
                     WHERE seq = ?1 AND due IS NOT NULL AND changed <= ?2 \
                     ON CONFLICT (seq) DO UPDATE SET crashes = crashes + 1";
        transaction
            .prepare_cached(count)
            .and_then(|mut insert| insert.execute(params![*seq as i64, at]))
            .map_err(sql)?;
    }
    transaction
        .execute(
            "INSERT INTO meta (key, value) VALUES ('crash_counted', ?1) \
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [left.run as i64],
        )
        .map_err(sql)?;
    transaction.commit().map_err(sql)?;
    tracing::warn!(
        in_flight = left.in_flight.len(),
        "the last run ended without a word; what was in flight then is noted"
    );
    Ok(())
}

pub(super) fn load(conn: &Connection, board: &mut Board) -> StoreResult<()> {
    let stale = "DELETE FROM mark WHERE NOT EXISTS (SELECT 1 FROM delivery d \
                 WHERE d.seq = mark.seq AND d.due IS NOT NULL)";
    conn.execute(stale, []).map_err(sql)?;
    let mut select =
        conn.prepare("SELECT seq, crashes, started, cancelled FROM mark").map_err(sql)?;
    let mut rows = select.query([]).map_err(sql)?;
    while let Some(row) = rows.next().map_err(sql)? {
        let mark = Mark {
            crashes: row.get(1).map_err(sql)?,
            started: row.get(2).map_err(sql)?,
            cancelled: row.get(3).map_err(sql)?,
        };
        board.set_mark(row.get::<_, i64>(0).map_err(sql)? as u64, mark);
    }
    Ok(())
}

impl Writer {
    pub(super) fn put_mark(&self, seq: u64, mark: Mark, draft: &mut Draft) -> StoreResult<()> {
        draft.rows += 1;
        draft.marks.push((seq, mark));
        let done = if mark.is_empty() {
            self.conn
                .prepare_cached("DELETE FROM mark WHERE seq = ?1")
                .and_then(|mut delete| delete.execute([seq as i64]))
        } else {
            self.conn
                .prepare_cached(
                    "INSERT OR REPLACE INTO mark (seq, crashes, started, cancelled) \
                     VALUES (?1, ?2, ?3, ?4)",
                )
                .and_then(|mut insert| {
                    let row = params![seq as i64, mark.crashes, mark.started, mark.cancelled];
                    insert.execute(row)
                })
        };
        done.map(drop).map_err(sql)
    }

    /// Notes attempts that are about to leave.
    pub(super) fn start(
        &self,
        attempts: &[(DeliveryId, u64)],
        draft: &mut Draft,
    ) -> StoreResult<Vec<bool>> {
        let now = self.shared.now();
        let held: Vec<_> = {
            let mut board = self.shared.board();
            board.expire(now.0);
            attempts.iter().map(|(id, token)| board.may_start(*id, *token)).collect()
        };
        for ((id, _), mark) in attempts.iter().zip(&held) {
            if let Some(mark) = mark {
                self.put_mark(order_key(id.0), Mark { started: true, ..*mark }, draft)?;
            }
        }
        Ok(held.iter().map(Option::is_some).collect())
    }
}
