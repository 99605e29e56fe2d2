//! What a worker has in memory of the shards that it holds: lanes, leases, suspensions and wake-ups. Pure: reads no
//! clock and no engine. Durable facts change here after their commit.

mod leases;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::settled_before::SettledBefore;
use crate::sharded::lane::{DueDeliveries, ShardLane};
use crate::sharded::suspects::SuspectTurns;
use crate::sharded::{LanePlace, LeasedRow, QueueEntry, ShardContent, ShardId, shard_of};
use crate::work_signal::NextWork;
use postrider_core::Timestamp;

/// The shortest time between two looks for expired deliveries, in milliseconds.
const CHECK_EVERY_MS: i64 = 1_000;

#[derive(Default)]
pub(in crate::sharded) struct ShardIndex {
    lanes: HashMap<u32, ShardLane>,
    /// The lanes that are not suspended, by their first due times.
    firsts: BTreeSet<(i64, u32)>,
    /// The same, by lane.
    listed: HashMap<u32, i64>,
    /// Places that were not due yet when they came. Some may have gone since.
    timers: BTreeSet<(i64, u32, u128)>,
    suspended: HashMap<u32, i64>,
    suspension_ends: BTreeSet<(i64, u32)>,
    pub(in crate::sharded) leases: HashMap<u128, ShardLease>,
    lease_ends: BTreeSet<(i64, u128)>,
    /// Deliveries whose lease is being written.
    leasing: HashSet<u128>,
    /// How many deliveries of each batch are leased.
    batches: BTreeMap<(ShardId, i64), u32>,
    /// Batches of which nothing is leased any more, to be deleted.
    ended_batches: Vec<(ShardId, i64)>,
    pub(in crate::sharded) settled_before: SettledBefore,
    pub(in crate::sharded) suspects: SuspectTurns,
    listed_at: i64,
    has_new_work: bool,
    /// No delivery that waits expires before.
    next_expiry: Option<i64>,
    checked_at: Option<i64>,
}

#[derive(Debug, Clone)]
pub(in crate::sharded) struct ShardLease {
    pub(in crate::sharded) token: u64,
    pub(in crate::sharded) batch: i64,
    pub(in crate::sharded) until: i64,
    pub(in crate::sharded) row: Arc<LeasedRow>,
    pub(in crate::sharded) phase: ShardLeasePhase,
    /// A write whose answer was lost.
    pub(in crate::sharded) receipt: Option<u128>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sharded) enum ShardLeasePhase {
    Held,
    /// Its time is over, and the delivery waits again. The token stays valid until the next lease.
    Ended,
    /// Its settlement is being written.
    Settling,
}

impl ShardIndex {
    pub(in crate::sharded) fn new() -> Self {
        Self { has_new_work: true, listed_at: i64::MIN, ..Self::default() }
    }

    fn is_suspended(&self, lane: u32) -> bool {
        self.suspended.contains_key(&lane)
    }

    /// Brings the list of first due times up to date.
    fn list(&mut self, lane: u32) {
        let first = match self.lanes.get(&lane) {
            Some(known) if known.is_empty() => {
                self.lanes.remove(&lane);
                None
            }
            Some(known) => known.first(),
            None => None,
        };
        let first = first.filter(|_| !self.is_suspended(lane));
        let before = match first {
            Some(first) => self.listed.insert(lane, first),
            None => self.listed.remove(&lane),
        };
        if before == first {
            return;
        }
        if let Some(before) = before {
            self.firsts.remove(&(before, lane));
        }
        if let Some(first) = first {
            self.firsts.insert((first, lane));
        }
    }

    /// A delivery waits: new, or to be tried again.
    pub(in crate::sharded) fn add(&mut self, lane: u32, place: LanePlace, expires: i64, now: i64) {
        if self.leases.contains_key(&place.1) || self.leasing.contains(&place.1) {
            return;
        }
        self.lanes.entry(lane).or_default().add(place);
        self.note_due(lane, place, now);
        self.note_expiry(expires);
        self.list(lane);
    }

    fn note_due(&mut self, lane: u32, place: LanePlace, now: i64) {
        if place.0 > now {
            self.timers.insert((place.0, lane, place.1));
        } else if !self.is_suspended(lane) {
            self.has_new_work = true;
        }
    }

    fn note_expiry(&mut self, expires: i64) {
        self.next_expiry = Some(self.next_expiry.map_or(expires, |next| next.min(expires)));
    }

    /// A delivery does not wait any more: an operator ended or moved it.
    pub(in crate::sharded) fn remove(&mut self, lane: u32, place: LanePlace, now: i64) {
        self.advance(now);
        self.suspects.forget(place.1);
        if let Some(known) = self.lanes.get_mut(&lane) {
            known.remove(place);
        }
        let lease = self.leases.get(&place.1);
        if let Some(lease) = lease.filter(|lease| lease.phase == ShardLeasePhase::Ended) {
            let (until, of) = (lease.until, lease.row.lane);
            if let Some(known) = self.lanes.get_mut(&of) {
                known.remove((until, place.1));
            }
            self.end_lease(place.1);
            self.list(of);
        }
        self.list(lane);
    }

    /// What a new holder has read.
    pub(in crate::sharded) fn load(&mut self, content: &ShardContent, now: i64) {
        for (lane, first) in &content.lanes {
            self.lanes.entry(*lane).or_default().reads_from(*first);
            self.note_due(*lane, (*first, 0), now);
            self.list(*lane);
        }
        for (id, crashes) in &content.crashed {
            self.suspects.set_crashes(*id, *crashes);
        }
        if let Some(expiry) = content.first_expiry {
            self.note_expiry(expiry);
        }
    }

    /// Forgets the shards that are not held any more.
    pub(in crate::sharded) fn forget(&mut self, is_held: impl Fn(ShardId) -> bool) {
        let lanes: Vec<_> = self.lanes.keys().copied().collect();
        for lane in lanes {
            if let Some(known) = self.lanes.get_mut(&lane) {
                known.retain(&is_held);
            }
            self.list(lane);
        }
        let lost: Vec<_> =
            self.leases.keys().copied().filter(|id| !is_held(shard_of(*id))).collect();
        for id in lost {
            self.end_lease(id);
        }
        self.suspects.retain(&is_held);
        self.batches.retain(|(shard, _), _| is_held(*shard));
        self.ended_batches.retain(|(shard, _)| is_held(*shard));
    }

    /// Removes the lanes of a shard from what can be leased, but not its leases.
    pub(in crate::sharded) fn stop_leasing(&mut self, is_kept: impl Fn(ShardId) -> bool) {
        let lanes: Vec<_> = self.lanes.keys().copied().collect();
        for lane in lanes {
            if let Some(known) = self.lanes.get_mut(&lane) {
                known.retain(&is_kept);
            }
            self.list(lane);
        }
    }

    pub(in crate::sharded) fn has_leases(&self, shard: ShardId) -> bool {
        self.batches.range((shard, i64::MIN)..=(shard, i64::MAX)).next().is_some()
    }

    /// Ends what is over by now.
    fn advance(&mut self, now: i64) {
        while let Some((until, id)) = self.lease_ends.first().copied().filter(|(at, _)| *at <= now)
        {
            self.lease_ends.remove(&(until, id));
            self.lease_timed_out(id, until);
        }
        while let Some((until, lane)) =
            self.suspension_ends.first().copied().filter(|(at, _)| *at <= now)
        {
            self.suspension_ends.remove(&(until, lane));
            self.resume_one(lane, now);
        }
        while let Some(timer) = self.timers.first().copied().filter(|(due, ..)| *due <= now) {
            self.timers.remove(&timer);
            let (due, lane, id) = timer;
            let is_there = self.lanes.get(&lane).is_some_and(|known| match id {
                0 => known.first().is_some_and(|first| first <= now),
                id => known.contains((due, id)),
            });
            self.has_new_work |= is_there && due > self.listed_at && !self.is_suspended(lane);
        }
        for (lane, place) in self.suspects.ended(now) {
            self.lanes.entry(lane).or_default().add_returned(place);
            self.has_new_work |= place.0 > self.listed_at && !self.is_suspended(lane);
            self.list(lane);
        }
    }

    fn lease_timed_out(&mut self, id: u128, until: i64) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        if lease.phase != ShardLeasePhase::Held || lease.until != until {
            return;
        }
        lease.phase = ShardLeasePhase::Ended;
        let (lane, expires) = (lease.row.lane, lease.row.expires);
        self.lanes.entry(lane).or_default().add_returned((until, id));
        self.has_new_work |= until > self.listed_at && !self.is_suspended(lane);
        self.note_expiry(expires);
        self.list(lane);
    }

    /// Lanes with something due, the longest due first.
    pub(in crate::sharded) fn ready(&mut self, now: i64, limit: usize) -> Vec<(u32, i64)> {
        self.advance(now);
        self.listed_at = now;
        self.has_new_work = false;
        let due = self.firsts.iter().take_while(|(due, _)| *due <= now).take(limit);
        due.map(|(due, lane)| (*lane, *due)).collect()
    }

    /// Whether some delivery of the lane is known to be due.
    pub(in crate::sharded) fn has_due(&self, lane: u32, now: i64) -> bool {
        self.lanes.get(&lane).is_some_and(|known| known.has_due(now))
    }

    /// Lanes of which only the engine knows whether something is due.
    pub(in crate::sharded) fn unsure(&self, now: i64, limit: usize) -> Vec<u32> {
        let due = self.firsts.iter().take_while(|(due, _)| *due <= now);
        let unsure =
            due.filter(|(_, lane)| self.lanes.get(lane).is_some_and(|known| known.is_unsure(now)));
        unsure.take(limit).map(|(_, lane)| *lane).collect()
    }

    pub(in crate::sharded) fn next_work(&mut self, now: i64, lag: i64) -> NextWork {
        self.advance(now);
        let expiry = self.next_check(lag);
        if self.has_new_work || expiry.is_some_and(|at| at <= now) {
            return NextWork::Now;
        }
        let next = [
            self.timers.first().map(|(due, ..)| *due),
            self.lease_ends.first().map(|(until, _)| *until),
            self.suspension_ends.first().map(|(until, _)| *until),
            self.suspects.next_end(),
            expiry,
        ];
        NextWork::At(next.into_iter().flatten().min().map(Timestamp))
    }

    /// When to look for expired deliveries again, which are over by `now - lag`.
    fn next_check(&self, lag: i64) -> Option<i64> {
        let again = self.checked_at?.saturating_add(CHECK_EVERY_MS);
        Some(self.next_expiry?.saturating_add(lag).max(again))
    }

    pub(in crate::sharded) fn suspend(&mut self, lane: u32, until: i64, now: i64) {
        self.advance(now);
        if let Some(before) = self.suspended.remove(&lane) {
            self.suspension_ends.remove(&(before, lane));
        }
        if until > now {
            self.suspended.insert(lane, until);
            self.suspension_ends.insert((until, lane));
        }
        self.list(lane);
    }

    pub(in crate::sharded) fn resume(&mut self, lane: Option<u32>, now: i64) {
        self.advance(now);
        let lanes =
            lane.map_or_else(|| self.suspended.keys().copied().collect(), |lane| vec![lane]);
        for lane in lanes {
            if let Some(until) = self.suspended.get(&lane) {
                self.suspension_ends.remove(&(*until, lane));
                self.resume_one(lane, now);
            }
        }
    }

    fn resume_one(&mut self, lane: u32, now: i64) {
        self.suspended.remove(&lane);
        self.list(lane);
        self.has_new_work |= self.listed.get(&lane).is_some_and(|first| *first <= now);
    }

    /// Takes what is due, until [`leasing_ended`](Self::leasing_ended) says that its lease is written or not.
    pub(in crate::sharded) fn take_due(
        &mut self,
        lane: u32,
        now: i64,
        max: usize,
    ) -> DueDeliveries {
        self.advance(now);
        let mut due = match self.lanes.get_mut(&lane) {
            Some(known) => known.take_due(now, max),
            None => DueDeliveries::default(),
        };
        due.places.retain(|(_, id)| !self.is_leased(*id) && self.leasing.insert(*id));
        self.list(lane);
        due
    }

    fn is_leased(&self, id: u128) -> bool {
        self.leases.get(&id).is_some_and(|lease| lease.phase != ShardLeasePhase::Ended)
    }

    pub(in crate::sharded) fn leasing_ended(&mut self, ids: impl IntoIterator<Item = u128>) {
        for id in ids {
            self.leasing.remove(&id);
        }
    }

    /// It is the turn of another suspect: this one waits.
    pub(in crate::sharded) fn hold_back(&mut self, lane: u32, id: u128, until: i64) {
        self.leasing.remove(&id);
        self.suspects.hold_back(lane, id, until);
    }

    /// The turn of suspects is free.
    pub(in crate::sharded) fn pass_turn_on(&mut self, now: i64) {
        let suspended = &self.suspended;
        self.has_new_work |= self.suspects.pass_on(now, |lane| suspended.contains_key(&lane));
    }

    /// Puts places back that were taken and not leased.
    pub(in crate::sharded) fn give_back(&mut self, lane: u32, places: &[LanePlace]) {
        for place in places {
            self.leasing.remove(&place.1);
            let known = self.lanes.entry(lane).or_default();
            // What is in memory alone must not be left to the engine.
            known.add_returned(*place);
        }
        self.list(lane);
    }

    /// Where to read on in a lane; `None` if a refill is under way, or there is nothing to read.
    pub(in crate::sharded) fn begin_refill(&mut self, lane: u32) -> Option<LanePlace> {
        let known = self.lanes.get_mut(&lane)?;
        let after = known.refill_after()?;
        known.begin_refill().then_some(after)
    }

    /// Ends a refill with what the engine has, or with nothing if it failed.
    pub(in crate::sharded) fn refill(
        &mut self,
        lane: u32,
        entries: Option<&[QueueEntry]>,
        complete: bool,
        now: i64,
    ) {
        let Some(known) = self.lanes.get_mut(&lane) else { return };
        match entries {
            None => known.refill_failed(),
            Some(entries) => {
                let (leases, leasing, suspects) = (&self.leases, &self.leasing, &self.suspects);
                let is_free = |entry: &&QueueEntry| {
                    let id = entry.id;
                    !leases.contains_key(&id)
                        && !leasing.contains(&id)
                        && !suspects.is_held_back(id)
                };
                let places: Vec<_> =
                    entries.iter().filter(is_free).map(|entry| (entry.due, entry.id)).collect();
                let last = entries.last().map(|entry| (entry.due, entry.id));
                known.refill(&places, last.filter(|_| !complete));
                let later = places.iter().filter(|(due, _)| *due > now);
                self.timers.extend(later.map(|(due, id)| (*due, lane, *id)));
            }
        }
        self.list(lane);
    }

    /// Leases the first deliveries that expired, if there may be any: whether to ask the engine.
    pub(in crate::sharded) fn may_have_expired(&mut self, now: i64, over_by: i64) -> bool {
        self.advance(now);
        self.checked_at = Some(now);
        self.next_expiry.is_some_and(|at| at <= over_by)
    }

    /// How many leases may be among the first that expire.
    pub(in crate::sharded) fn lease_count(&self) -> usize {
        self.leases.len()
    }

    pub(in crate::sharded) fn set_next_expiry(&mut self, next: Option<i64>) {
        self.next_expiry = next;
    }
}
