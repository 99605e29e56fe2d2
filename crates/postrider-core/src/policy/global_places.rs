//! How many calls a holder may have under way of those that our process may have in all. Bites only as room
//! gets scarce, and always leaves some for others. Pure.

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

/// More ordinary calls that a tenant may make, to all origins together.
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

/// More such calls that a tenant may make, to all origins together.
pub fn apart_room(places: PlaceUse) -> usize {
    places.room(1)
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
        assert_eq!(grows_to(places, apart_room), 128);
    }

    #[test]
    fn one_place_in_all_is_used() {
        let places = PlaceUse { all: 1, used: 0, held: 0 };
        assert_eq!((ordinary_room(places, Priority::Normal), apart_room(places)), (1, 1));
    }

    #[test]
    fn where_little_is_free_those_who_hold_much_get_nothing() {
        let places = PlaceUse { all: 256, used: 200, held: 100 };
        assert_eq!(apart_room(places), 0);
        assert!(apart_room(PlaceUse { held: 0, ..places }) > 0);
    }
}
