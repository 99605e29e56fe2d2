//! What an operator does to deliveries: cancel, replay, discard. In chunks, so that commits never wait for
//! long.

use postrider_core::DeadReason;
use postrider_core::policy::ttl::{DISPATCH_WINDOW, expires_at};
use postrider_core::ports::store::{CancelResult, Replay};

use super::sql::prelude::*;
use crate::embedded::index::effects::{BodyRelease, ReplayedDelivery};
use crate::embedded::sql::rows;
use crate::progress::{DeliveryMark, is_held, paced};

/// Rows of one transaction.
pub(crate) const CHUNK: usize = 1_000;

/// A delivery that is pending: its message, its sequence, and the length of the body that it shares with others.
pub(crate) type PendingDelivery = (u64, u64, Option<usize>);

impl Writer {
    /// The number of a tenant that has deliveries.
    pub(crate) fn tenant_number(&self, name: &TenantId) -> StoreResult<u32> {
        self.tenants.get(name).copied().ok_or_else(|| damaged("the tenant of a delivery"))
    }

    pub(crate) fn tenant_of(&self, lane: u32) -> StoreResult<u32> {
        let index = self.shared.index();
        index.tenant_of(lane).ok_or_else(|| damaged("the lane of a delivery"))
    }

    pub(crate) fn replay(
        &mut self,
        ids: &[DeliveryId],
        how: &Replay,
        from: u64,
    ) -> StoreResult<u64> {
        let retry = how.retry.as_ref().map(to_json).transpose()?;
        self.transact_surely(|writer| {
            let mut replayed = 0;
            for id in ids {
                let due = paced(writer.shared.now(), from + replayed, how.rate_per_s);
                let done = writer.replay_one(order_key(id.0), due, how, retry.as_deref())?;
                replayed += u64::from(done);
            }
            Ok(replayed)
        })
    }

    fn replay_one(
        &mut self,
        seq: u64,
        due: Timestamp,
        how: &Replay,
        retry: Option<&str>,
    ) -> StoreResult<bool> {
        let now = self.shared.now();
        if let Some(time) = how.dead_before {
            let select = "SELECT changed FROM delivery WHERE seq = ?1";
            let changed: Option<i64> = value(&self.conn, select, [seq as i64])?;
            if changed.is_some_and(|changed| changed >= time.0) {
                return Ok(false);
            }
        }
        let Some(dead) = self.take_dead_letter(seq)? else { return Ok(false) };
        let expires = expires_at(now, Some(due), how.ttl_s.unwrap_or(dead.ttl_s), DISPATCH_WINDOW);
        run(
            &self.conn,
            "UPDATE delivery SET state = ?2, reason = NULL, due = ?3, attempts = 0, \
             last_delay_ms = 0, expires = ?4, changed = ?5, retry = ?6 WHERE seq = ?1",
            params![seq as i64, State::Queued.code(), due.0, expires.0, now.0, retry],
        )?;
        let count = self.effects.counts_of(dead.tenant);
        count.add(State::Failed, -1);
        count.add(State::Queued, 1);
        count.bytes += dead.bytes;
        if dead.siblings > 1 {
            self.effects.release(dead.message, BodyRelease { holds: 0, pending: -1, ..dead.body });
        }
        self.list_if_neighbours_are(seq, expires.0)?;
        self.list_waiting(dead.lane, (due.0, seq))?;
        let (lane, due, expires) = (dead.lane, due.0, expires.0);
        self.effects.replayed.push(ReplayedDelivery { lane, due, seq, expires });
        Ok(true)
    }

    pub(crate) fn discard(&mut self, ids: &[DeliveryId]) -> StoreResult<u64> {
        self.transact_surely(|writer| {
            let mut discarded = 0;
            for id in ids {
                let seq = order_key(id.0);
                let Some(dead) = writer.take_dead_letter(seq)? else { continue };
                let erase = "UPDATE delivery SET target = NULL, body = NULL, alternatives = NULL \
                             WHERE seq = ?1";
                run(&writer.conn, erase, [seq as i64])?;
                writer.list_if_passed(seq, dead.changed)?;
                if dead.siblings > 1 {
                    let body = BodyRelease { holds: 1, pending: 0, ..dead.body };
                    writer.effects.release(dead.message, body);
                }
                discarded += 1;
            }
            Ok(discarded)
        })
    }

    /// Takes a delivery out of the dead letters; `None` if it is not one.
    fn take_dead_letter(&mut self, seq: u64) -> StoreResult<Option<DeadLetterRow>> {
        let taken = run(&self.conn, "DELETE FROM dead_letter WHERE seq = ?1", [seq as i64])?;
        if taken == 0 {
            return Ok(None);
        }
        let select = "SELECT d.lane, d.reason, d.message, d.changed, m.ttl_s, m.deliveries, \
                      coalesce(length(CAST(d.target AS BLOB)), 0) \
                      + coalesce(length(CAST(d.body AS BLOB)), 0) AS bytes, \
                      coalesce(length(CAST(m.content AS BLOB)), 0) AS shared FROM delivery d \
                      JOIN message m ON m.seq = d.message WHERE d.seq = ?1";
        let found = first_row(&self.conn, select, [seq as i64], |row| self.dead_letter(row))?;
        let Some((dead, reason)) = found else { return Ok(None) };
        if let Some(reason) = reason {
            self.effects.counts_of(dead.tenant).add_dead(reason, -1);
        }
        Ok(Some(dead))
    }

    /// Also returns why it was a dead letter.
    fn dead_letter(&self, row: &Row<'_>) -> StoreResult<(DeadLetterRow, Option<DeadReason>)> {
        let lane: u32 = get(row, "lane")?;
        let tenant = self.tenant_of(lane)?;
        let reason: Option<u8> = get(row, "reason")?;
        let bytes = get::<i64>(row, "shared")?.unsigned_abs() as usize;
        let dead = DeadLetterRow {
            lane,
            tenant,
            message: unsigned(row, "message")?,
            changed: Timestamp(get(row, "changed")?),
            ttl_s: get(row, "ttl_s")?,
            siblings: get(row, "deliveries")?,
            bytes: get(row, "bytes")?,
            body: BodyRelease { tenant, bytes, holds: 0, pending: 0 },
        };
        Ok((dead, reason.and_then(DeadReason::from_code)))
    }

    /// Cancels the deliveries of a message in a range of sequences, except those in flight. `shared` is the
    /// length of the body that its deliveries share.
    pub(crate) fn cancel(
        &mut self,
        message: u64,
        from: u64,
        to: u64,
        shared: Option<usize>,
    ) -> StoreResult<CancelResult> {
        self.transact_surely(|writer| writer.cancel_range(message, (from, to), shared))
    }

    /// The same for single deliveries: message, sequence, and the length of the body that it shares.
    pub(crate) fn cancel_each(&mut self, chosen: &[PendingDelivery]) -> StoreResult<CancelResult> {
        self.transact_surely(|writer| {
            let mut sum = CancelResult::default();
            for (message, seq, shared) in chosen {
                let one = writer.cancel_range(*message, (*seq, *seq), *shared)?;
                sum.cancelled += one.cancelled;
                sum.in_flight += one.in_flight;
                sum.already_final += one.already_final;
            }
            Ok(sum)
        })
    }

    /// In a transaction.
    fn cancel_range(
        &mut self,
        message: u64,
        (from, to): (u64, u64),
        shared: Option<usize>,
    ) -> StoreResult<CancelResult> {
        let now = self.shared.now();
        let mut result = CancelResult::default();
        let found = all_rows(
            &self.conn,
            "SELECT seq, lane, state, due, coalesce(length(CAST(target AS BLOB)), 0) \
             + coalesce(length(CAST(body AS BLOB)), 0) AS bytes \
             FROM delivery WHERE seq >= ?1 AND seq <= ?2",
            [from as i64, to as i64],
            |row| {
                let (lane, due): (u32, Option<i64>) = (get(row, "lane")?, get(row, "due")?);
                let bytes: i64 = get(row, "bytes")?;
                Ok((lane, due, unsigned(row, "seq")?, rows::state(row)?, bytes))
            },
        )?;
        for (lane, due, seq, state, bytes) in found {
            let Some(due) = due else {
                result.already_final += 1;
                continue;
            };
            let (withdrawn, mark) = {
                let mut index = self.shared.index();
                (index.withdraw(lane, due, seq), index.mark(seq))
            };
            if !withdrawn {
                result.in_flight += 1;
                self.put_mark(seq, DeliveryMark { cancelled: true, ..mark })?;
                continue;
            }
            if !mark.is_empty() {
                self.put_mark(seq, DeliveryMark::default())?;
            }
            self.effects.withdrawn.push((lane, due, seq));
            self.unlist_later(seq, (lane, due))?;
            let tenant = self.cancel_one(lane, seq, state, now)?;
            let count = self.effects.counts_of(tenant);
            count.bytes -= bytes;
            count.held -= i64::from(is_held(Timestamp(due)));
            if let Some(bytes) = shared {
                self.effects.release(message, BodyRelease { tenant, bytes, holds: 1, pending: 1 });
            }
            result.cancelled += 1;
        }
        Ok(result)
    }

    fn cancel_one(
        &mut self,
        lane: u32,
        seq: u64,
        state: State,
        now: Timestamp,
    ) -> StoreResult<u32> {
        run(
            &self.conn,
            "UPDATE delivery SET state = ?2, due = NULL, changed = ?3, target = NULL, \
             body = NULL, alternatives = NULL WHERE seq = ?1",
            params![seq as i64, State::Cancelled.code(), now.0],
        )?;
        self.list_if_passed(seq, now)?;
        let tenant = self.tenant_of(lane)?;
        let count = self.effects.counts_of(tenant);
        count.add(state, -1);
        count.add(State::Cancelled, 1);
        Ok(tenant)
    }
}

/// A delivery that was taken out of the dead letters.
struct DeadLetterRow {
    lane: u32,
    tenant: u32,
    message: u64,
    changed: Timestamp,
    ttl_s: u32,
    siblings: u32,
    /// The length of its own target and body.
    bytes: i64,
    /// The body that it shares with the other deliveries of its message.
    body: BodyRelease,
}
