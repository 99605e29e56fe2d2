//! Lanes that nobody wants to hear of for a while. Only their number costs memory; nothing here is
//! looked at before its time. Reads no clock and knows no work.

use std::collections::{BTreeSet, HashMap};

#[derive(Default)]
pub(super) struct Aside {
    until: HashMap<u32, i64>,
    ends: BTreeSet<(i64, u32)>,
}

impl Aside {
    pub(super) fn holds(&self, lane: u32) -> bool {
        !self.until.is_empty() && self.until.contains_key(&lane)
    }

    pub(super) fn put(&mut self, lane: u32, until: i64) {
        if let Some(old) = self.until.insert(lane, until) {
            self.ends.remove(&(old, lane));
        }
        self.ends.insert((until, lane));
    }

    /// False if it was not set aside.
    pub(super) fn take(&mut self, lane: u32) -> bool {
        let Some(until) = self.until.remove(&lane) else { return false };
        self.ends.remove(&(until, lane))
    }

    /// The next lane whose time is over.
    pub(super) fn pop_ended(&mut self, now: i64) -> Option<u32> {
        let &(until, lane) = self.ends.first()?;
        (until <= now && self.take(lane)).then_some(lane)
    }

    pub(super) fn all(&self) -> Vec<u32> {
        self.until.keys().copied().collect()
    }

    pub(super) fn next_end(&self) -> Option<i64> {
        self.ends.first().map(|(until, _)| *until)
    }
}
