//! Deletes what is old and final, in small steps, so that commits never wait for long.

use std::time::Duration;

use postrider_core::model::id::order_key_at;

use super::prelude::*;
use crate::embedded::sql::rows;

/// Rows that one step reads.
const PRUNE_STEP: usize = 4_000;
/// Rows that one call deletes.
pub(crate) const PRUNE_CALL: u64 = 10_000;

impl Writer {
    pub(crate) fn save_last_id(&mut self) -> StoreResult<()> {
        let last = self.shared.ids().last();
        run(
            &self.conn,
            "INSERT INTO meta (key, value) VALUES ('last_id', ?1) \
             ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)",
            [last as i64],
        )
        .map(drop)
    }

    pub(crate) fn prune_keys(&mut self) -> StoreResult<()> {
        let now = self.shared.now();
        self.dedup.prune(&self.conn, now)
    }

    /// One step. Returns how many deliveries were deleted, and whether there is more to read.
    pub(crate) fn prune(&mut self, keep: Duration) -> StoreResult<(u64, bool)> {
        let limit = self.shared.now() - keep;
        let before = order_key_at(limit + Duration::from_millis(1));
        let from = self.prune_from;
        let (pruned, next) = self.transact_surely(|writer| {
            let step = writer.prune_step(from, before, limit)?;
            writer.save_last_id()?;
            Ok(step)
        })?;
        self.prune_from = next.unwrap_or(0);
        Ok((pruned, next.is_some()))
    }

    fn prune_step(
        &mut self,
        from: u64,
        before: u64,
        limit: Timestamp,
    ) -> StoreResult<(u64, Option<u64>)> {
        let (old, next) = self.old_rows(from, before, limit)?;
        let mut messages: Vec<(u64, u32)> = Vec::new();
        for row in &old {
            run(&self.conn, "DELETE FROM delivery WHERE seq = ?1", [row.seq as i64])?;
            let tenant = self.tenant_of(row.lane)?;
            self.effects.counts_of(tenant).add(row.state, -1);
            messages.push((row.message, tenant));
        }
        messages.dedup();
        for (message, tenant) in messages {
            let gone = run(
                &self.conn,
                "DELETE FROM message WHERE seq = ?1 AND NOT EXISTS (SELECT 1 FROM delivery d \
                 WHERE d.seq > message.seq AND d.seq <= message.seq + message.deliveries)",
                [message as i64],
            )?;
            self.effects.counts_of(tenant).messages -= gone as i64;
        }
        self.effects.rows += old.len() as u64 * 2;
        Ok((old.len() as u64, next))
    }

    fn old_rows(
        &self,
        from: u64,
        before: u64,
        limit: Timestamp,
    ) -> StoreResult<(Vec<FinishedRow>, Option<u64>)> {
        let (mut old, mut last) = (Vec::new(), 0);
        let read = all_rows(
            &self.conn,
            "SELECT d.seq, d.lane, d.state, d.message, d.due, d.changed, x.seq AS dead \
             FROM delivery d LEFT JOIN dead_letter x ON x.seq = d.seq \
             WHERE d.seq >= ?1 AND d.seq < ?2 ORDER BY d.seq LIMIT ?3",
            params![from as i64, before as i64, PRUNE_STEP as i64],
            |row| {
                last = unsigned(row, "seq")?;
                let waiting = get::<Option<i64>>(row, "due")?.is_some();
                let dead = get::<Option<i64>>(row, "dead")?.is_some();
                if !waiting && !dead && get::<i64>(row, "changed")? <= limit.0 {
                    let (lane, message) = (get(row, "lane")?, unsigned(row, "message")?);
                    old.push(FinishedRow { seq: last, lane, message, state: rows::state(row)? });
                }
                Ok(())
            },
        )?;
        Ok((old, (read.len() == PRUNE_STEP).then_some(last + 1)))
    }
}

/// A delivery that may be deleted.
struct FinishedRow {
    seq: u64,
    lane: u32,
    message: u64,
    state: State,
}
