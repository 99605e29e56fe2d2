//! Recovery from failed writes that must succeed: the reserve is used up on a full disk, and damaged
//! deliveries go to the dead letters. New work is refused instead.

use std::slice;
use std::time::Duration;

use postrider_core::DeadReason;
use postrider_core::ports::store::{SettleResult, StoreError};

use super::index::UnreadLease;
use super::index::effects::BodyRelease;
use super::requests::SharedRow as _;
use super::sql::prelude::*;
use super::sql::settle::SettleRow;

const USUAL_TIMEOUT: Duration = Duration::from_secs(10);

impl Writer {
    /// As `transact`. On a full disk, tries again with the space of the reserve.
    pub(crate) fn transact_surely<T>(
        &mut self,
        mut body: impl FnMut(&mut Self) -> StoreResult<T>,
    ) -> StoreResult<T> {
        match self.transact(&mut body) {
            Err(StoreError::Full { .. }) => {
                if self.reserve.give_back() {
                    tracing::error!(
                        "the disk is full: the reserve is used to finish what was accepted, \
                         and new work is refused until there is room again"
                    );
                }
                self.checkpoint();
                self.transact(body)
            }
            done => done,
        }
    }

    /// Moves the journal into the database and cuts it, as far as readers allow at this moment.
    pub(crate) fn checkpoint(&self) {
        self.checkpoint_within(Duration::ZERO);
    }

    /// The same, and waits for readers. Nobody can write meanwhile.
    pub(crate) fn checkpoint_within(&self, wait: Duration) {
        let done = self
            .conn
            .busy_timeout(wait)
            .and_then(|()| self.conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())));
        if let Err(error) = done {
            tracing::warn!(%error, "the journal could not be checkpointed; will try again");
        }
        if let Err(error) = self.conn.busy_timeout(USUAL_TIMEOUT) {
            tracing::warn!(%error, "the timeout of the store could not be set");
        }
    }

    /// New work is accepted again if the reserve can be restored.
    pub(crate) fn restore_reserve(&mut self) {
        let first = !self.reserve.was_tried();
        match self.reserve.make_whole() {
            Ok(()) if first => {}
            Ok(()) => tracing::info!("there is room on the disk again: new work is taken"),
            Err(error) if first => tracing::warn!(
                %error,
                "the reserve on the disk cannot be made: new work is refused until there is room"
            ),
            Err(error) => tracing::debug!(%error, "the disk is still full"),
        }
    }

    /// Writes decisions although the disk is full or some of the deliveries are damaged.
    pub(crate) fn settle_surely(&mut self, rows: &[SettleRow]) -> StoreResult<Vec<SettleResult>> {
        match self.transact_surely(|writer| SettleRow::write(rows, writer)) {
            Err(StoreError::Corrupt { .. }) => self.settle_each(rows),
            done => done,
        }
    }

    /// One by one, so that a damaged delivery does not stop the others.
    fn settle_each(&mut self, rows: &[SettleRow]) -> StoreResult<Vec<SettleResult>> {
        let mut answers = Vec::with_capacity(rows.len());
        for row in rows {
            let one = slice::from_ref(row);
            match self.transact_surely(|writer| SettleRow::write(one, writer)) {
                Ok(done) => answers.extend(done),
                Err(StoreError::Corrupt { what, .. }) => {
                    self.give_up_damaged(row, &what);
                    answers.push(SettleResult::Fenced);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(answers)
    }

    fn give_up_damaged(&mut self, row: &SettleRow, what: &str) {
        let seq = row.seq();
        tracing::error!(seq, what, "a delivery is damaged; its settlement cannot be written");
        let buried = self.bury_unreadable(seq);
        let unread = UnreadLease { seq, token: row.settlement.token };
        self.shared.end_damaged(unread, buried);
    }

    /// Moves a damaged delivery to the dead letters. Uses nothing but its number and its lane, because
    /// the rest of the row may be damaged.
    pub(crate) fn bury_unreadable(&mut self, seq: u64) -> StoreResult<()> {
        self.transact_surely(|writer| {
            let now = writer.shared.now();
            let found = first_row(
                &writer.conn,
                "SELECT d.state, l.tenant, coalesce(length(CAST(d.target AS BLOB)), 0) \
                 + coalesce(length(CAST(d.body AS BLOB)), 0), d.message, \
                 coalesce((SELECT length(CAST(m.content AS BLOB)) FROM message m \
                 WHERE m.seq = d.message AND m.deliveries > 1), 0) \
                 FROM delivery d JOIN lane l ON l.id = d.lane \
                 WHERE d.seq = ?1 AND d.due IS NOT NULL",
                [seq as i64],
                |row| {
                    let (state, tenant): (u8, String) = (get(row, 0)?, get(row, 1)?);
                    let (bytes, shared): (i64, i64) = (get(row, 2)?, get(row, 4)?);
                    let shared = shared.unsigned_abs() as usize;
                    Ok((state, tenant, bytes, unsigned(row, 3)?, shared))
                },
            )?;
            let Some((state, tenant, bytes, message, shared)) = found else { return Ok(()) };
            run(
                &writer.conn,
                "UPDATE delivery SET state = ?2, reason = ?3, due = NULL, changed = ?4 \
                 WHERE seq = ?1",
                params![seq as i64, State::Failed.code(), DeadReason::Poison.code(), now.0],
            )?;
            run(&writer.conn, "INSERT OR IGNORE INTO dead_letter (seq) VALUES (?1)", [seq as i64])?;
            let tenant = TenantId(tenant.into());
            if let Some(&tenant) = writer.tenants.get(&tenant) {
                let count = writer.effects.counts_of(tenant);
                count.add(State::from_code(state).unwrap_or(State::Queued), -1);
                count.add(State::Failed, 1);
                count.add_dead(DeadReason::Poison, 1);
                count.bytes -= bytes;
                if shared > 0 {
                    let body = BodyRelease { tenant, bytes: shared, holds: 0, pending: 1 };
                    writer.effects.release(message, body);
                }
            }
            Ok(())
        })
    }
}
