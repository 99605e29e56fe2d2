//! The model's queue as its holder sees it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{AddressStatus, Clock, Decision, DeliveryId, LaneId, LaneKey, Timestamp};

use super::rows::{MemoryLease, MemoryTables};
use crate::history::LOG_MAX;
use crate::holder::{HolderNonce, HolderQueue};
use crate::progress::AddressEnd;
use crate::progress::effective_decision;
use crate::work_signal::{NextWork, WorkSignal};

pub(super) struct MemoryQueue {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) work: Arc<WorkSignal>,
    pub(super) rows: Arc<Mutex<MemoryTables>>,
}

impl MemoryQueue {
    fn rows(&self) -> MutexGuard<'_, MemoryTables> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl HolderQueue for MemoryQueue {
    fn signal(&self) -> &WorkSignal {
        &self.work
    }

    async fn take_over(&self, holder: HolderNonce, crashed: bool) -> StoreResult<()> {
        let mut rows = self.rows();
        rows.forget_leases(crashed);
        rows.holder = holder;
        drop(rows);
        self.work.notify();
        Ok(())
    }

    async fn ready_lanes(&self, holder: HolderNonce, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        let now = self.clock.now();
        let mut rows = self.rows();
        if rows.holder != holder {
            return Ok(Vec::new());
        }
        rows.listed_at = now;
        rows.has_new_work = false;
        let mut ready: Vec<_> = rows
            .due
            .iter()
            .filter(|(id, _)| !rows.is_suspended(**id, now))
            .filter_map(|(&id, queue)| {
                let (due_at, _) = *queue.first().filter(|(due, _)| *due <= now)?;
                Some(ReadyLane { id, key: rows.lane(id).clone(), due_at })
            })
            .collect();
        ready.sort_by_key(|lane| (lane.due_at, lane.id));
        ready.truncate(limit);
        Ok(ready)
    }

    async fn lease(
        &self,
        holder: HolderNonce,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        let now = self.clock.now();
        let mut rows = self.rows();
        if rows.holder != holder {
            return Ok(Vec::new());
        }
        let due: Vec<_> = rows.due.get(&lane).map_or_else(Vec::new, |queue| {
            queue.iter().take_while(|(due, _)| *due <= now).map(|(_, id)| *id).collect()
        });
        let mut leased = Vec::new();
        for id in due {
            if leased.len() < max && rows.admit_suspect(id, now) {
                leased.extend(rows.lease(id, now + duration));
            }
        }
        Ok(leased)
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Vec<StoreResult<SettleResult>> {
        let now = self.clock.now();
        let answers = {
            let mut rows = self.rows();
            settlements.into_iter().map(|settlement| Ok(rows.settle(settlement, now))).collect()
        };
        self.work.notify();
        answers
    }

    async fn lease_expired(
        &self,
        holder: HolderNonce,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        let (now, over_by) = (self.clock.now(), self.clock.bounds().earliest);
        let mut rows = self.rows();
        if rows.holder != holder {
            return Ok(Vec::new());
        }
        rows.checked_at = Some(now);
        let expired: Vec<_> =
            rows.expiring(now).take_while(|(at, _)| *at <= over_by).take(max).collect();
        let lease = |(_, id): (Timestamp, DeliveryId)| {
            let leased = rows.lease(id, now + duration)?;
            let lane = rows.deliveries.get(&id)?.lane;
            Some((rows.lane(lane).clone(), leased))
        };
        Ok(expired.into_iter().filter_map(lease).collect())
    }

    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let mut start = |(id, token)| {
            let Some(row) = rows.deliveries.get_mut(&id) else { return false };
            let held = row.lease.is_some_and(|lease| lease.token == token && lease.until > now);
            let may = held && !row.mark.cancelled;
            row.mark.started |= may;
            may
        };
        Ok(attempts.into_iter().map(&mut start).collect())
    }

    async fn wait_for_work(&self, at_most: Duration) {
        let look = |now: Timestamp| {
            let rows = self.rows();
            let lag = now.since(self.clock.bounds().earliest);
            let next =
                [rows.next_unlisted(), rows.next_check(now, lag)].into_iter().flatten().min();
            match next {
                _ if rows.has_new_work => NextWork::Now,
                Some(due) if due <= now => NextWork::Now,
                next => NextWork::At(next),
            }
        };
        self.work.wait(at_most, look).await;
    }

    fn suspend(&self, holder: HolderNonce, lane: LaneId, until: Timestamp) {
        let mut rows = self.rows();
        if rows.holder == holder {
            rows.suspended.insert(lane, until);
        }
    }

    fn resume(&self, holder: HolderNonce, lane: Option<LaneId>) {
        let mut rows = self.rows();
        if rows.holder == holder {
            rows.resume(lane, self.clock.now());
        }
        drop(rows);
        self.work.notify();
    }
}

impl MemoryTables {
    /// When the next delivery becomes due that was not due at the last `ready_lanes`.
    fn next_unlisted(&self) -> Option<Timestamp> {
        let unseen = (self.listed_at + Duration::from_millis(1), DeliveryId(0));
        let next = |(lane, queue): (&LaneId, &BTreeSet<(Timestamp, DeliveryId)>)| {
            let until = self.suspended.get(lane).filter(|until| **until > self.listed_at);
            match until {
                Some(until) => queue.first().map(|(due, _)| *due.max(until)),
                None => queue.range(unseen..).next().map(|(due, _)| *due),
            }
        };
        self.due.iter().filter_map(next).min()
    }

    /// The pending deliveries that are not leased, by expiry.
    fn expiring(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, DeliveryId)> {
        let is_leased = move |id| self.deliveries.get(id).is_some_and(|row| row.is_leased(now));
        self.expiries.iter().filter(move |(_, id)| !is_leased(id)).copied()
    }

    /// When to check again for expired deliveries, which are over by `now - lag`.
    fn next_check(&self, now: Timestamp, lag: Duration) -> Option<Timestamp> {
        let again = self.checked_at? + Duration::from_secs(1);
        self.expiring(now).next().map(|(at, _)| (at + lag).max(again))
    }

    fn resume(&mut self, lane: Option<LaneId>, now: Timestamp) {
        let lanes =
            lane.map_or_else(|| self.suspended.keys().copied().collect(), |lane| vec![lane]);
        for lane in lanes {
            let was_suspended = self.suspended.remove(&lane).is_some();
            let first = self.due.get(&lane).and_then(BTreeSet::first);
            self.has_new_work |= was_suspended && first.is_some_and(|(due, _)| *due <= now);
        }
    }

    fn lease(&mut self, id: DeliveryId, until: Timestamp) -> Option<LeasedDelivery> {
        self.token += 1;
        let token = self.token;
        self.change(id, |row| {
            row.lease = Some(MemoryLease { token, until });
            row.held_until = None;
        })?;
        let row = self.deliveries.get(&id)?;
        let message = self.messages.get(&row.message)?.message.clone();
        let end = self.gone.get(&(message.tenant.clone(), row.hash)).copied();
        Some(LeasedDelivery {
            delivery: id,
            token,
            target: row.target.clone()?,
            hash: row.hash,
            recipient: row.recipient.clone(),
            address_since: row.address_since,
            due_at: row.progress.due,
            attempts: row.progress.attempts,
            tries: row.progress.tries,
            last_delay: row.progress.last_delay,
            expires_at: row.expires,
            retry: row.retry.clone(),
            halt: row.mark.halt(end, message.id),
            crashes: row.mark.crashes,
            started: row.mark.started,
            alternatives: row.alternatives.clone(),
            strikes: self.strikes_of(&message.tenant, row.hash),
            message,
        })
    }

    fn settle(&mut self, settlement: Settlement, now: Timestamp) -> SettleResult {
        let Settlement { delivery, token, attempts, decision, learned } = settlement;
        if self.settled_before.contains(token) {
            return SettleResult::Done;
        }
        let Some(row) = self.deliveries.get(&delivery) else { return SettleResult::Fenced };
        if row.lease.is_none_or(|lease| lease.token != token) {
            return SettleResult::Fenced;
        }
        let place = (self.lane(row.lane).tenant.clone(), row.hash);
        let next = row.alternatives.first().cloned();
        let decision = effective_decision(&decision, row.mark.cancelled, next.is_some());
        let elsewhere = next.filter(|_| decision == Decision::FallBack);
        let elsewhere = elsewhere.map(|place| (self.intern(&place.lane), place));
        let message = self.change(delivery, |row| {
            if let Some((lane, place)) = elsewhere {
                row.go_to(lane, place);
            }
            row.lease = None;
            row.held_until = None;
            row.mark = row.mark.settled(&decision);
            row.progress = row.progress.settled(&decision, &attempts, now);
            row.log.extend(attempts);
            let surplus = row.log.len().saturating_sub(LOG_MAX);
            row.log.drain(..surplus);
            if !matches!(decision, Decision::DeadLetter(_)) && row.progress.state.is_final() {
                row.erase();
            }
            (row.message, row.lane, row.progress)
        });
        let Some((message, lane, progress)) = message else { return SettleResult::Fenced };
        self.settled_before.add(token);
        self.learn(&place, learned, &decision, now);
        if decision == Decision::MarkGone {
            for address in self.addresses_at(&place) {
                if address.status != AddressStatus::Gone {
                    address.status = AddressStatus::Gone;
                    address.gone_at = Some(now);
                    address.target = None;
                }
            }
            self.gone.insert(place, AddressEnd::Gone);
        }
        self.scrub(message);
        self.has_new_work |=
            progress.state.is_pending() && self.is_new_work(lane, progress.due, now);
        self.end_suspect(delivery, now);
        SettleResult::Done
    }
}
