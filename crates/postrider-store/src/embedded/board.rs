//! What the store knows in memory: lanes, leases, jobs at hand, numbers, who is gone. Behind one
//! mutex that is never held across a read or a write of the disk. Changes to durable facts are
//! made here only after they were committed.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::id::order_key;
use postrider_core::ports::store::{Leased, ReadyLane};
use postrider_core::{AddressHash, DeliveryId, LaneId, LaneKey, TenantId, Timestamp};

use super::expiry::Expiry;
use super::job::{Blame, Cache, Job};
use super::lanes::{Key, Lanes, Limits};
use super::tally::Tenants;
use crate::progress::Mark;

pub(super) struct Board {
    pub(super) lanes: Lanes,
    /// Lane names by number, each with its tenant's number.
    pub(super) names: Vec<(Arc<LaneKey>, u32)>,
    pub(super) tenants: Tenants,
    pub(super) cache: Cache,
    leases: HashMap<u64, Lease>,
    ends: BTreeSet<(i64, u64)>,
    next_token: u64,
    marks: HashMap<u64, Mark>,
    gone: HashSet<u64>,
    /// Who is blamed for something; what for is on disk.
    struck: HashSet<u64>,
    hasher: RandomState,
    shown: i64,
    fresh: bool,
    pub(super) oldest: Oldest,
    pub(super) expiry: Expiry,
}

/// No pending delivery is older than this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Oldest {
    pub(super) seq: u64,
    /// How often older work came back: a search that began before that does not count.
    returns: u64,
}

impl Oldest {
    pub(super) fn returned(&mut self, seq: u64) {
        self.seq = self.seq.min(seq);
        self.returns += 1;
    }
}

struct Lease {
    token: u64,
    until: i64,
    lane: u32,
    /// When it is due according to the disk.
    due: i64,
    /// Absent while it is being read.
    job: Option<Arc<Job>>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    /// It ended; the delivery waits again, and the token is good until somebody else leases it.
    Ended,
    /// Its settlement is being written.
    Settling,
}

/// Leased, but still to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unread {
    pub(super) seq: u64,
    pub(super) token: u64,
}

pub(super) type HeldOrUnread = Result<Leased, Unread>;

#[derive(Default)]
pub(super) struct Picked {
    pub(super) leased: Vec<(u64, HeldOrUnread)>,
    pub(super) dry: bool,
    pub(super) low: bool,
}

/// How a delivery ended up after its settlement was committed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Landing {
    Final,
    Due(i64),
    /// In another lane.
    Moved {
        lane: u32,
        due: i64,
    },
}

impl Board {
    pub(super) fn new(limits: Limits, cache_bytes: usize, first_token: u64) -> Self {
        Self {
            lanes: Lanes::new(limits),
            names: Vec::new(),
            tenants: Tenants::default(),
            cache: Cache::new(cache_bytes),
            leases: HashMap::new(),
            ends: BTreeSet::new(),
            next_token: first_token,
            marks: HashMap::new(),
            gone: HashSet::new(),
            struck: HashSet::new(),
            hasher: RandomState::new(),
            shown: i64::MIN,
            fresh: true,
            oldest: Oldest::default(),
            expiry: Expiry::default(),
        }
    }

    pub(super) fn lane_key(&self, lane: u32) -> Option<&Arc<LaneKey>> {
        self.names.get(lane as usize).map(|(key, _)| key)
    }

    fn fly(&mut self, lane: u32, job: &Job, by: i64) {
        let tenant = self.names.get(lane as usize).map(|(_, tenant)| *tenant);
        if let Some(tenant) = tenant.and_then(|tenant| self.tenants.get_mut(tenant)) {
            tenant.fly(job.progress.state, by);
        }
    }

    /// New work that was committed, or old work that is to be done again.
    pub(super) fn arrive(&mut self, lane: u32, key: Key, now: i64) {
        self.lanes.arrive(lane, key);
        self.fresh |= key.0 <= now && !self.lanes.is_aside(lane);
    }

    /// True if a lane of those brought back has something due.
    pub(super) fn resume(&mut self, lane: Option<u32>, now: i64) -> bool {
        let lanes = lane.map_or_else(|| self.lanes.all_aside(), |lane| vec![lane]);
        let due = lanes.into_iter().filter(|lane| self.lanes.resume(*lane, now)).count();
        self.fresh |= due > 0;
        due > 0
    }

    pub(super) fn ready(&mut self, now: i64, limit: usize) -> Vec<ReadyLane> {
        self.expire(now);
        self.lanes.end_aside(now);
        self.shown = now;
        self.fresh = false;
        let ready = self.lanes.ready(now, limit);
        let name = |(due, lane): (i64, u32)| {
            let key = self.lane_key(lane)?.clone();
            Some(ReadyLane { id: LaneId(lane), key, due_at: Timestamp(due) })
        };
        ready.into_iter().filter_map(name).collect()
    }

    /// Whether there is unseen work now, else when there will be.
    pub(super) fn next_work(&mut self, now: i64) -> Result<(), Option<i64>> {
        self.expire(now);
        self.fresh |= self.lanes.end_aside(now);
        let next = self.lanes.next_after(self.shown);
        let look = self.expiry.next_look();
        match next {
            _ if self.fresh || look.is_some_and(|at| at <= now) => Ok(()),
            Some(due) if due <= now => Ok(()),
            next => {
                let end = self.ends.first().map(|(until, _)| *until);
                let back = self.lanes.next_aside_end();
                Err([next, end, back, look].into_iter().flatten().min())
            }
        }
    }

    pub(super) fn lease(&mut self, lane: u32, max: usize, now: i64, until: i64) -> Picked {
        self.expire(now);
        let taken = self.lanes.take(lane, now, max);
        let mut picked = Picked { dry: taken.dry, low: taken.low, ..Picked::default() };
        for (due, seq) in taken.keys {
            picked.leased.push((seq, self.hold(lane, due, seq, until)));
        }
        picked
    }

    /// Leases this one, wherever it waits; nothing if somebody has it.
    pub(super) fn lease_this(&mut self, lane: u32, key: Key, until: i64) -> Option<HeldOrUnread> {
        let returned_at = match self.leases.get(&key.1) {
            Some(lease) if lease.phase != Phase::Ended => return None,
            ended => ended.map(|lease| lease.until),
        };
        self.lanes.pick(lane, key, returned_at);
        Some(self.hold(lane, key.0, key.1, until))
    }

    fn hold(&mut self, lane: u32, due: i64, seq: u64, until: i64) -> HeldOrUnread {
        let token = self.next_token;
        self.next_token += 1;
        let (due, job) = match self.leases.remove(&seq) {
            Some(ended) => (ended.due, ended.job),
            None => (due, self.cache.take(seq)),
        };
        // Whoever may be gone or struck is looked up on disk, as is whoever is not at hand.
        let job = job.filter(|job| !self.is_flagged(lane, job.hash));
        let lease = Lease { token, until, lane, due, job: job.clone(), phase: Phase::Held };
        self.leases.insert(seq, lease);
        self.ends.insert((until, seq));
        match job {
            Some(job) => {
                self.fly(lane, &job, 1);
                Ok(job.leased(token, Blame::default(), self.mark(seq)))
            }
            None => Err(Unread { seq, token }),
        }
    }

    /// The lane of what is leased.
    pub(super) fn lane_of(&self, seq: u64) -> Option<Arc<LaneKey>> {
        self.lane_key(self.leases.get(&seq)?.lane).cloned()
    }

    /// Completes a lease with what was read. `None` if it ended meanwhile.
    pub(super) fn read(&mut self, unread: Unread, job: Arc<Job>, blame: Blame) -> Option<Leased> {
        let lease = self.leases.get_mut(&unread.seq)?;
        if lease.token != unread.token || lease.phase != Phase::Held {
            return None;
        }
        let lane = lease.lane;
        lease.job = Some(job.clone());
        self.fly(lane, &job, 1);
        Some(job.leased(unread.token, blame, self.mark(unread.seq)))
    }

    /// Gives a lease back whose delivery could not be read this time.
    pub(super) fn unread(&mut self, unread: Unread, again_at: Option<i64>) {
        let Some(lease) = self.leases.get(&unread.seq) else { return };
        if lease.token != unread.token || lease.phase != Phase::Held {
            return;
        }
        let (lane, due, until) = (lease.lane, lease.due, lease.until);
        self.ends.remove(&(until, unread.seq));
        match again_at {
            Some(at) => {
                self.leases.entry(unread.seq).and_modify(|lease| lease.until = at);
                self.ends.insert((at, unread.seq));
            }
            None => {
                self.leases.remove(&unread.seq);
                self.lanes.give_back(lane, (due, unread.seq));
            }
        }
    }

    /// Ended leases are simply due again.
    pub(super) fn expire(&mut self, now: i64) {
        while let Some(&(until, seq)) = self.ends.first() {
            if until > now {
                break;
            }
            self.ends.pop_first();
            let Some(lease) = self.leases.get_mut(&seq) else { continue };
            if lease.phase != Phase::Held || lease.until != until {
                continue;
            }
            lease.phase = Phase::Ended;
            let (lane, job) = (lease.lane, lease.job.clone());
            self.lanes.lease_ended(lane, (until, seq));
            if let Some(job) = job {
                self.fly(lane, &job, -1);
                self.expiry.back(seq, job.expires);
            }
        }
    }

    pub(super) fn mark(&self, seq: u64) -> Mark {
        if self.marks.is_empty() {
            return Mark::default();
        }
        self.marks.get(&seq).copied().unwrap_or_default()
    }

    pub(super) fn set_mark(&mut self, seq: u64, mark: Mark) {
        match mark.is_empty() {
            true => drop(self.marks.remove(&seq)),
            false => drop(self.marks.insert(seq, mark)),
        }
    }

    /// The mark of what may be attempted now under that lease.
    pub(super) fn may_start(&self, id: DeliveryId, token: u64) -> Option<Mark> {
        let seq = order_key(id.0);
        let lease = self.leases.get(&seq).filter(|lease| lease.token == token)?;
        let ours = lease.phase == Phase::Held && lease.job.as_ref().is_some_and(|j| j.id() == id);
        let mark = self.mark(seq);
        (ours && !mark.cancelled).then_some(mark)
    }

    /// Everything that is leased and not settled, with the time of the lease.
    pub(super) fn all_leased(&self, now: i64) -> Vec<(u64, i64)> {
        self.leases.keys().map(|seq| (*seq, now)).collect()
    }

    /// Checks the token and holds the delivery while its settlement is written.
    pub(super) fn begin_settling(&mut self, seq: u64, token: u64) -> Option<(Arc<Job>, Mark)> {
        let lease = self.leases.get_mut(&seq)?;
        if lease.token != token || lease.phase == Phase::Settling {
            return None;
        }
        let job = lease.job.clone()?;
        let (lane, until, was) = (lease.lane, lease.until, lease.phase);
        lease.phase = Phase::Settling;
        match was {
            Phase::Ended => {
                self.lanes.recall(lane, (until, seq));
                self.fly(lane, &job, 1);
            }
            _ => {
                self.ends.remove(&(until, seq));
            }
        }
        Some((job, self.mark(seq)))
    }

    /// The settlement was not written: the lease stands as before.
    pub(super) fn undo_settling(&mut self, seq: u64) {
        if let Some(lease) = self.leases.get_mut(&seq) {
            lease.phase = Phase::Held;
            self.ends.insert((lease.until, seq));
        }
    }

    /// The settlement was committed.
    pub(super) fn settled(&mut self, seq: u64, landing: Landing, now: i64) {
        let Some(lease) = self.leases.remove(&seq) else { return };
        if let Some(job) = &lease.job {
            self.fly(lease.lane, job, -1);
            if !matches!(landing, Landing::Final) {
                self.expiry.back(seq, job.expires);
            }
        }
        self.lanes.landed(lease.lane);
        match landing {
            Landing::Final => self.expiry.left(seq),
            Landing::Due(due) => self.arrive(lease.lane, (due, seq), now),
            Landing::Moved { lane, due } => self.arrive(lane, (due, seq), now),
        }
    }

    /// A lease given back untouched; nothing of it is on disk. False if it was not ours to give.
    pub(super) fn release(&mut self, seq: u64, token: u64, now: i64) -> bool {
        let Some((job, _)) = self.begin_settling(seq, token) else { return false };
        let due = self.leases.get(&seq).map_or(now, |lease| lease.due);
        self.settled(seq, Landing::Due(due), now);
        self.cache.put(job, now);
        true
    }

    pub(super) fn is_tracked(&self, seq: u64) -> bool {
        self.leases.contains_key(&seq)
    }

    /// The end of a running lease, also while its settlement is being written.
    pub(super) fn leased_until(&self, seq: u64) -> Option<i64> {
        self.leases.get(&seq).filter(|l| l.phase != Phase::Ended).map(|l| l.until)
    }

    /// When a delivery waits, if that is not what the disk says.
    pub(super) fn ended_at(&self, seq: u64) -> Option<i64> {
        self.leases.get(&seq).filter(|l| l.phase == Phase::Ended).map(|l| l.until)
    }

    /// Takes waiting work out of the queue; false if somebody holds it.
    pub(super) fn withdraw(&mut self, lane: u32, due: i64, seq: u64) -> bool {
        let returned_at = match self.leases.entry(seq) {
            Entry::Occupied(lease) if lease.get().phase == Phase::Ended => {
                Some(lease.remove().until)
            }
            Entry::Occupied(_) => return false,
            Entry::Vacant(_) => None,
        };
        self.lanes.withdraw(lane, (due, seq), returned_at);
        self.cache.take(seq);
        true
    }

    fn print_of(&self, tenant: &TenantId, hash: AddressHash) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        tenant.hash(&mut hasher);
        hash.hash(&mut hasher);
        hasher.finish()
    }

    fn is_flagged(&self, lane: u32, hash: AddressHash) -> bool {
        if self.gone.is_empty() && self.struck.is_empty() {
            return false;
        }
        let Some(key) = self.lane_key(lane) else { return false };
        let print = self.print_of(&key.tenant, hash);
        self.gone.contains(&print) || self.struck.contains(&print)
    }

    /// Whether an address may be blamed for something.
    pub(super) fn is_struck(&self, tenant: &TenantId, hash: AddressHash) -> bool {
        self.any_struck() && self.struck.contains(&self.print_of(tenant, hash))
    }

    pub(super) fn any_struck(&self) -> bool {
        !self.struck.is_empty()
    }

    pub(super) fn mark_struck(&mut self, tenant: &TenantId, hash: AddressHash) {
        self.struck.insert(self.print_of(tenant, hash));
    }

    pub(super) fn clear_struck(&mut self, tenant: &TenantId, hash: AddressHash) {
        self.struck.remove(&self.print_of(tenant, hash));
    }

    pub(super) fn mark_gone(&mut self, tenant: &TenantId, hash: AddressHash) {
        self.gone.insert(self.print_of(tenant, hash));
    }

    pub(super) fn any_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    pub(super) fn clear_gone(&mut self, tenant: &TenantId, hash: AddressHash) {
        self.gone.remove(&self.print_of(tenant, hash));
    }
}

pub(super) fn end_of(now: Timestamp, duration: Duration) -> i64 {
    (now + duration).0
}
