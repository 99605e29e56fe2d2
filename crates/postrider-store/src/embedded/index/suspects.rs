//! Deliveries that may be the cause of crashes, because they were in flight at two of them in a row. They are
//! leased one at a time. So a third crash tells which one it is, and an attempt that ends clears the others.

use std::collections::{BTreeMap, BTreeSet};

use postrider_core::policy::decide::SUSPECT_CRASHES;

use super::lanes::DueKey;
use super::{LeasePhase, MemoryIndex, TrackedLease};

/// How long a suspect waits at least for another one.
const WAIT_MS_MIN: i64 = 1;

#[derive(Default)]
pub(super) struct CrashSuspects {
    /// The suspect that was leased last.
    current: Option<u64>,
    /// Suspects that are due and wait for the end of the current one.
    waiting: BTreeSet<u64>,
}

impl MemoryIndex {
    /// Lets a due delivery pass, unless it is a suspect and another one is in flight. Then it waits at most until
    /// the returned time.
    pub(super) fn admit_suspect(&mut self, seq: u64, now: i64) -> Result<(), i64> {
        if self.mark(seq).crashes < SUSPECT_CRASHES {
            return Ok(());
        }
        let other = self.suspects.current.filter(|other| *other != seq);
        let lease = other.and_then(|other| self.leases.get(&other));
        let is_in_flight =
            |lease: &&TrackedLease| matches!(lease.phase, LeasePhase::Held | LeasePhase::Settling);
        if let Some(lease) = lease.filter(is_in_flight) {
            return Err(lease.until.max(now.saturating_add(WAIT_MS_MIN)));
        }
        self.suspects.current = Some(seq);
        self.suspects.waiting.remove(&seq);
        Ok(())
    }

    /// A suspect that was taken from its lane waits, as after a lease that ended.
    pub(super) fn hold_back(&mut self, lane: u32, key: DueKey, until: i64) {
        let (due, seq) = key;
        let (token, due, delivery) = match self.leases.remove(&seq) {
            Some(ended) => (ended.token, ended.due, ended.delivery),
            None => (0, due, self.cache.take(seq)),
        };
        let (phase, held_back) = (LeasePhase::Ended, true);
        let waiting = TrackedLease { token, until, lane, due, delivery, phase, held_back };
        self.leases.insert(seq, waiting);
        self.lanes.lease_ended(lane, (until, seq));
        self.suspects.waiting.insert(seq);
    }

    /// If it was the suspect in flight, the next one is due. A lane that is suspended has no turn; if all are, the
    /// first suspect of each is due, and the lane that goes on first has the turn.
    pub(super) fn end_suspect(&mut self, seq: u64, now: i64) {
        if self.suspects.current != Some(seq) {
            return;
        }
        self.suspects.current = None;
        let leases = &self.leases;
        self.suspects.waiting.retain(|seq| leases.get(seq).is_some_and(|lease| lease.held_back));
        let mut first = BTreeMap::new();
        for seq in &self.suspects.waiting {
            if let Some(lease) = self.leases.get(seq) {
                first.entry(lease.lane).or_insert(*seq);
            }
        }
        let is_free = |lane: u32| !self.lanes.suspended.is_suspended(lane, now);
        let free = first.iter().filter(|(lane, _)| is_free(**lane)).map(|(_, seq)| *seq).min();
        self.has_new_work |= free.is_some();
        let next = free.map_or_else(|| first.into_values().collect(), |next| vec![next]);
        next.into_iter().for_each(|next| self.end_wait(next, now));
    }

    fn end_wait(&mut self, seq: u64, now: i64) {
        self.suspects.waiting.remove(&seq);
        let Some(lease) = self.leases.get_mut(&seq) else { return };
        let (lane, until) = (lease.lane, lease.until);
        lease.until = now;
        self.lanes.recall(lane, (until, seq));
        self.lanes.lease_ended(lane, (now, seq));
    }
}
