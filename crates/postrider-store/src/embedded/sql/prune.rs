//! Deletes what is old and final, in small steps, so that commits never wait for long.

use std::time::Duration;

use postrider_core::model::id::order_key_at;
use postrider_core::ports::store::{Retention, RetentionTimes, StoreError};

use super::prelude::*;
use super::scan::scan;
use super::statement::is_local;
use crate::embedded::sql::rows;

/// Rows that one step reads.
const PRUNE_STEP: usize = 4_000;
/// Dead letters that one step reads.
const DISCARD_STEP: usize = 1_000;
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

    /// The next start knows that its time is not before this one.
    pub(crate) fn save_time(&mut self) -> StoreResult<()> {
        set_meta(&self.conn, "clock", self.shared.now().0)
    }

    pub(crate) fn prune_keys(&mut self) -> StoreResult<()> {
        let over_by = self.shared.earliest();
        match self.dedup.prune(&self.conn, over_by) {
            // What is deleted next may make room for it.
            Err(error @ StoreError::Full { .. }) => {
                tracing::warn!(%error, "old idempotency keys cannot be dropped; will try again");
                Ok(())
            }
            done => done,
        }
    }

    /// Discards dead letters whose time is over, from a sequence on. Returns where to go on.
    pub(crate) fn discard_old(
        &mut self,
        retention: &Retention,
        from: u64,
    ) -> StoreResult<Option<u64>> {
        let now = self.shared.earliest();
        let Some(latest) = retention.latest_discarded(now) else { return Ok(None) };
        let before = order_key_at(latest + Duration::from_millis(1));
        let select = "SELECT x.seq, d.tail, d.lane, d.changed FROM dead_letter x \
                      JOIN delivery d ON d.seq = x.seq WHERE x.seq >= ?1 AND x.seq < ?2 \
                      ORDER BY x.seq LIMIT ?3";
        let found = scan(&self.conn, select, (from, before), DISCARD_STEP, |row| {
            let keep = self.retention_of(get(row, "lane")?, retention)?.dead_letters;
            let changed = Timestamp(get(row, "changed")?);
            let is_over = keep.is_some_and(|keep| changed <= now - keep);
            Ok(if is_over { Some(DeliveryId(row_id(row)?)) } else { None })
        })?;
        if !found.rows.is_empty() {
            self.discard(&found.rows)?;
        }
        Ok(found.next)
    }

    fn retention_of(&self, lane: u32, retention: &Retention) -> StoreResult<RetentionTimes> {
        let index = self.shared.index();
        let key = index.lane_key(lane).ok_or_else(|| damaged("the lane of a delivery"))?;
        Ok(retention.times(&key.tenant))
    }

    /// One step. Returns how many deliveries were deleted, and whether there is more to read.
    pub(crate) fn prune(&mut self, retention: &Retention) -> StoreResult<(u64, bool)> {
        let latest = retention.latest_forgotten(self.shared.earliest());
        let before = order_key_at(latest + Duration::from_millis(1));
        let (old, next) = self.old_rows(self.prune_from, before, retention)?;
        self.transact_surely(|writer| {
            writer.save_last_id()?;
            writer.save_time()
        })?;
        let pruned = self.prune_rows(&old)?;
        self.prune_from = next.unwrap_or(0);
        Ok((pruned, next.is_some()))
    }

    /// By halves if a row cannot be deleted, or if the disk is too full for all at once.
    fn prune_rows(&mut self, old: &[FinishedRow]) -> StoreResult<u64> {
        match self.transact_surely(|writer| writer.delete_rows(old)) {
            Ok(()) => Ok(old.len() as u64),
            Err(error) if !is_local(&error) && !is_too_much(&error, old) => Err(error),
            Err(error) if old.len() <= 1 => {
                tracing::warn!(%error, "an old delivery cannot be deleted");
                Ok(0)
            }
            Err(_) => {
                let (first, second) = old.split_at(old.len() / 2);
                Ok(self.prune_rows(first)? + self.prune_rows(second)?)
            }
        }
    }

    fn delete_rows(&mut self, old: &[FinishedRow]) -> StoreResult<()> {
        let mut messages: Vec<(u64, u32)> = Vec::new();
        for row in old {
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
        Ok(())
    }

    /// Leaves out what cannot be read.
    fn old_rows(
        &self,
        from: u64,
        before: u64,
        retention: &Retention,
    ) -> StoreResult<(Vec<FinishedRow>, Option<u64>)> {
        let now = self.shared.earliest();
        let select = "SELECT d.seq, d.lane, d.state, d.message, d.due, d.changed, x.seq AS dead \
                      FROM delivery d LEFT JOIN dead_letter x ON x.seq = d.seq \
                      WHERE d.seq >= ?1 AND d.seq < ?2 ORDER BY d.seq LIMIT ?3";
        let found = scan(&self.conn, select, (from, before), PRUNE_STEP, |row| {
            let waiting = get::<Option<i64>>(row, "due")?.is_some();
            let dead = get::<Option<i64>>(row, "dead")?.is_some();
            if waiting || dead {
                return Ok(None);
            }
            let (lane, state) = (get(row, "lane")?, rows::state(row)?);
            let keep = self.retention_of(lane, retention)?.deliveries;
            if Timestamp(get(row, "changed")?) > now - keep {
                return Ok(None);
            }
            let (seq, message) = (unsigned(row, "seq")?, unsigned(row, "message")?);
            Ok(Some(FinishedRow { seq, lane, message, state }))
        })?;
        self.shared.report_skipped("delivery", &found.skipped);
        Ok((found.rows, found.next))
    }
}

/// Deleting takes room in the journal: on a full disk, fewer rows may fit.
fn is_too_much(error: &StoreError, rows: &[FinishedRow]) -> bool {
    matches!(error, StoreError::Full { .. }) && rows.len() > 1
}

/// A delivery that may be deleted.
struct FinishedRow {
    seq: u64,
    lane: u32,
    message: u64,
    state: State,
}
