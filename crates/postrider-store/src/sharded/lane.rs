//! The deliveries of one lane that its holder has in memory: the first ones, by due time. The others are read when
//! they are needed. Pure.

use std::collections::BTreeSet;

use super::{LanePlace, ShardId, shard_of};

/// So many deliveries of a lane are kept in memory.
pub(super) const WINDOW: usize = 2_048;

#[derive(Debug, Default)]
pub(super) struct ShardLane {
    places: BTreeSet<LanePlace>,
    /// Deliveries whose lease ended: they are due at its end, whatever the engine says.
    returned: BTreeSet<LanePlace>,
    /// The engine has deliveries after this place that are not here; absent if it has none.
    known_to: Option<LanePlace>,
    /// `known_to` is the due time of a delivery, not only a lower bound.
    exact: bool,
    /// Places beyond `known_to` that came during a refill.
    missed: Option<Vec<LanePlace>>,
}

/// What `take_due` found.
#[derive(Debug, Default)]
pub(super) struct DueDeliveries {
    pub(super) places: Vec<LanePlace>,
    /// Where to read on.
    pub(super) refill_after: Option<LanePlace>,
}

impl ShardLane {
    /// Adds a delivery. False if it is left to the engine.
    pub(super) fn add(&mut self, place: LanePlace) -> bool {
        if self.known_to.is_some_and(|known| place > known) {
            if let Some(missed) = &mut self.missed {
                missed.push(place);
            }
            return false;
        }
        self.places.insert(place);
        if self.places.len() > 2 * WINDOW {
            self.shorten();
        }
        true
    }

    fn shorten(&mut self) {
        while self.places.len() > WINDOW {
            self.places.pop_last();
        }
        self.known_to = self.places.last().copied();
        self.exact = false;
    }

    /// A delivery whose lease ended.
    pub(super) fn add_returned(&mut self, place: LanePlace) {
        self.returned.insert(place);
    }

    pub(super) fn remove(&mut self, place: LanePlace) {
        self.places.remove(&place);
        self.returned.remove(&place);
    }

    pub(super) fn contains(&self, place: LanePlace) -> bool {
        self.places.contains(&place) || self.returned.contains(&place)
    }

    /// The engine has deliveries from this due time on.
    pub(super) fn reads_from(&mut self, due: i64) {
        let from = (due, 0);
        if self.known_to.is_none_or(|known| from <= known) {
            self.known_to = Some(from);
            self.exact = true;
        }
    }

    /// When its first delivery is due, or a time that is not later.
    pub(super) fn first(&self) -> Option<i64> {
        let firsts = [self.places.first(), self.returned.first(), self.known_to.as_ref()];
        firsts.into_iter().flatten().map(|(due, _)| *due).min()
    }

    /// Whether only the engine knows if something is due.
    pub(super) fn is_unsure(&self, now: i64) -> bool {
        let Some(known) = self.known_to.filter(|(due, _)| *due <= now && !self.exact) else {
            return false;
        };
        let is_known = |place: Option<&LanePlace>| place.is_some_and(|place| *place <= known);
        !is_known(self.places.first()) && self.returned.first().is_none_or(|(due, _)| *due > now)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first().is_none() && self.missed.is_none()
    }

    /// Whether something is known to be due.
    pub(super) fn has_due(&self, now: i64) -> bool {
        let firsts = [self.places.first(), self.returned.first()];
        firsts.into_iter().flatten().any(|(due, _)| *due <= now)
    }

    /// Takes what is due, in order.
    pub(super) fn take_due(&mut self, now: i64, max: usize) -> DueDeliveries {
        let mut found = DueDeliveries::default();
        while found.places.len() < max {
            let known = self.places.first().filter(|place| {
                place.0 <= now && self.known_to.is_none_or(|known| **place <= known)
            });
            let returned = self.returned.first().filter(|(due, _)| *due <= now);
            let next = match (known, returned) {
                (Some(a), Some(b)) => *a.min(b),
                (Some(a), None) | (None, Some(a)) => *a,
                (None, None) => break,
            };
            self.remove(next);
            found.places.push(next);
        }
        if found.places.len() < max {
            found.refill_after = self.known_to.filter(|(due, _)| *due <= now);
        }
        found
    }

    pub(super) fn refill_after(&self) -> Option<LanePlace> {
        self.known_to
    }

    /// A refill begins. False if one is under way.
    pub(super) fn begin_refill(&mut self) -> bool {
        if self.missed.is_some() {
            return false;
        }
        self.missed = Some(Vec::new());
        true
    }

    pub(super) fn refill_failed(&mut self) {
        self.missed = None;
    }

    /// Adds what the engine has after `known_to`, up to a place; to the end if that is absent.
    pub(super) fn refill(&mut self, places: &[LanePlace], upto: Option<LanePlace>) {
        self.known_to = upto;
        self.exact = false;
        self.places.extend(places);
        for place in self.missed.take().unwrap_or_default() {
            self.add(place);
        }
        if self.places.len() > 2 * WINDOW {
            self.shorten();
        }
    }

    /// Forgets the deliveries of shards that are not held any more.
    pub(super) fn retain(&mut self, is_held: impl Fn(ShardId) -> bool) {
        self.places.retain(|(_, id)| is_held(shard_of(*id)));
        self.returned.retain(|(_, id)| is_held(shard_of(*id)));
        self.exact = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_beyond_the_window_are_read_again_in_order() {
        let mut lane = ShardLane::default();
        let all: Vec<_> = (0..5_000).map(|n| (n, n as u128)).collect();
        for place in &all {
            lane.add(*place);
        }
        let mut served: Vec<LanePlace> = Vec::new();
        loop {
            let due = lane.take_due(10_000, 700);
            served.extend(&due.places);
            match due.refill_after {
                Some(after) => {
                    assert!(lane.begin_refill() && !lane.begin_refill());
                    let rest: Vec<_> =
                        all.iter().filter(|p| **p > after).take(900).copied().collect();
                    let upto = rest.last().copied().filter(|_| rest.len() == 900);
                    lane.refill(&rest, upto);
                }
                None if due.places.is_empty() => break,
                None => {}
            }
        }
        assert_eq!(served, all);
        assert!(lane.is_empty());
    }

    #[test]
    fn what_comes_during_a_refill_is_not_lost() {
        let mut lane = ShardLane::default();
        lane.reads_from(5);
        assert!(lane.begin_refill());
        assert!(!lane.add((9, 1)), "it is beyond what is known");
        lane.refill(&[(5, 7)], None);
        assert_eq!(lane.take_due(10, 10).places, [(5, 7), (9, 1)]);
    }

    #[test]
    fn a_lane_is_unsure_only_where_the_engine_may_have_more() {
        let mut lane = ShardLane::default();
        lane.reads_from(5);
        assert!(!lane.is_unsure(9), "the first due time was read");
        assert!(lane.begin_refill());
        lane.refill(&[(5, 7)], Some((5, 7)));
        assert!(!lane.is_unsure(9));
        assert_eq!(lane.take_due(9, 1).places, [(5, 7)]);
        assert!(lane.is_unsure(9) && lane.first() == Some(5));
    }
}
