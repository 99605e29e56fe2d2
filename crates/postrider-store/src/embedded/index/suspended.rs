//! Suspended lanes, each with the end of its suspension. A lane costs memory here, but no time before
//! its end. Knows no deliveries.

use std::collections::{BTreeSet, HashMap};

#[derive(Default)]
pub(crate) struct SuspendedLanes {
    until: HashMap<u32, i64>,
    ends: BTreeSet<(i64, u32)>,
}

impl SuspendedLanes {
    pub(crate) fn contains(&self, lane: u32) -> bool {
        !self.until.is_empty() && self.until.contains_key(&lane)
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
