//! Leases of a worker: what is due in a lane, and what expired.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use postrider_core::ports::store::{LeasedDelivery, StoreResult};
use postrider_core::{LaneKey, Timestamp};

use super::consumer::ShardWorker;
use super::{LanePlace, LeaseOrder, LeasedRow, QueueEntry, ShardEngine, shard_of};

/// So often a lease is tried again because operators act on its shard.
const LEASE_TRIES: usize = 10;

impl<E: ShardEngine> ShardWorker<E> {
    pub(super) async fn lease(
        self: Arc<Self>,
        lane: u32,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        let mut leased = Vec::new();
        if !self.prepare_to_lease(lane).await? {
            return Ok(leased);
        }
        while leased.len() < max {
            let now = self.now().0;
            let due = self.state().index.take_due(lane, now, max - leased.len());
            let places = self.admit(lane, due.places, now, duration).await?;
            if !places.is_empty() {
                match self.lease_places(lane, &places, duration).await {
                    Ok(some) => leased.extend(some),
                    Err(error) => {
                        self.state().index.give_back(lane, &places);
                        return if leased.is_empty() { Err(error) } else { Ok(leased) };
                    }
                }
                continue;
            }
            if due.refill_after.is_none() || !self.refill(lane).await? {
                break;
            }
        }
        Ok(leased)
    }

    /// Of suspects, one at a time is leased.
    async fn admit(
        &self,
        lane: u32,
        places: Vec<LanePlace>,
        now: i64,
        duration: Duration,
    ) -> StoreResult<Vec<LanePlace>> {
        let until = (Timestamp(now) + duration).0;
        let mut admitted = Vec::with_capacity(places.len());
        for place in places {
            let id = place.1;
            let (is_suspect, busy) = {
                let suspects = &self.state().index.suspects;
                (suspects.is_suspect(id), suspects.busy_until(id, now))
            };
            if !is_suspect {
                admitted.push(place);
                continue;
            }
            let busy = match busy {
                None => self.engine.take_turn(id, until).await.unwrap_or(Err(until)).err(),
                busy => busy,
            };
            let mut state = self.state();
            match busy {
                Some(end) => state.index.hold_back(lane, id, end),
                None => {
                    state.index.suspects.begin(id, until);
                    admitted.push(place);
                }
            }
        }
        Ok(admitted)
    }

    async fn lease_places(
        &self,
        lane: u32,
        places: &[LanePlace],
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        let ids: Vec<_> = places.iter().map(|(_, id)| *id).collect();
        let rows = self.write_lease(ids, duration, false).await?;
        debug_assert!(rows.iter().all(|(_, row)| row.lane == lane), "it waited in this lane");
        Ok(rows.into_iter().map(|(_, leased)| leased).map(|row| row.delivery).collect())
    }

    /// Leases these deliveries, as far as they still wait.
    async fn write_lease(
        &self,
        ids: Vec<u128>,
        duration: Duration,
        expired: bool,
    ) -> StoreResult<Vec<(u128, WrittenLease)>> {
        let first = self.take_tokens(ids.len() as u64).await?;
        for _ in 0..LEASE_TRIES {
            let now = self.now();
            let (shards, ended_batches) = {
                let mut state = self.state();
                let Some(shards) = state.shards_of(ids.iter().copied()) else { break };
                (shards, state.index.take_ended_batches())
            };
            if !self.is_sure(now) {
                break;
            }
            let order = LeaseOrder {
                shards,
                batch: first as i64,
                ids: ids.clone(),
                now: now.0,
                until: (now + duration).0,
                expired,
                ended_batches,
            };
            let written = self.engine.lease(&order).await;
            if !matches!(written, Ok(Some(_))) {
                self.state().index.keep_ended_batches(order.ended_batches.clone());
            }
            match written? {
                Some(rows) => return Ok(self.keep_leases(rows, &order, first)),
                None => self.look_at(&order.shards).await?,
            }
        }
        self.state().index.leasing_ended(ids);
        Ok(Vec::new())
    }

    fn keep_leases(
        &self,
        rows: Vec<LeasedRow>,
        order: &LeaseOrder,
        first: u64,
    ) -> Vec<(u128, WrittenLease)> {
        let mut rows: HashMap<_, _> = rows.into_iter().map(|row| (row.id, row)).collect();
        let mut state = self.state();
        let lost: Vec<_> = order.shards.iter().filter(|held| !state.has(held)).collect();
        let mut leased = Vec::with_capacity(rows.len());
        for (id, token) in order.ids.iter().zip(first..) {
            let Some(row) = rows.remove(id) else { continue };
            if lost.iter().any(|held| held.shard == shard_of(*id)) {
                continue;
            }
            let written = WrittenLease { lane: row.lane, delivery: row.leased(token) };
            leased.push((*id, written));
            state.index.start_lease(row, token, order.batch, order.until);
        }
        state.index.leasing_ended(order.ids.iter().copied());
        leased
    }

    async fn take_tokens(&self, count: u64) -> StoreResult<u64> {
        loop {
            if let Some(first) = self.tokens_left(count) {
                return Ok(first);
            }
            let fresh = self.engine.tokens().await?;
            *self.tokens.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
    }

    fn tokens_left(&self, count: u64) -> Option<u64> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.end - tokens.start < count {
            return None;
        }
        let first = tokens.start;
        tokens.start += count;
        Some(first)
    }

    pub(super) async fn lease_expired(
        self: Arc<Self>,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        if !self.prepare().await? {
            return Ok(Vec::new());
        }
        let (now, over_by) = (self.now().0, self.engine.clock().bounds().earliest.0);
        let (shards, limit) = {
            let mut state = self.state();
            if max == 0 || !state.index.may_have_expired(now, over_by) {
                return Ok(Vec::new());
            }
            let shards: Vec<_> = state.shards().iter().map(|held| held.shard).collect();
            (shards, max + state.index.lease_count() + 1)
        };
        let entries = self.engine.expiring(&shards, limit).await?;
        let lanes: Vec<_> = entries.iter().map(|entry| entry.lane).collect();
        self.engine.learn_lanes(&lanes).await?;
        let taken = self.take_expired(&entries, limit, over_by, max);
        let ids: Vec<_> = taken.iter().map(|entry| entry.id).collect();
        let written = match ids.is_empty() {
            true => Vec::new(),
            false => match self.write_lease(ids, duration, true).await {
                Ok(written) => written,
                Err(error) => {
                    let mut state = self.state();
                    for entry in &taken {
                        state.index.give_back(entry.lane, &[(entry.due, entry.id)]);
                    }
                    state.index.set_next_expiry(taken.first().map(|entry| entry.expires));
                    return Err(error);
                }
            },
        };
        let name = |(_, written): (u128, WrittenLease)| {
            Some((self.engine.lane_key(written.lane)?, written.delivery))
        };
        Ok(written.into_iter().filter_map(name).collect())
    }

    /// Takes the first that expired out of their lanes, and notes when to look again.
    fn take_expired(
        &self,
        entries: &[QueueEntry],
        limit: usize,
        over_by: i64,
        max: usize,
    ) -> Vec<QueueEntry> {
        let mut state = self.state();
        let (mut taken, mut next) = (Vec::new(), None);
        for entry in entries {
            if entry.expires > over_by || taken.len() == max {
                next = Some(entry.expires);
                break;
            }
            if state.index.take_one(entry) {
                taken.push(*entry);
            }
        }
        let all_read = entries.len() < limit;
        let last = entries.last().map(|entry| entry.expires).filter(|_| !all_read);
        state.index.set_next_expiry(next.or(last));
        taken
    }
}

/// A lease that is written.
struct WrittenLease {
    lane: u32,
    delivery: LeasedDelivery,
}
