//! Which lane has work, and when. Only the next few thousand entries of a lane are in memory. Entries
//! beyond its horizon are on disk and are read when needed. Reads no clock and no disk.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use postrider_core::ports::store::LaneDepth;
use postrider_core::{LaneId, LaneKey, Timestamp};

/// Due time in milliseconds and sequence of a delivery: the order within a lane.
pub(crate) type DueKey = (i64, u64);

/// How many entries are kept in memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WindowLimits {
    /// Entries of one lane.
    pub(crate) lane: usize,
    /// Entries of one lane once `total` is reached.
    pub(crate) lane_when_full: usize,
    /// Entries of all lanes.
    pub(crate) total: usize,
}

#[derive(Default)]
struct LaneWindow {
    window: BTreeSet<DueKey>,
    /// Deliveries whose lease ended unsettled, by the end of the lease. The disk has another due time, so
    /// they never leave memory.
    returned: BTreeSet<DueKey>,
    /// The window holds nothing from here on; the disk does. Absent if the window holds everything.
    horizon: Option<DueKey>,
    waiting: u64,
    in_flight: u64,
    /// The lane's due time in `by_due`.
    listed: Option<i64>,
    refilling: bool,
    /// Nobody knows how many deliveries are beyond the horizon.
    uncounted: bool,
    /// Nothing is read from disk before this time, because that failed.
    unreadable_until: Option<i64>,
}

#[derive(Default)]
pub(crate) struct LaneWindows {
    limits: WindowLimits,
    active: HashMap<u32, LaneWindow>,
    by_due: BTreeSet<(i64, u32)>,
    pub(crate) suspended: SuspendedLanes,
    /// Entries in all windows.
    held: usize,
}

/// The due entries of a lane.
#[derive(Debug, Default)]
pub(crate) struct DueKeys {
    pub(crate) keys: Vec<DueKey>,
    /// The lane has more that is due, but only on disk.
    pub(crate) needs_refill: bool,
    /// It is time to read ahead.
    pub(crate) runs_low: bool,
    /// The next one, which may not be taken yet.
    pub(crate) unread: Option<u64>,
}

impl LaneWindow {
    fn next(&self) -> Option<i64> {
        let first = |set: &BTreeSet<DueKey>| set.first().map(|key| key.0);
        let on_disk = self.horizon.map(|key| key.0).max(self.unreadable_until);
        let window = first(&self.window).or(on_disk.filter(|_| self.horizon.is_some()));
        [window, first(&self.returned)].into_iter().flatten().min()
    }

    fn depth(&self, lane: u32, key: &Arc<LaneKey>) -> LaneDepth {
        LaneDepth {
            id: LaneId(lane),
            key: key.clone(),
            pending: self.waiting,
            in_flight: self.in_flight,
            next_due: self.next().map(Timestamp),
        }
    }

    fn needs_refill(&self, now: i64) -> bool {
        self.window.is_empty()
            && self.horizon.is_some_and(|key| key.0 <= now)
            && self.is_readable(now)
    }

    fn is_readable(&self, now: i64) -> bool {
        self.unreadable_until.is_none_or(|until| until <= now)
    }
}

impl LaneWindows {
    pub(crate) fn new(limits: WindowLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A lane as found on disk when the store is opened.
    /// `waiting` is absent if it could not be counted.
    pub(crate) fn load(&mut self, lane: u32, first: DueKey, waiting: Option<u64>) {
        let entry = self.active.entry(lane).or_default();
        entry.horizon = Some(first);
        entry.waiting = waiting.unwrap_or(0);
        entry.uncounted = waiting.is_none();
        self.relist(lane);
    }

    /// True if it is among the next ones of its lane.
    pub(crate) fn add(&mut self, lane: u32, key: DueKey) -> bool {
        let entry = self.active.entry(lane).or_default();
        entry.waiting += 1;
        if entry.horizon.is_some_and(|horizon| key >= horizon) {
            // Nothing else changes for a lane that has much already.
            return false;
        }
        let is_next = self.insert(lane, key);
        self.relist(lane);
        is_next
    }

    /// Whether a delivery waits among the next ones of its lane.
    pub(crate) fn is_next(&self, lane: u32, key: DueKey) -> bool {
        self.active.get(&lane).is_some_and(|entry| entry.window.contains(&key))
    }

    /// Takes what is due, in order, up to the first one that may not be taken: it is in flight then.
    pub(crate) fn take_due(
        &mut self,
        lane: u32,
        now: i64,
        max: usize,
        may_take: impl Fn(u64) -> bool,
    ) -> DueKeys {
        let mut taken = DueKeys::default();
        let limit = self.lane_limit();
        let Some(entry) = self.active.get_mut(&lane) else { return taken };
        while taken.keys.len() < max {
            if entry.needs_refill(now) {
                taken.needs_refill = true;
                break;
            }
            let window = entry.window.first().copied().filter(|key| key.0 <= now);
            let returned = entry.returned.first().copied().filter(|key| key.0 <= now);
            let key = match (window, returned) {
                (Some(w), Some(r)) if r < w => entry.returned.pop_first(),
                (None, Some(_)) => entry.returned.pop_first(),
                (Some((_, seq)), _) if !may_take(seq) => {
                    taken.unread = Some(seq);
                    break;
                }
                (Some(_), _) => {
                    self.held -= 1;
                    entry.window.pop_first()
                }
                (None, None) => break,
            };
            taken.keys.extend(key);
        }
        entry.waiting = entry.waiting.saturating_sub(taken.keys.len() as u64);
        entry.in_flight += taken.keys.len() as u64;
        taken.runs_low = entry.horizon.is_some()
            && !entry.refilling
            && entry.window.len() < limit / 4
            && entry.is_readable(now);
        entry.refilling |= taken.runs_low;
        self.relist(lane);
        taken
    }

    /// A delivery in flight waits again, with the due time that the disk has.
    pub(crate) fn give_back(&mut self, lane: u32, key: DueKey) {
        self.add(lane, key);
        self.end_flight(lane);
    }

    /// A delivery in flight waits again, because its lease ended.
    pub(crate) fn lease_ended(&mut self, lane: u32, key: DueKey) {
        self.end_flight(lane);
        let entry = self.active.entry(lane).or_default();
        entry.waiting += 1;
        entry.returned.insert(key);
        self.relist(lane);
    }

    /// An ended lease is settled after all: its delivery is in flight once more.
    pub(crate) fn recall(&mut self, lane: u32, key: DueKey) {
        let Some(entry) = self.active.get_mut(&lane) else { return };
        if entry.returned.remove(&key) {
            entry.waiting = entry.waiting.saturating_sub(1);
            entry.in_flight += 1;
        }
        self.relist(lane);
    }

    /// A delivery is in flight no more.
    pub(crate) fn end_flight(&mut self, lane: u32) {
        let Some(entry) = self.active.get_mut(&lane) else { return };
        entry.in_flight = entry.in_flight.saturating_sub(1);
        if entry.in_flight == 0 {
            self.relist(lane);
        }
    }

    /// A waiting delivery is not to be sent any more. `returned_at` is the end of its ended lease.
    pub(crate) fn withdraw(&mut self, lane: u32, key: DueKey, returned_at: Option<i64>) {
        let Some(entry) = self.active.get_mut(&lane) else { return };
        match returned_at {
            Some(until) => {
                entry.returned.remove(&(until, key.1));
            }
            None => self.held -= usize::from(entry.window.remove(&key)),
        }
        entry.waiting = entry.waiting.saturating_sub(1);
        self.relist(lane);
    }

    /// A waiting delivery is in flight, out of turn. `returned_at` is the end of its ended lease.
    pub(crate) fn take_one(&mut self, lane: u32, key: DueKey, returned_at: Option<i64>) {
        self.active.entry(lane).or_default().in_flight += 1;
        self.withdraw(lane, key, returned_at);
    }

    /// Where a refill of the lane starts, and how many entries it reads.
    pub(crate) fn refill_from(&self, lane: u32) -> Option<(DueKey, usize)> {
        let entry = self.active.get(&lane)?;
        let room = self.lane_limit().saturating_sub(entry.window.len());
        Some((entry.horizon?, room.max(self.limits.lane_when_full)))
    }

    /// Adds the entries that were read from `from` on; `horizon` is where the read stopped. False if the
    /// lane changed meanwhile and has to be read again.
    pub(crate) fn refill(
        &mut self,
        lane: u32,
        from: DueKey,
        keys: impl Iterator<Item = DueKey>,
        horizon: Option<DueKey>,
    ) -> bool {
        let Some(entry) = self.active.get_mut(&lane) else { return true };
        if entry.horizon != Some(from) {
            return false;
        }
        for key in keys {
            self.held += usize::from(entry.window.insert(key));
        }
        entry.horizon = horizon;
        entry.refilling = false;
        entry.unreadable_until = None;
        self.relist(lane);
        true
    }

    pub(crate) fn refill_failed(&mut self, lane: u32) {
        if let Some(entry) = self.active.get_mut(&lane) {
            entry.refilling = false;
        }
    }

    /// What the lane has on disk cannot be read. What is in memory goes on.
    pub(crate) fn pause_refill(&mut self, lane: u32, until: i64) {
        if let Some(entry) = self.active.get_mut(&lane) {
            entry.refilling = false;
            entry.unreadable_until = Some(until);
        }
        self.relist(lane);
    }

    /// Lanes with something due, longest due first.
    pub(crate) fn ready(&self, now: i64, limit: usize) -> Vec<(i64, u32)> {
        self.by_due.iter().take_while(|(due, _)| *due <= now).take(limit).copied().collect()
    }

    pub(crate) fn needs_refill(&self, lane: u32, now: i64) -> bool {
        self.active.get(&lane).is_some_and(|entry| entry.needs_refill(now))
    }

    /// When the first lane that was not yet due at `listed_at` becomes due.
    pub(crate) fn next_after(&self, listed_at: i64) -> Option<i64> {
        self.by_due.range((listed_at.saturating_add(1), 0)..).next().map(|(due, _)| *due)
    }

    pub(crate) fn suspend(&mut self, lane: u32, until: i64) {
        self.suspended.insert(lane, until);
        self.relist(lane);
    }

    /// Lists it again; true if it has something due.
    pub(crate) fn resume(&mut self, lane: u32, now: i64) -> bool {
        self.suspended.remove(lane) && self.list_again(lane, now)
    }

    /// Lists the lanes whose suspension is over; true if one of them has something due.
    pub(crate) fn end_suspensions(&mut self, now: i64) -> bool {
        let mut due = false;
        while let Some(lane) = self.suspended.pop_ended(now) {
            due |= self.list_again(lane, now);
        }
        due
    }

    fn list_again(&mut self, lane: u32, now: i64) -> bool {
        self.relist(lane);
        self.active.get(&lane).and_then(LaneWindow::next).is_some_and(|due| due <= now)
    }

    /// Every lane with the depth of its window. `name` knows the key of a lane.
    pub(crate) fn depths<'a>(
        &'a self,
        name: impl Fn(u32) -> Option<&'a Arc<LaneKey>>,
    ) -> impl Iterator<Item = LaneDepth> {
        self.active.iter().filter_map(move |(&lane, entry)| Some(entry.depth(lane, name(lane)?)))
    }

    /// The depth of one lane. None if it has nothing.
    pub(crate) fn depth(&self, lane: u32, key: &Arc<LaneKey>) -> Option<LaneDepth> {
        self.active.get(&lane).map(|entry| entry.depth(lane, key))
    }

    fn lane_limit(&self) -> usize {
        if self.held < self.limits.total { self.limits.lane } else { self.limits.lane_when_full }
    }

    /// Into the window of a lane whose horizon is behind the entry, if there is room. True if it is there.
    fn insert(&mut self, lane: u32, key: DueKey) -> bool {
        let limit = self.lane_limit();
        let entry = self.active.entry(lane).or_default();
        self.held += usize::from(entry.window.insert(key));
        if entry.window.len() > limit {
            entry.horizon = entry.window.pop_last();
            self.held -= 1;
        }
        entry.horizon.is_none_or(|horizon| key < horizon)
    }

    fn relist(&mut self, lane: u32) {
        let Some(entry) = self.active.get_mut(&lane) else { return };
        if entry.waiting == 0 && !entry.uncounted {
            // Everything beyond the horizon was sent or cancelled.
            entry.horizon = None;
        }
        let next = entry.next();
        let listed = next.filter(|_| !self.suspended.contains(lane));
        if entry.listed != listed {
            if let Some(due) = entry.listed {
                self.by_due.remove(&(due, lane));
            }
            if let Some(due) = listed {
                self.by_due.insert((due, lane));
            }
            entry.listed = listed;
        }
        if next.is_none() && entry.in_flight == 0 {
            self.active.remove(&lane);
        }
    }
}

/// Suspended lanes, each with the end of its suspension. A lane costs memory here, but no time before its end.
#[derive(Default)]
pub(crate) struct SuspendedLanes {
    until: HashMap<u32, i64>,
    ends: BTreeSet<(i64, u32)>,
}

impl SuspendedLanes {
    pub(crate) fn contains(&self, lane: u32) -> bool {
        !self.until.is_empty() && self.until.contains_key(&lane)
    }

    pub(crate) fn is_suspended(&self, lane: u32, now: i64) -> bool {
        self.until.get(&lane).is_some_and(|until| *until > now)
    }

    pub(crate) fn insert(&mut self, lane: u32, until: i64) {
        if let Some(old) = self.until.insert(lane, until) {
            self.ends.remove(&(old, lane));
        }
        self.ends.insert((until, lane));
    }

    /// False if the lane was not suspended.
    pub(crate) fn remove(&mut self, lane: u32) -> bool {
        let Some(until) = self.until.remove(&lane) else { return false };
        self.ends.remove(&(until, lane))
    }

    /// Removes the next lane whose suspension is over.
    pub(crate) fn pop_ended(&mut self, now: i64) -> Option<u32> {
        let &(until, lane) = self.ends.first()?;
        (until <= now && self.remove(lane)).then_some(lane)
    }

    pub(crate) fn all(&self) -> Vec<u32> {
        self.until.keys().copied().collect()
    }

    pub(crate) fn next_end(&self) -> Option<i64> {
        self.ends.first().map(|(until, _)| *until)
    }
}
