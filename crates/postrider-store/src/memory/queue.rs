//! The model's queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{
    AddressStatus, Decision, DeliveryId, LaneId, LaneKey, MessageId, TenantId, Timestamp,
};

use super::MemoryStore;
use super::rows::{MemoryDelivery, MemoryKey, MemoryLease, MemoryMessage, MemoryTables};
use crate::ids::IdGenerator;
use crate::progress::{DeliveryMark, LOG_MAX, StoredProgress, effective_decision, stored_message};
use crate::work_signal::NextWork;

#[async_trait]
impl Queue for MemoryStore {
    async fn accept(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<Admission>> {
        let (now, over_by) = (self.clock.now(), self.clock.bounds().earliest);
        let answers = {
            let (mut rows, mut ids) = (self.rows(), self.ids());
            messages.into_iter().map(|new| rows.accept(new, &mut ids, now, over_by)).collect()
        };
        self.work.notify();
        Ok(answers)
    }

    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        let now = self.clock.now();
        let mut rows = self.rows();
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
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        let now = self.clock.now();
        let mut rows = self.rows();
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

    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>> {
        let (rows, over_by) = (self.rows(), self.clock.bounds().earliest);
        Ok(keys.iter().map(|key| rows.repeated(key, over_by)).collect())
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> StoreResult<Vec<SettleResult>> {
        let now = self.clock.now();
        let answers = {
            let mut rows = self.rows();
            settlements.into_iter().map(|settlement| rows.settle(settlement, now)).collect()
        };
        self.work.notify();
        Ok(answers)
    }

    async fn lease_expired(
        &self,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        let (now, over_by) = (self.clock.now(), self.clock.bounds().earliest);
        let mut rows = self.rows();
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

    fn load(&self, tenant: Option<&TenantId>) -> Load {
        let rows = self.rows();
        let mut load = Load::default();
        for row in rows.messages.values() {
            if tenant.is_some_and(|tenant| *tenant != row.message.tenant) {
                continue;
            }
            let deliveries = row.deliveries.iter().filter_map(|id| rows.deliveries.get(id));
            let pending = deliveries.filter(|row| row.progress.state.is_pending());
            let before = load.deliveries;
            for delivery in pending {
                load.deliveries += 1;
                let target = delivery.target.as_ref().map_or(0, |target| target.as_json().len());
                load.bytes += target as u64;
            }
            if load.deliveries > before {
                load.bytes += row.message.content.len() as u64;
            }
        }
        load
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

    fn suspend(&self, lane: LaneId, until: Timestamp) {
        self.rows().suspended.insert(lane, until);
    }

    fn resume(&self, lane: Option<LaneId>) {
        self.rows().resume(lane, self.clock.now());
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

    fn repeated(&self, key: &DedupKey, over_by: Timestamp) -> Option<Admission> {
        let seen = self.dedup.get(&key.key).filter(|seen| seen.expires > over_by)?;
        let message = seen.message;
        if seen.fingerprint != key.fingerprint {
            return Some(Admission::Conflict { message });
        }
        let known = seen.deliveries.iter().filter(|id| self.deliveries.contains_key(id));
        Some(Admission::Duplicate { message, deliveries: known.copied().collect() })
    }

    fn accept(
        &mut self,
        new: NewMessage,
        ids: &mut IdGenerator,
        now: Timestamp,
        over_by: Timestamp,
    ) -> Admission {
        if let Some(repeated) = new.dedup.as_ref().and_then(|key| self.repeated(key, over_by)) {
            return repeated;
        }
        let message = MessageId(ids.next(now));
        let due = new.send_at.map_or(now, |at| at.max(now));
        let stored = Arc::new(stored_message(&new, message, now));
        let mut deliveries = Vec::with_capacity(new.deliveries.len());
        for delivery in new.deliveries {
            let id = DeliveryId(ids.next(now));
            let lane = self.intern(&delivery.lane);
            let row = MemoryDelivery {
                message,
                lane,
                target: Some(delivery.target),
                hash: delivery.hash,
                recipient: delivery.recipient,
                address: delivery.address,
                address_since: delivery.address_since,
                expires: stored.expires_at,
                retry: None,
                progress: StoredProgress::new(due, now),
                discarded: false,
                mark: DeliveryMark::default(),
                alternatives: delivery.alternatives,
                log: Vec::new(),
                lease: None,
                held_until: None,
            };
            self.expiries.insert((row.expires, id));
            self.deliveries.insert(id, row);
            self.due.entry(lane).or_default().insert((due, id));
            self.has_new_work |= self.is_new_work(lane, due, now);
            deliveries.push(id);
        }
        if let Some(dedup) = new.dedup {
            let seen = MemoryKey {
                message,
                deliveries: deliveries.clone(),
                fingerprint: dedup.fingerprint,
                expires: (now + dedup.window).max(stored.expires_at),
            };
            self.dedup.insert(dedup.key, seen);
        }
        let ids = deliveries.clone();
        let row = MemoryMessage { message: stored, scrubbed: false, deliveries: ids };
        self.messages.insert(message, row);
        Admission::Accepted { message, deliveries }
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
        let gone = self.gone.contains(&(message.tenant.clone(), row.hash));
        Some(LeasedDelivery {
            delivery: id,
            token,
            target: row.target.clone()?,
            hash: row.hash,
            address_since: row.address_since,
            attempts: row.progress.attempts,
            tries: row.progress.tries,
            last_delay: row.progress.last_delay,
            expires_at: row.expires,
            retry: row.retry.clone(),
            halt: row.mark.halt(gone),
            crashes: row.mark.crashes,
            started: row.mark.started,
            alternatives: row.alternatives.clone(),
            strikes: self.strikes_of(&message.tenant, row.hash),
            message,
        })
    }

    fn settle(&mut self, settlement: Settlement, now: Timestamp) -> SettleResult {
        let Settlement { delivery, token, attempts, decision, learned } = settlement;
        let held = self.deliveries.get(&delivery).and_then(|row| row.lease);
        if held.is_none_or(|lease| lease.token != token) {
            return SettleResult::Fenced;
        }
        let Some(row) = self.deliveries.get(&delivery) else { return SettleResult::Fenced };
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
        self.learn(&place, learned, &decision, now);
        if decision == Decision::MarkGone {
            for address in self.addresses_at(&place) {
                if address.status != AddressStatus::Gone {
                    address.status = AddressStatus::Gone;
                    address.gone_at = Some(now);
                    address.target = None;
                }
            }
            self.gone.insert(place);
        }
        self.scrub(message);
        self.has_new_work |=
            progress.state.is_pending() && self.is_new_work(lane, progress.due, now);
        self.end_suspect(delivery, now);
        SettleResult::Done
    }
}
