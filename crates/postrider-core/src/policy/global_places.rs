//! How many calls a holder may have under way of those that our process may have in all. Bites only as room
//! gets scarce, and always leaves some for others. Pure.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::model::message::Priority;

/// The percentage of all places that is kept for urgent work.
const RESERVED_PERCENT: usize = 10;
/// A holder of ordinary calls may grow up to this multiple of what is free.
const ORDINARY_SHARE: usize = 8;

/// Places of one kind: all, those in use, and those that the holder uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceUse {
    pub all: usize,
    pub used: usize,
    pub held: usize,
}

impl PlaceUse {
    fn free(self) -> usize {
        self.all.saturating_sub(self.used)
    }

    /// How many more the holder may take if it may hold `share` times what is free then. One that holds
    /// nothing may always take one.
    fn room(self, share: usize) -> usize {
        let least = usize::from(self.held == 0).min(self.free());
        let room = (share * self.free()).saturating_sub(self.held) / (share + 1);
        room.max(least)
    }
}

/// More ordinary calls that a tenant may make to an origin, as far as our own places go.
pub fn ordinary_room(places: PlaceUse, priority: Priority) -> usize {
    let reserved = match priority {
        Priority::High => 0,
        _ => places.all * RESERVED_PERCENT / 100,
    };
    let all = places.all.saturating_sub(reserved);
    PlaceUse { all, ..places }.room(ORDINARY_SHARE)
}

/// Places for calls of which nobody knows how long they take: half of all.
pub fn apart_places(all: usize) -> usize {
    (all / 2).max(1)
}

/// The part of them that one origin may have: half of what one tenant may.
pub fn apart_of_origin(apart_places: usize) -> usize {
    apart_places.div_ceil(4)
}

/// Calls of these by origin (a number that stands for it). Calls that turn out to take long may be more than the part
/// of their origin; what it holds beyond that is no loss of the others.
#[derive(Debug, Default)]
pub struct ApartCalls {
    by_origin: HashMap<u64, usize>,
    /// The part of one origin that the sum was made with.
    part: usize,
    used: usize,
}

impl ApartCalls {
    pub fn is_empty(&self) -> bool {
        self.by_origin.is_empty()
    }

    /// Those to which calls are under way, in no order.
    pub fn origins(&self) -> impl Iterator<Item = u64> {
        self.by_origin.keys().copied()
    }

    pub fn at(&self, origin: u64) -> usize {
        self.by_origin.get(&origin).copied().unwrap_or(0)
    }

    /// How many of so many places are in use. Looks at every origin only if these are others than before.
    pub fn used(&mut self, apart_places: usize) -> usize {
        let part = apart_of_origin(apart_places);
        if part != self.part {
            self.part = part;
            self.used = self.by_origin.values().map(|held| (*held).min(part)).sum();
        }
        self.used
    }

    pub fn begin(&mut self, origin: u64) {
        let held = self.by_origin.entry(origin).or_default();
        self.used += usize::from(*held < self.part);
        *held += 1;
    }

    pub fn end(&mut self, origin: u64) {
        let Entry::Occupied(mut held) = self.by_origin.entry(origin) else { return };
        *held.get_mut() -= 1;
        self.used -= usize::from(*held.get() < self.part);
        if *held.get() == 0 {
            held.remove();
        }
    }
}

/// More such calls that a tenant may make, to all origins together. Those that are known to last long leave half of
/// the places to those that may not.
pub fn apart_room(places: PlaceUse, is_known: bool) -> usize {
    let all = if is_known { places.all.div_ceil(2) } else { places.all };
    PlaceUse { all, ..places }.room(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a holder ends up with that takes all it may.
    fn grows_to(mut places: PlaceUse, room: impl Fn(PlaceUse) -> usize) -> usize {
        loop {
            let more = room(places);
            if more == 0 {
                return places.held;
            }
            (places.used, places.held) = (places.used + more, places.held + more);
        }
    }

    #[test]
    fn a_single_holder_gets_nearly_all_ordinary_places() {
        let places = PlaceUse { all: 1_000, used: 0, held: 0 };
        let held = grows_to(places, |places| ordinary_room(places, Priority::High));
        assert!((880..900).contains(&held), "{held}");
    }

    #[test]
    fn a_tenth_is_kept_for_urgent_work() {
        let places = PlaceUse { all: 1_000, used: 900, held: 0 };
        assert_eq!(ordinary_room(places, Priority::Normal), 0);
        assert!(ordinary_room(places, Priority::High) > 50);
    }

    #[test]
    fn one_tenant_gets_half_of_the_places_apart_and_leaves_as_much() {
        let places = PlaceUse { all: 256, used: 0, held: 0 };
        assert_eq!(grows_to(places, |places| apart_room(places, false)), 128);
    }

    #[test]
    fn one_place_in_all_is_used() {
        let places = PlaceUse { all: 1, used: 0, held: 0 };
        let rooms = [false, true].map(|is_known| apart_room(places, is_known));
        assert_eq!((ordinary_room(places, Priority::Normal), rooms), (1, [1, 1]));
    }

    #[test]
    fn where_little_is_free_those_who_hold_much_get_nothing() {
        let places = PlaceUse { all: 256, used: 200, held: 100 };
        assert_eq!(apart_room(places, false), 0);
        assert!(apart_room(PlaceUse { held: 0, ..places }, false) > 0);
    }

    #[test]
    fn what_an_origin_holds_beyond_its_part_is_no_loss_of_the_others() {
        let mut calls = ApartCalls::default();
        (0..1_000).for_each(|_| calls.begin(1));
        (0..3).for_each(|_| calls.begin(2));
        let used = calls.used(256);
        assert_eq!(used, 67);
        assert!(apart_room(PlaceUse { all: 256, used, held: used }, false) > 0);
    }

    #[test]
    fn what_is_in_use_stays_right_while_calls_begin_and_end_and_the_places_change() {
        let mut calls = ApartCalls::default();
        let origin = |n: u64| n * n % 5;
        for n in 0..200 {
            calls.begin(origin(n));
            let places = if n < 100 { 256 } else { 64 };
            let part = apart_of_origin(places);
            let by_hand: usize = (0..5).map(|origin| calls.at(origin).min(part)).sum();
            assert_eq!(calls.used(places), by_hand);
            if n % 3 == 0 {
                calls.end(origin(n / 2));
            }
        }
        (0..5).for_each(|origin| (0..calls.at(origin)).for_each(|_| calls.end(origin)));
        assert_eq!((calls.used(64), calls.is_empty()), (0, true));
    }

    #[test]
    fn calls_that_are_known_to_last_long_leave_half_of_the_places_to_others() {
        let places = PlaceUse { all: 256, used: 128, held: 0 };
        assert_eq!(apart_room(places, true), 0);
        assert!(apart_room(places, false) > 0);
    }
}
