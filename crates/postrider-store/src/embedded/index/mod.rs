//! The index in memory: lanes, leases, cached deliveries, counts, flags of addresses. Pure: reads no
//! clock and no disk. One mutex guards it, and nobody holds that mutex while reading or writing the disk.
//! Durable facts change here only after their commit.

mod address_flags;
pub(crate) mod cache;
pub(crate) mod counts;
pub(crate) mod delivery;
pub(crate) mod effects;
pub(crate) mod expiry;
mod hand_over;
mod lane_names;
pub(crate) mod lanes;
mod quarantine;
pub(crate) mod recent;
mod repeats;
mod suspects;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::RandomState;
use std::sync::Arc;

use postrider_core::model::id::order_key;
use postrider_core::ports::store::{LeasedDelivery, ReadyLane};
use postrider_core::{DeliveryId, LaneId, LaneKey, Timestamp};

use crate::holder::HolderNonce;
use crate::progress::DeliveryMark;
use crate::settled_before::SettledBefore;
use crate::work_signal::NextWork;
use address_flags::AddressFlagSet;
use cache::DeliveryCache;
use counts::TenantTable;
use delivery::{AddressFlags, StoredDelivery};
use expiry::ExpiryIndex;
use lanes::{DueKey, LaneWindows, WindowLimits};
use recent::RecentDeliveries;
use suspects::CrashSuspects;

#[derive(Default)]
pub(crate) struct MemoryIndex {
    pub(crate) lanes: LaneWindows,
    /// Lane keys by lane number, each with the number of its tenant. Absent for a number that is free.
    names: Vec<Option<(Arc<LaneKey>, u32)>>,
    /// The numbers of each tenant's lanes.
    tenant_lanes: HashMap<u32, BTreeSet<u32>>,
    pub(crate) tenants: TenantTable,
    pub(crate) cache: DeliveryCache,
    leases: HashMap<u64, TrackedLease>,
    /// The ends of running leases, in order.
    ends: BTreeSet<(i64, u64)>,
    next_token: u64,
    marks: HashMap<u64, DeliveryMark>,
    /// By fingerprint: addresses that are gone.
    gone: AddressFlagSet,
    /// By fingerprint: addresses with strikes.
    struck: AddressFlagSet,
    hasher: RandomState,
    /// The time of the last `ready` call.
    listed_at: i64,
    /// Whether something due arrived since the last `ready` call.
    has_new_work: bool,
    pub(crate) oldest: OldestPending,
    pub(crate) expiry: ExpiryIndex,
    pub(crate) recent: RecentDeliveries,
    /// Deliveries that cannot be read or settled at present.
    quarantined: HashSet<u64>,
    suspects: CrashSuspects,
    /// Who may lease.
    pub(crate) holder: HolderNonce,
    settled_before: SettledBefore,
}

/// A lower bound: no pending delivery is older than this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OldestPending {
    pub(crate) seq: u64,
    /// How often older deliveries became pending again. A search that began before the last time is void.
    returns: u64,
}

impl OldestPending {
    pub(crate) fn returned(&mut self, seq: u64) {
        self.seq = self.seq.min(seq);
        self.returns += 1;
    }
}

struct TrackedLease {
    token: u64,
    until: i64,
    lane: u32,
    /// The due time on disk.
    due: i64,
    /// Absent until it has been read.
    delivery: Option<Arc<StoredDelivery>>,
    phase: LeasePhase,
    /// It is no lease: the delivery waits until another one ends that may have caused crashes.
    held_back: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeasePhase {
    Held,
    /// Its time is over and the delivery waits again. The token stays valid until the next lease.
    Ended,
    /// Its settlement is being written.
    Settling,
    /// Its settlement cannot be written: nobody leases it again in this run.
    Quarantined,
}

/// A lease whose delivery has to be read from disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnreadLease {
    pub(crate) seq: u64,
    pub(crate) token: u64,
}

pub(crate) type LeaseResult = Result<LeasedDelivery, UnreadLease>;

#[derive(Default)]
pub(crate) struct LeaseBatch {
    pub(crate) leases: Vec<(u64, LeaseResult)>,
    /// The lane has more that is due, but only on disk.
    pub(crate) needs_refill: bool,
    /// It is time to read ahead.
    pub(crate) runs_low: bool,
    /// The next one, which is not in memory.
    pub(crate) unread: Option<u64>,
}

/// Where a delivery is after its settlement was committed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AfterSettle {
    Final,
    Due(i64),
    /// In another lane.
    Moved {
        lane: u32,
        due: i64,
    },
}

impl MemoryIndex {
    pub(crate) fn new(limits: WindowLimits, cache_bytes: usize, first_token: u64) -> Self {
        Self {
            lanes: LaneWindows::new(limits),
            cache: DeliveryCache::new(cache_bytes),
            next_token: first_token,
            listed_at: i64::MIN,
            has_new_work: true,
            ..Self::default()
        }
    }

    fn count_in_flight(&mut self, lane: u32, delivery: &StoredDelivery, by: i64) {
        let tenant = self.tenant_of(lane);
        if let Some(tenant) = tenant.and_then(|tenant| self.tenants.get_mut(tenant)) {
            tenant.add_in_flight(delivery.progress.state, by);
        }
    }

    /// Adds a delivery that waits: new, or to be tried again. True if it is among the next ones of its lane.
    pub(crate) fn add(&mut self, lane: u32, key: DueKey, now: i64) -> bool {
        let is_next = self.lanes.add(lane, key);
        self.recent.add(lane, key);
        self.has_new_work |= key.0 <= now && !self.lanes.suspended.contains(lane);
        is_next
    }

    /// True if one of the resumed lanes has something due.
    pub(crate) fn resume(&mut self, lane: Option<u32>, now: i64) -> bool {
        let lanes = lane.map_or_else(|| self.lanes.suspended.all(), |lane| vec![lane]);
        let due = lanes.into_iter().filter(|lane| self.lanes.resume(*lane, now)).count();
        self.has_new_work |= due > 0;
        due > 0
    }

    pub(crate) fn ready(&mut self, now: i64, limit: usize) -> Vec<ReadyLane> {
        self.end_leases(now);
        self.lanes.end_suspensions(now);
        self.listed_at = now;
        self.has_new_work = false;
        let ready = self.lanes.ready(now, limit);
        let name = |(due, lane): (i64, u32)| {
            let key = self.lane_key(lane)?.clone();
            Some(ReadyLane { id: LaneId(lane), key, due_at: Timestamp(due) })
        };
        ready.into_iter().filter_map(name).collect()
    }

    /// When there is work that `ready` has not listed yet.
    pub(crate) fn next_work(&mut self, now: i64, expiry_lag: i64) -> NextWork {
        self.end_leases(now);
        self.has_new_work |= self.lanes.end_suspensions(now);
        let next = self.lanes.next_after(self.listed_at);
        let expiry = self.expiry.next_check(expiry_lag);
        match next {
            _ if self.has_new_work || expiry.is_some_and(|at| at <= now) => NextWork::Now,
            Some(due) if due <= now => NextWork::Now,
            next => {
                let lease_end = self.ends.first().map(|(until, _)| *until);
                let resumption = self.lanes.suspended.next_end();
                let next = [next, lease_end, resumption, expiry].into_iter().flatten().min();
                NextWork::At(next.map(Timestamp))
            }
        }
    }

    /// Deliveries from the sequence `read_from` on are leased only if they are in memory.
    pub(crate) fn lease(
        &mut self,
        lane: u32,
        max: usize,
        (now, until): (i64, i64),
        read_from: u64,
    ) -> LeaseBatch {
        self.end_leases(now);
        let mut batch = LeaseBatch::default();
        loop {
            let (cache, leases) = (&self.cache, &self.leases);
            let may_take =
                |seq| seq < read_from || cache.contains(seq) || leases.contains_key(&seq);
            let due = self.lanes.take_due(lane, now, max - batch.leases.len(), may_take);
            batch.needs_refill = due.needs_refill;
            batch.runs_low |= due.runs_low;
            batch.unread = due.unread;
            let mut held_back = 0;
            for (due, seq) in due.keys {
                match self.admit_suspect(seq, now) {
                    Ok(()) => batch.leases.push((seq, self.start_lease(lane, due, seq, until))),
                    Err(until) => {
                        self.hold_back(lane, (due, seq), until);
                        held_back += 1;
                    }
                }
            }
            if held_back == 0 || batch.needs_refill {
                return batch;
            }
        }
    }

    /// Leases one delivery, wherever it waits. `None` if it is leased already.
    pub(crate) fn lease_one(&mut self, lane: u32, key: DueKey, until: i64) -> Option<LeaseResult> {
        let returned_at = match self.leases.get(&key.1) {
            Some(lease) if lease.phase != LeasePhase::Ended => return None,
            ended => ended.map(|lease| lease.until),
        };
        self.lanes.take_one(lane, key, returned_at);
        Some(self.start_lease(lane, key.0, key.1, until))
    }

    fn start_lease(&mut self, lane: u32, due: i64, seq: u64, until: i64) -> LeaseResult {
        let token = self.next_token;
        self.next_token += 1;
        let (due, delivery) = match self.leases.remove(&seq) {
            Some(ended) => (ended.due, ended.delivery),
            None => (due, self.cache.take(seq)),
        };
        // The flags of an address are on disk, so a flagged one has to be read.
        let delivery = delivery.filter(|delivery| !self.is_flagged(lane, delivery.hash));
        let phase = LeasePhase::Held;
        let lease = TrackedLease {
            token,
            until,
            lane,
            due,
            delivery: delivery.clone(),
            phase,
            held_back: false,
        };
        self.leases.insert(seq, lease);
        self.ends.insert((until, seq));
        match delivery {
            Some(delivery) => {
                self.count_in_flight(lane, &delivery, 1);
                Ok(delivery.leased(token, AddressFlags::default(), self.mark(seq)))
            }
            None => Err(UnreadLease { seq, token }),
        }
    }

    /// The lane of a leased delivery.
    pub(crate) fn lane_of(&self, seq: u64) -> Option<Arc<LaneKey>> {
        self.lane_key(self.leases.get(&seq)?.lane).cloned()
    }

    /// Completes a lease with what was read from disk. `None` if the lease ended meanwhile.
    pub(crate) fn complete_lease(
        &mut self,
        unread: UnreadLease,
        delivery: Arc<StoredDelivery>,
        flags: AddressFlags,
    ) -> Option<LeasedDelivery> {
        let lease = self.leases.get_mut(&unread.seq)?;
        if lease.token != unread.token || lease.phase != LeasePhase::Held {
            return None;
        }
        let lane = lease.lane;
        lease.delivery = Some(delivery.clone());
        self.end_quarantine(unread.seq);
        self.count_in_flight(lane, &delivery, 1);
        Some(delivery.leased(unread.token, flags, self.mark(unread.seq)))
    }

    /// Gives a lease back whose delivery could not be read. With `again_at`, the delivery is not leased
    /// before that time.
    pub(crate) fn give_back_unread(&mut self, unread: UnreadLease, again_at: Option<i64>) {
        let Some(lease) = self.leases.get(&unread.seq) else { return };
        if lease.token != unread.token || lease.phase != LeasePhase::Held {
            return;
        }
        let (lane, due, until) = (lease.lane, lease.due, lease.until);
        self.ends.remove(&(until, unread.seq));
        match again_at {
            Some(at) => {
                self.quarantined.insert(unread.seq);
                self.leases.entry(unread.seq).and_modify(|lease| lease.until = at);
                self.ends.insert((at, unread.seq));
            }
            None => {
                self.leases.remove(&unread.seq);
                self.lanes.give_back(lane, (due, unread.seq));
            }
        }
    }

    /// Ends the leases whose time is over: their deliveries are due again.
    pub(crate) fn end_leases(&mut self, now: i64) {
        while let Some(&(until, seq)) = self.ends.first() {
            if until > now {
                break;
            }
            self.ends.pop_first();
            let Some(lease) = self.leases.get_mut(&seq) else { continue };
            if lease.phase != LeasePhase::Held || lease.until != until {
                continue;
            }
            lease.phase = LeasePhase::Ended;
            let (lane, delivery) = (lease.lane, lease.delivery.clone());
            self.lanes.lease_ended(lane, (until, seq));
            if let Some(delivery) = delivery {
                self.count_in_flight(lane, &delivery, -1);
                self.expiry.returned(seq, delivery.expires);
            }
        }
    }

    pub(crate) fn mark(&self, seq: u64) -> DeliveryMark {
        if self.marks.is_empty() {
            return DeliveryMark::default();
        }
        self.marks.get(&seq).copied().unwrap_or_default()
    }

    pub(crate) fn set_mark(&mut self, seq: u64, mark: DeliveryMark) {
        match mark.is_empty() {
            true => drop(self.marks.remove(&seq)),
            false => drop(self.marks.insert(seq, mark)),
        }
    }

    /// The delivery's mark if it may be attempted under this lease.
    pub(crate) fn mark_if_startable(&self, id: DeliveryId, token: u64) -> Option<DeliveryMark> {
        let seq = order_key(id.0);
        let lease = self.leases.get(&seq).filter(|lease| lease.token == token)?;
        let same_id = lease.delivery.as_ref().is_some_and(|delivery| delivery.id() == id);
        let mark = self.mark(seq);
        (lease.phase == LeasePhase::Held && same_id && !mark.cancelled).then_some(mark)
    }

    /// Checks the token. On success nobody can lease the delivery while its settlement is written.
    pub(crate) fn begin_settling(
        &mut self,
        seq: u64,
        token: u64,
    ) -> Option<(Arc<StoredDelivery>, DeliveryMark)> {
        let lease = self.leases.get_mut(&seq)?;
        if lease.token != token || !matches!(lease.phase, LeasePhase::Held | LeasePhase::Ended) {
            return None;
        }
        let delivery = lease.delivery.clone()?;
        let (lane, until, was) = (lease.lane, lease.until, lease.phase);
        lease.phase = LeasePhase::Settling;
        match was {
            LeasePhase::Ended => {
                self.lanes.recall(lane, (until, seq));
                self.count_in_flight(lane, &delivery, 1);
            }
            _ => {
                self.ends.remove(&(until, seq));
            }
        }
        Some((delivery, self.mark(seq)))
    }

    /// The settlement was not written: the lease is held as before.
    pub(crate) fn undo_settling(&mut self, seq: u64) {
        if let Some(lease) = self.leases.get_mut(&seq) {
            lease.phase = LeasePhase::Held;
            self.ends.insert((lease.until, seq));
        }
    }

    /// The settlement was committed.
    pub(crate) fn settled(&mut self, seq: u64, after: AfterSettle, now: i64) {
        let Some(lease) = self.leases.remove(&seq) else { return };
        self.end_quarantine(seq);
        if let Some(delivery) = &lease.delivery {
            self.count_in_flight(lease.lane, delivery, -1);
            if !matches!(after, AfterSettle::Final) {
                self.expiry.returned(seq, delivery.expires);
            }
        }
        self.lanes.end_flight(lease.lane);
        match after {
            AfterSettle::Final => {
                self.expiry.remove(seq);
                self.recent.remove(lease.lane, seq);
            }
            AfterSettle::Due(due) => {
                self.add(lease.lane, (due, seq), now);
            }
            AfterSettle::Moved { lane, due } => {
                self.recent.remove(lease.lane, seq);
                self.add(lane, (due, seq), now);
            }
        }
        self.end_suspect(seq, now);
    }

    /// Gives back a lease of which nothing is on disk. False if the token is not valid any more.
    pub(crate) fn release(&mut self, seq: u64, token: u64, now: i64) -> bool {
        let Some((delivery, _)) = self.begin_settling(seq, token) else { return false };
        let due = self.leases.get(&seq).map_or(now, |lease| lease.due);
        self.settled_by_holder(seq, AfterSettle::Due(due), now);
        self.cache.put(delivery, now);
        true
    }

    pub(crate) fn is_tracked(&self, seq: u64) -> bool {
        self.leases.contains_key(&seq)
    }

    /// The end of a running lease, also while its settlement is being written.
    pub(crate) fn leased_until(&self, seq: u64) -> Option<i64> {
        self.leases.get(&seq).filter(|l| l.phase != LeasePhase::Ended).map(|l| l.until)
    }

    /// The end of a lease that ended unsettled. The delivery is due since then, whatever the disk says.
    pub(crate) fn lease_ended_at(&self, seq: u64) -> Option<i64> {
        self.leases.get(&seq).filter(|l| l.phase == LeasePhase::Ended).map(|l| l.until)
    }

    /// Takes a waiting delivery out of the queue. False if it is leased.
    pub(crate) fn withdraw(&mut self, lane: u32, due: i64, seq: u64) -> bool {
        let returned_at = match self.leases.entry(seq) {
            Entry::Occupied(lease) if lease.get().phase == LeasePhase::Ended => {
                Some(lease.remove().until)
            }
            Entry::Occupied(_) => return false,
            Entry::Vacant(_) => None,
        };
        self.lanes.withdraw(lane, (due, seq), returned_at);
        self.recent.remove(lane, seq);
        self.cache.take(seq);
        true
    }
}
