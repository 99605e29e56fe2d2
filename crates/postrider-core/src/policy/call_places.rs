//! The calls under way to one origin. A call that takes long moves to a place of its own kind, so that long
//! calls leave the places of brisk ones free. Counts what it is told; reads no clock.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::message::Priority;
use crate::model::time::Timestamp;
use crate::policy::fairness::places;

/// Long calls of one origin: at least so many, and as many as brisk ones. An origin that may have fewer
/// calls than this at all has no places beside them.
const LONG_MIN: usize = 32;

/// How many long calls an origin may have beside `limit` brisk ones, if it may have `ceiling` of these.
pub fn long_places(limit: usize, ceiling: usize) -> usize {
    if ceiling < LONG_MIN { 0 } else { limit.max(LONG_MIN) }
}

#[derive(Debug, Clone, Default)]
pub struct CallPlaces {
    /// Brisk calls in the order in which they began; those that ended early are marked.
    begun: VecDeque<BegunCall>,
    /// The number of the first of them.
    first: u64,
    brisk: usize,
    /// Those of them that are not urgent.
    others: usize,
    long: usize,
}

#[derive(Debug, Clone, Copy)]
struct BegunCall {
    at: Timestamp,
    urgent: bool,
    ended: bool,
}

/// The place of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallPlace {
    /// Brisk when it began; its number.
    Begun(u64),
    /// Long from the start.
    Long,
}

impl CallPlaces {
    pub fn in_flight(&self) -> usize {
        self.brisk + self.long
    }

    pub fn brisk(&self) -> usize {
        self.brisk
    }

    pub fn long(&self) -> usize {
        self.long
    }

    /// How many more brisk calls of this priority there is room for.
    pub fn free(&self, limit: usize, priority: Priority) -> usize {
        places(limit.saturating_sub(self.brisk), limit, self.others, priority)
    }

    /// How many more long calls there is room for.
    pub fn free_long(&self, long_places: usize) -> usize {
        long_places.saturating_sub(self.long)
    }

    pub fn begin(&mut self, priority: Priority, now: Timestamp) -> CallPlace {
        let urgent = priority == Priority::High;
        self.brisk += 1;
        self.others += usize::from(!urgent);
        self.begun.push_back(BegunCall { at: now, urgent, ended: false });
        CallPlace::Begun(self.first + self.begun.len() as u64 - 1)
    }

    pub fn begin_long(&mut self) -> CallPlace {
        self.long += 1;
        CallPlace::Long
    }

    pub fn end(&mut self, place: CallPlace) {
        let nth = match place {
            CallPlace::Begun(number) => number.checked_sub(self.first),
            CallPlace::Long => None,
        };
        let begun = nth.and_then(|nth| self.begun.get_mut(usize::try_from(nth).ok()?));
        let Some(begun) = begun else {
            self.long = self.long.saturating_sub(1);
            return;
        };
        begun.ended = true;
        self.brisk -= 1;
        self.others -= usize::from(!begun.urgent);
        while self.begun.front().is_some_and(|begun| begun.ended) {
            self.pop();
        }
    }

    /// Moves calls to long places that are under way for so long, as far as there is room.
    pub fn advance(&mut self, long_after: Duration, long_places: usize, now: Timestamp) {
        while let Some(begun) = self.begun.front().copied() {
            if !begun.ended {
                if now.since(begun.at) < long_after || self.free_long(long_places) == 0 {
                    return;
                }
                self.brisk -= 1;
                self.others -= usize::from(!begun.urgent);
                self.long += 1;
            }
            self.pop();
        }
    }

    /// When the next brisk call becomes a long one, if it lasts.
    pub fn next_long(&self, long_after: Duration, long_places: usize) -> Option<Timestamp> {
        let first = self.begun.front().filter(|_| self.free_long(long_places) > 0)?;
        Some(first.at + long_after)
    }

    fn pop(&mut self) {
        self.begun.pop_front();
        self.first += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const LONG_AFTER: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Timestamp {
        NOW + Duration::from_millis(ms)
    }

    #[test]
    fn a_call_that_lasts_leaves_its_brisk_place() {
        let mut places = CallPlaces::default();
        let slow = places.begin(Priority::Normal, NOW);
        let quick = places.begin(Priority::Normal, at(900));
        places.advance(LONG_AFTER, LONG_MIN, at(1_000));
        assert_eq!((places.brisk(), places.long()), (1, 1));
        assert_eq!(places.next_long(LONG_AFTER, LONG_MIN), Some(at(1_900)));
        places.end(slow);
        places.end(quick);
        assert_eq!(places.in_flight(), 0);
    }

    #[test]
    fn long_places_are_bounded_and_the_rest_stays_brisk() {
        let mut places = CallPlaces::default();
        let begun: Vec<_> = (0..100).map(|_| places.begin(Priority::Normal, NOW)).collect();
        places.advance(LONG_AFTER, LONG_MIN, at(5_000));
        assert_eq!((places.brisk(), places.long()), (100 - LONG_MIN, LONG_MIN));
        begun.into_iter().for_each(|place| places.end(place));
        assert_eq!(places.in_flight(), 0);
    }

    #[test]
    fn an_origin_that_may_have_few_calls_has_no_long_ones_beside_them() {
        assert_eq!((long_places(5, 5), long_places(8, 64), long_places(50, 64)), (0, LONG_MIN, 50));
    }

    #[test]
    fn calls_end_in_any_order() {
        let mut places = CallPlaces::default();
        let mut begun: Vec<_> = (0..50).map(|n| places.begin(Priority::Normal, at(n))).collect();
        places.advance(Duration::from_millis(20), LONG_MIN, at(40));
        begun.push(places.begin_long());
        (0..begun.len()).for_each(|n| places.end(begun[(n * 7) % begun.len()]));
        assert_eq!((places.brisk(), places.long(), places.begun.len()), (0, 0, 0));
    }

    #[test]
    fn some_places_are_kept_for_urgent_calls() {
        let mut places = CallPlaces::default();
        (0..18).for_each(|_| _ = places.begin(Priority::Normal, NOW));
        assert_eq!(places.free(20, Priority::Normal), 0);
        assert_eq!(places.free(20, Priority::High), 2);
    }
}
