//! Lanes that wait for a known time: not looked at before it, whatever is queued in them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use postrider_core::{LaneId, Timestamp};

/// Beyond this many, a waiting lane is simply asked again at each turn.
const RESTING_MAX: usize = 100_000;

#[derive(Default)]
pub(crate) struct Resting {
    until: HashMap<LaneId, Timestamp>,
    order: BTreeSet<(Timestamp, LaneId)>,
    acts: u64,
}

impl Resting {
    pub(crate) fn rest(&mut self, lane: LaneId, until: Timestamp) {
        if self.until.len() < RESTING_MAX && self.until.insert(lane, until).is_none() {
            self.order.insert((until, lane));
        }
    }

    pub(crate) fn holds(&self, lane: LaneId) -> bool {
        !self.until.is_empty() && self.until.contains_key(&lane)
    }

    pub(crate) fn len(&self) -> usize {
        self.until.len()
    }

    /// Wakes those whose time has come, or all if an operator acted since.
    pub(crate) fn wake(&mut self, now: Timestamp, acts: u64) {
        if self.acts != acts {
            self.acts = acts;
            self.until.clear();
            self.order.clear();
        }
        while let Some(&(until, lane)) = self.order.first() {
            if until > now {
                break;
            }
            self.order.pop_first();
            self.until.remove(&lane);
        }
    }

    /// How long until the first one wakes.
    pub(crate) fn next(&self, now: Timestamp) -> Option<Duration> {
        self.order.first().map(|(until, _)| until.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_rests_exactly_until_its_time_and_wakes_early_for_an_operator() {
        let mut resting = Resting::default();
        let (now, lane) = (Timestamp(1_000), LaneId(7));
        resting.rest(lane, Timestamp(1_500));
        assert_eq!(resting.next(now), Some(Duration::from_millis(500)));
        resting.wake(Timestamp(1_499), 0);
        assert!(resting.holds(lane));
        resting.wake(Timestamp(1_500), 0);
        assert!(!resting.holds(lane));
        resting.rest(lane, Timestamp(9_000));
        resting.wake(Timestamp(1_501), 1);
        assert_eq!((resting.holds(lane), resting.next(now)), (false, None));
    }
}
