//! Recovery from failed writes that must succeed: the reserve is used up on a full disk, and damaged
//! deliveries go to the dead letters. New work is refused instead.

use std::slice;
use std::time::Duration;

use postrider_core::DeadReason;
use postrider_core::ports::store::{SettleResult, StoreError};

use super::free_pages::FreePages;
use super::index::AfterSettle;
use super::index::effects::BodyRelease;
use super::requests::SharedRow as _;
use super::sql::prelude::*;
use super::sql::settle::SettleRow;
use super::sql::statement::is_local;
use crate::progress::{DeliveryMark, is_held};

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
        let was_whole = self.reserve.is_whole();
        match self.reserve.make_whole(FreePages::bytes(&self.conn)) {
            Ok(()) if was_whole => {}
            Ok(()) if first => {}
            Ok(()) => tracing::info!("there is room on the disk again: new work is taken"),
            Err(error) if first => tracing::warn!(
                %error,
                "the reserve on the disk cannot be made: new work is refused until there is room"
            ),
            Err(error) => tracing::debug!(%error, "the disk is still full"),
        }
    }

    /// The delivery was sent, and that cannot be written as usual. Writes as much as it can; if that is
    /// nothing, the delivery must at least not be sent again.
    pub(crate) fn settle_damaged(&mut self, row: &SettleRow, error: &StoreError) -> SettleResult {
        let (seq, token) = (row.seq(), row.settlement.token);
        tracing::error!(delivery = %row.settlement.delivery, %error, "the settlement of a delivery cannot be written");
        for leaves_list in [false, true] {
            (self.numbers_only, self.leaves_list) = (true, leaves_list);
            let numbers =
                self.transact_surely(|writer| SettleRow::write(slice::from_ref(row), writer));
            (self.numbers_only, self.leaves_list) = (false, false);
            match numbers.as_deref() {
                Ok([SettleResult::Done]) => {
                    if leaves_list {
                        self.report_damaged_list(error);
                    }
                    return SettleResult::Done;
                }
                Ok(_) => return SettleResult::Fenced,
                Err(_) => {}
            }
        }
        match self.bury_unreadable(seq) {
            Ok(()) => self.shared.index().settled(seq, AfterSettle::Final, self.shared.now().0),
            Err(_) => self.quarantine(seq, token, error),
        }
        SettleResult::Fenced
    }

    /// Sets a delivery aside until the next start. If it can be noted, the next start knows that its result is
    /// in doubt, and its class decides.
    fn quarantine(&mut self, seq: u64, token: u64, error: &StoreError) {
        let mark = DeliveryMark { started: true, ..self.shared.index().mark(seq) };
        let noted = self.transact_surely(|writer| writer.put_mark(seq, mark));
        if let Err(error) = noted {
            tracing::error!(seq, %error, "a delivery that cannot be settled cannot be marked either");
        }
        self.shared.index().quarantine(seq, token);
        self.shared.report_quarantined(seq, error);
    }

    /// Moves a damaged delivery to the dead letters. Uses nothing but its number and its lane, because
    /// the rest of the row may be damaged.
    pub(crate) fn bury_unreadable(&mut self, seq: u64) -> StoreResult<()> {
        match self.bury_by_number(seq) {
            // If it stays in the list, it is found to be final when it is read.
            Err(error) if is_local(&error) => {
                self.leaves_list = true;
                let buried = self.bury_by_number(seq);
                self.leaves_list = false;
                buried
            }
            buried => buried,
        }
    }

    fn bury_by_number(&mut self, seq: u64) -> StoreResult<()> {
        self.transact_surely(|writer| {
            let now = writer.shared.now();
            let found = first_row(
                &writer.conn,
                "SELECT d.state, l.tenant, coalesce(length(CAST(d.target AS BLOB)), 0) \
                 + coalesce(length(CAST(d.body AS BLOB)), 0), d.message, \
                 coalesce((SELECT length(CAST(m.content AS BLOB)) FROM message m \
                 WHERE m.seq = d.message AND m.deliveries > 1), 0), d.due, d.lane \
                 FROM delivery d JOIN lane l ON l.id = d.lane \
                 WHERE d.seq = ?1 AND d.due IS NOT NULL",
                [seq as i64],
                |row| {
                    let (state, tenant): (u8, String) = (get(row, 0)?, get(row, 1)?);
                    let (bytes, shared): (i64, i64) = (get(row, 2)?, get(row, 4)?);
                    let shared = shared.unsigned_abs() as usize;
                    let key: (i64, u32) = (get(row, 5)?, get(row, 6)?);
                    Ok((state, tenant, bytes, unsigned(row, 3)?, shared, key))
                },
            )?;
            let Some((state, tenant, bytes, message, shared, (due, lane))) = found else {
                return Ok(());
            };
            run(
                &writer.conn,
                "UPDATE delivery SET state = ?2, reason = ?3, due = NULL, changed = ?4 \
                 WHERE seq = ?1",
                params![seq as i64, State::Failed.code(), DeadReason::Poison.code(), now.0],
            )?;
            writer.relist(seq, (lane, due), None)?;
            let tenant = TenantId(tenant.into());
            let number = writer.tenants.get(&tenant).copied();
            let number = number.ok_or_else(|| damaged("the tenant of a delivery"))?;
            writer.add_dead_letter(seq, (number, lane), DeadReason::Poison)?;
            if let Some(&tenant) = writer.tenants.get(&tenant) {
                let count = writer.effects.counts_of(tenant);
                count.add(State::from_code(state).unwrap_or(State::Queued), -1);
                count.add(State::Failed, 1);
                count.add_dead(DeadReason::Poison, 1);
                count.bytes -= bytes;
                count.held -= i64::from(is_held(Timestamp(due)));
                if shared > 0 {
                    let body = BodyRelease { tenant, bytes: shared, holds: 0, pending: 1 };
                    writer.effects.release(message, body);
                }
            }
            Ok(())
        })
    }
}
