//! Which lane has work when. Of each lane only the next few thousand entries are in memory; what
//! lies beyond its horizon is on disk and read when it is needed. Reads no clock and no disk.

use std::collections::{BTreeSet, HashMap};

use super::aside::Aside;

/// Due time in milliseconds and sequence of a delivery: the order of a lane.
pub(super) type Key = (i64, u64);

/// The limits of what is kept in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Entries of one lane.
    pub(super) lane: usize,
    /// Entries of one lane once `total` is reached.
    pub(super) lane_when_full: usize,
    /// Entries of all lanes.
    pub(super) total: usize,
}

#[derive(Default)]
struct Lane {
    window: BTreeSet<Key>,
    /// Whose lease ended unsettled, by the end of the lease. Their place on disk is another one, so
    /// they never leave memory.
    returned: BTreeSet<Key>,
    /// Everything on disk from here on is not in the window; nothing is if absent.
    horizon: Option<Key>,
    waiting: u64,
    in_flight: u64,
    /// Where the lane stands in the order of lanes.
    listed: Option<i64>,
    refilling: bool,
}

pub(super) struct Lanes {
    limits: Limits,
    active: HashMap<u32, Lane>,
    by_due: BTreeSet<(i64, u32)>,
    aside: Aside,
    held: usize,
}

/// What a lane has to give.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) keys: Vec<Key>,
    /// There may be more, but it has to be read first.
    pub(super) dry: bool,
    /// It is time to read ahead.
    pub(super) low: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Depth {
    pub(super) lane: u32,
    pub(super) waiting: u64,
    pub(super) in_flight: u64,
    pub(super) next_due: Option<i64>,
}

impl Lane {
    fn next(&self) -> Option<i64> {
        let first = |set: &BTreeSet<Key>| set.first().map(|key| key.0);
        let window = first(&self.window).or(self.horizon.map(|key| key.0));
        [window, first(&self.returned)].into_iter().flatten().min()
    }

    fn dry(&self, now: i64) -> bool {
        self.window.is_empty() && self.horizon.is_some_and(|key| key.0 <= now)
    }
}

impl Lanes {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            active: HashMap::new(),
            by_due: BTreeSet::new(),
            aside: Aside::default(),
            held: 0,
        }
    }

    /// A lane as found on disk when the store is opened.
    pub(super) fn found(&mut self, lane: u32, first: Key, waiting: u64) {
        let entry = self.active.entry(lane).or_default();
        entry.horizon = Some(first);
        entry.waiting = waiting;
        self.relist(lane);
    }

    /// New work.
    pub(super) fn arrive(&mut self, lane: u32, key: Key) {
        self.active.entry(lane).or_default().waiting += 1;
        self.place(lane, key);
        self.relist(lane);
    }

    /// Takes what is due, in order.
    pub(super) fn take(&mut self, lane: u32, now: i64, max: usize) -> Taken {
        let mut taken = Taken::default();
        let limit = self.lane_limit();
        let Some(entry) = self.active.get_mut(&lane) else { return taken };
        while taken.keys.len() < max {
            if entry.dry(now) {
                taken.dry = true;
                break;
            }
            let window = entry.window.first().copied().filter(|key| key.0 <= now);
            let returned = entry.returned.first().copied().filter(|key| key.0 <= now);
            let key = match (window, returned) {
                (Some(w), Some(r)) if r < w => entry.returned.pop_first(),
                (None, Some(_)) => entry.returned.pop_first(),
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
        taken.low = entry.horizon.is_some() && !entry.refilling && entry.window.len() < limit / 4;
        entry.refilling |= taken.low;
        self.relist(lane);
        taken
    }

    /// What was in flight is to be done again, at its place on disk.
    pub(super) fn give_back(&mut self, lane: u32, key: Key) {
        self.landed(lane);
        self.arrive(lane, key);
    }

    /// What was in flight is to be done again: its lease ended.
    pub(super) fn lease_ended(&mut self, lane: u32, key: Key) {
        self.landed(lane);
        let entry = self.active.entry(lane).or_default();
        entry.waiting += 1;
        entry.returned.insert(key);
        self.relist(lane);
    }

    /// The late answer of an ended lease: in flight once more.
    pub(super) fn recall(&mut self, lane: u32, key: Key) {
        let Some(entry) = self.active.get_mut(&lane) else { return };
        if entry.returned.remove(&key) {
            entry.waiting = entry.waiting.saturating_sub(1);
            entry.in_flight += 1;
        }
        self.relist(lane);
    }

    /// What was in flight is in flight no more.
    pub(super) fn landed(&mut self, lane: u32) {
        if let Some(entry) = self.active.get_mut(&lane) {
            entry.in_flight = entry.in_flight.saturating_sub(1);
        }
        self.relist(lane);
    }

    /// What was waiting is not to be done any more. `returned_at` if its lease had ended.
    pub(super) fn withdraw(&mut self, lane: u32, key: Key, returned_at: Option<i64>) {
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

    /// What was waiting is in flight, out of its turn. `returned_at` if its lease had ended.
    pub(super) fn pick(&mut self, lane: u32, key: Key, returned_at: Option<i64>) {
        self.active.entry(lane).or_default().in_flight += 1;
        self.withdraw(lane, key, returned_at);
    }

    /// Where a refill of the lane starts and how many entries it takes.
    pub(super) fn refill_from(&self, lane: u32) -> Option<(Key, usize)> {
        let entry = self.active.get(&lane)?;
        let room = self.lane_limit().saturating_sub(entry.window.len());
        Some((entry.horizon?, room.max(self.limits.lane_when_full)))
    }

    /// Adds what was read from `from` on; `horizon` is where the read stopped short. False if the
    /// lane changed meanwhile, so that it has to be read again.
    pub(super) fn refill(
        &mut self,
        lane: u32,
        from: Key,
        keys: impl Iterator<Item = Key>,
        horizon: Option<Key>,
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
        self.relist(lane);
        true
    }

    pub(super) fn refill_failed(&mut self, lane: u32) {
        if let Some(entry) = self.active.get_mut(&lane) {
            entry.refilling = false;
        }
    }

    /// Lanes with something due, longest due first.
    pub(super) fn ready(&self, now: i64, limit: usize) -> Vec<(i64, u32)> {
        self.by_due.iter().take_while(|(due, _)| *due <= now).take(limit).copied().collect()
    }

    pub(super) fn is_dry(&self, lane: u32, now: i64) -> bool {
        self.active.get(&lane).is_some_and(|entry| entry.dry(now))
    }

    /// When the first lane that was not yet due by `shown` becomes due.
    pub(super) fn next_after(&self, shown: i64) -> Option<i64> {
        self.by_due.range((shown.saturating_add(1), 0)..).next().map(|(due, _)| *due)
    }

    pub(super) fn is_aside(&self, lane: u32) -> bool {
        self.aside.holds(lane)
    }

    pub(super) fn suspend(&mut self, lane: u32, until: i64) {
        self.aside.put(lane, until);
        self.relist(lane);
    }

    /// Lists it again; true if it has something due.
    pub(super) fn resume(&mut self, lane: u32, now: i64) -> bool {
        self.aside.take(lane) && self.list_again(lane, now)
    }

    pub(super) fn all_aside(&self) -> Vec<u32> {
        self.aside.all()
    }

    /// Lists those whose time is over; true if one of them has something due.
    pub(super) fn end_aside(&mut self, now: i64) -> bool {
        let mut due = false;
        while let Some(lane) = self.aside.pop_ended(now) {
            due |= self.list_again(lane, now);
        }
        due
    }

    pub(super) fn next_aside_end(&self) -> Option<i64> {
        self.aside.next_end()
    }

    fn list_again(&mut self, lane: u32, now: i64) -> bool {
        self.relist(lane);
        self.active.get(&lane).and_then(Lane::next).is_some_and(|due| due <= now)
    }

    pub(super) fn depths(&self) -> impl Iterator<Item = Depth> {
        self.active.iter().map(|(&lane, entry)| Depth {
            lane,
            waiting: entry.waiting,
            in_flight: entry.in_flight,
            next_due: entry.next(),
        })
    }

    fn lane_limit(&self) -> usize {
        if self.held < self.limits.total { self.limits.lane } else { self.limits.lane_when_full }
    }

    /// Into the window, if that is where it belongs and there is room.
    fn place(&mut self, lane: u32, key: Key) {
        let limit = self.lane_limit();
        let entry = self.active.entry(lane).or_default();
        if entry.horizon.is_some_and(|horizon| key >= horizon) {
            return;
        }
        self.held += usize::from(entry.window.insert(key));
        if entry.window.len() > limit {
            entry.horizon = entry.window.pop_last();
            self.held -= 1;
        }
    }

    fn relist(&mut self, lane: u32) {
        let Some(entry) = self.active.get_mut(&lane) else { return };
        if entry.waiting == 0 {
            // What the horizon stood for is done or cancelled.
            entry.horizon = None;
        }
        let next = entry.next();
        let listed = next.filter(|_| !self.aside.holds(lane));
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
