//! Marks of deliveries on disk, beside their rows. Most deliveries never have one.

use super::prelude::*;
use super::scan::scan;
use super::statement::is_local;
use crate::embedded::in_flight::UnfinishedRun;
use crate::embedded::index::MemoryIndex;
use crate::embedded::problems::ProblemList;
use crate::embedded::requests::SharedRow;
use crate::embedded::shared::REPAIR;
use crate::holder::HolderNonce;
use crate::progress::DeliveryMark;

/// Counts a crash for each delivery that was in flight when the previous process did not shut down cleanly.
/// Counts each crash only once.
pub(crate) fn count_crash(conn: &Connection, left: &UnfinishedRun) -> StoreResult<()> {
    let counted = value(conn, "SELECT value FROM meta WHERE key = 'crash_counted'", []);
    let counted = counted.ok().flatten().unwrap_or(0i64);
    if left.in_flight.is_empty() || counted as u64 >= left.run {
        return Ok(());
    }
    match count_at_once(conn, left) {
        Err(error) if is_local(&error) => {
            for (&seq, &at) in &left.in_flight {
                match count_one(conn, seq, at) {
                    Err(error) if is_local(&error) => {
                        tracing::error!(seq, %error, "a delivery that was in flight cannot be read");
                    }
                    done => done?,
                }
            }
            set_meta(conn, "crash_counted", left.run as i64)?;
        }
        counted => counted?,
    }
    tracing::warn!(
        in_flight = left.in_flight.len(),
        "the previous process did not shut down cleanly; the deliveries in flight are marked"
    );
    Ok(())
}

fn count_at_once(conn: &Connection, left: &UnfinishedRun) -> StoreResult<()> {
    let transaction = conn.unchecked_transaction().map_err(sql)?;
    left.in_flight.iter().try_for_each(|(&seq, &at)| count_one(&transaction, seq, at))?;
    set_meta(&transaction, "crash_counted", left.run as i64)?;
    transaction.commit().map_err(sql)
}

/// A delivery that was settled since is not in flight, even if the log does not say so.
fn count_one(conn: &Connection, seq: u64, at: i64) -> StoreResult<()> {
    let count = "INSERT INTO mark (seq, crashes, started, cancelled) \
                 SELECT seq, 1, 0, 0 FROM delivery \
                 WHERE seq = ?1 AND due IS NOT NULL AND changed <= ?2 \
                 ON CONFLICT (seq) DO UPDATE SET crashes = crashes + 1";
    run(conn, count, params![seq as i64, at]).map(drop)
}

/// Leaves out marks that cannot be read.
pub(crate) fn load(
    conn: &Connection,
    index: &mut MemoryIndex,
    problems: &ProblemList,
    now: Timestamp,
) -> StoreResult<()> {
    let stale = "DELETE FROM mark WHERE NOT EXISTS (SELECT 1 FROM delivery d \
                 WHERE d.seq = mark.seq AND d.due IS NOT NULL)";
    match run(conn, stale, []) {
        // A mark too many does no harm.
        Err(error) if is_local(&error) => tracing::error!(%error, "some old marks stay"),
        done => drop(done?),
    }
    let select = "SELECT seq, crashes, started, cancelled FROM mark \
                  WHERE seq >= ?1 AND seq < ?2 ORDER BY seq LIMIT ?3";
    let found = scan(conn, select, (0, i64::MAX as u64), usize::MAX, |row| {
        let (crashes, started, cancelled) = (get(row, 1)?, get(row, 2)?, get(row, 3)?);
        index.set_mark(unsigned(row, 0)?, DeliveryMark { crashes, started, cancelled });
        Ok(None::<()>)
    })?;
    for skipped in &found.skipped {
        let what = format!(
            "marks of some deliveries cannot be read ({}): whether they were in flight at a crash, or cancelled, \
             is not known; {REPAIR}",
            skipped.error
        );
        problems.report_about("rows_unreadable", skipped.from, now, what);
    }
    Ok(())
}

/// Notes attempts that are about to be sent: a delivery and the token of its lease.
impl SharedRow for (DeliveryId, u64) {
    /// False if the lease is not valid any more or the message was cancelled.
    type Answer = bool;

    fn write(rows: &[Self], writer: &mut Writer) -> StoreResult<Vec<bool>> {
        let now = writer.shared.now();
        let held: Vec<_> = {
            let mut index = writer.shared.index();
            index.end_leases(now.0);
            rows.iter().map(|(id, token)| index.mark_if_startable(*id, *token)).collect()
        };
        for ((id, _), mark) in rows.iter().zip(&held) {
            if let Some(mark) = mark {
                writer.put_mark(order_key(id.0), DeliveryMark { started: true, ..*mark })?;
            }
        }
        Ok(held.iter().map(Option::is_some).collect())
    }
}

impl Writer {
    /// Ends all leases. With `crashed`, each delivery that was leased has been in flight at one more crash.
    pub(crate) fn hand_over(&mut self, holder: HolderNonce, crashed: bool) -> StoreResult<()> {
        let unsettled = self.shared.index().unsettled();
        if crashed && !unsettled.is_empty() {
            self.transact_surely(|writer| {
                unsettled.iter().try_for_each(|seq| {
                    let mark = writer.shared.index().mark(*seq);
                    writer.put_mark(*seq, mark.crashed())
                })
            })?;
        }
        let now = self.shared.now().0;
        self.shared.index().hand_over(holder, now);
        self.shared.in_flight.ended(unsettled.iter().copied());
        self.shared.work.notify();
        Ok(())
    }

    pub(crate) fn put_mark(&mut self, seq: u64, mark: DeliveryMark) -> StoreResult<()> {
        self.effects.marks.push((seq, mark));
        let done = if mark.is_empty() {
            run(&self.conn, "DELETE FROM mark WHERE seq = ?1", [seq as i64])
        } else {
            let insert = "INSERT OR REPLACE INTO mark (seq, crashes, started, cancelled) \
                          VALUES (?1, ?2, ?3, ?4)";
            let row = params![seq as i64, mark.crashes, mark.started, mark.cancelled];
            run(&self.conn, insert, row)
        };
        done.map(drop)
    }
}
