//! Which calls of one lane may go now, and which wait because their address is sick, asked for a rest or is
//! slow. A slow address gets places for long calls only, and leaves most of them to others. Pure.

use std::collections::HashMap;
use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::sick_addresses::{AddressTurn, SickAddresses};
use crate::policy::sick_calls::SickCallRoom;

/// An address with so many calls under way that take long is slow.
const SLOW_FROM: usize = 2;
/// A slow address may have one call for so many free places for long calls.
pub const SLOW_SHARE: usize = 8;
/// A wait is stretched by up to this share.
const SPREAD: f64 = 0.25;
/// How long a call to a slow address waits at least while it has no place.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// Whether the address is slow, from what is known about it and its calls under way that take long.
pub fn is_slow(addresses: Option<&SickAddresses>, target: u64, overdue: usize) -> bool {
    overdue >= SLOW_FROM || addresses.is_some_and(|addresses| addresses.is_slow(target))
}

/// Places for calls that take long.
#[derive(Debug, Clone, Copy)]
pub struct SlowRoom {
    /// Of the origin, and of ours for the tenant.
    pub long: usize,
    pub apart: usize,
}

/// Asked for one call after another.
pub struct AddressTurns<'a> {
    addresses: Option<&'a SickAddresses>,
    room: Option<SlowRoom>,
    /// For calls to sick addresses.
    pub sick: SickCallRoom,
    now: Timestamp,
    /// Calls that may go, by address.
    taken: HashMap<u64, usize>,
}

impl<'a> AddressTurns<'a> {
    /// `room` is missing where an origin has no places beside the ordinary ones.
    pub fn new(
        addresses: Option<&'a SickAddresses>,
        room: Option<SlowRoom>,
        sick: SickCallRoom,
        now: Timestamp,
    ) -> Self {
        Self { addresses, room, sick, now, taken: HashMap::new() }
    }

    /// Until when the next call to the address has to wait, if it has to. `overdue` are its calls under way
    /// that take long, `random` is a random number in `0.0..1.0`.
    pub fn rest(&mut self, target: u64, overdue: usize, random: f64) -> Option<Timestamp> {
        let turn = self.addresses.map(|addresses| addresses.turn(target, self.now));
        if let Some(AddressTurn::Wait { until }) = turn {
            // Those that wait for the same moment do not all go in it.
            return Some(until + until.since(self.now).mul_f64(SPREAD * random));
        }
        let is_slow = is_slow(self.addresses, target, overdue);
        let taken = self.taken.entry(target).or_default();
        let is_sick = self.addresses.is_some_and(|addresses| addresses.is_sick(target));
        if is_sick && *taken + overdue > 0 {
            return Some(self.now + LONG_PAUSE);
        }
        let mut slow_room = self.room.as_mut().filter(|_| is_slow);
        if let Some(room) = &slow_room {
            let is_full = room.long == 0 || room.apart == 0;
            let is_much = SLOW_SHARE * (overdue + *taken) > room.long;
            if is_full || is_much {
                return Some(self.now + LONG_PAUSE.mul_f64(1.0 + random));
            }
        }
        if is_sick && let Err(until) = self.sick.take() {
            return Some(until);
        }
        *taken += 1;
        if let Some(room) = &mut slow_room {
            room.long -= 1;
            room.apart -= 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::sick_calls::SickCalls;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const ROOM: SlowRoom = SlowRoom { long: 128, apart: 64 };

    fn sick() -> SickCallRoom {
        SickCalls::default().room(1, NOW)
    }

    /// How many of 100 calls to an address with so many overdue ones may go.
    fn going(room: Option<SlowRoom>, overdue: usize) -> usize {
        let mut turns = AddressTurns::new(None, room, sick(), NOW);
        (0..100).filter(|_| turns.rest(7, overdue, 0.5).is_none()).count()
    }

    #[test]
    fn a_slow_address_leaves_most_places_to_others() {
        assert_eq!(going(Some(ROOM), 2), 13);
        assert_eq!(going(Some(ROOM), 1), 100, "one call that takes long is no rule");
    }

    #[test]
    fn where_an_origin_has_no_places_beside_the_ordinary_ones_nothing_is_slow() {
        assert_eq!(going(None, 9), 100);
    }

    #[test]
    fn a_sick_address_gets_one_call_at_a_time() {
        let mut addresses = SickAddresses::default();
        for s in 0..3 {
            let now = NOW + Duration::from_secs(s);
            addresses.failed(7, now, true, now, 0.5);
        }
        let later = NOW + Duration::from_secs(60);
        let mut turns = AddressTurns::new(Some(&addresses), Some(ROOM), sick(), later);
        assert_eq!(turns.rest(7, 0, 0.5), None);
        assert!(turns.rest(7, 0, 0.5).is_some());
        assert_eq!(turns.rest(8, 0, 0.5), None, "others go on");
        let mut turns = AddressTurns::new(Some(&addresses), Some(ROOM), sick(), later);
        assert!(turns.rest(7, 1, 0.5).is_some(), "one from before is under way");
    }

    #[test]
    fn all_calls_to_an_address_that_rests_wait_for_its_time_and_take_nothing() {
        let mut addresses = SickAddresses::default();
        for s in 0..3 {
            let now = NOW + Duration::from_secs(s);
            addresses.failed(7, now, true, now, 0.5);
            addresses.took(7, true, now);
        }
        let now = NOW + Duration::from_secs(2);
        let mut turns = AddressTurns::new(Some(&addresses), Some(ROOM), sick(), now);
        let AddressTurn::Wait { until } = addresses.turn(7, now) else { panic!("it rests") };
        let rests: Vec<_> = (0..64).filter_map(|_| turns.rest(7, 0, 0.0)).collect();
        assert_eq!(rests, [until; 64]);
        let room = turns.room.map(|room| (room.long, room.apart));
        assert_eq!(room, Some((ROOM.long, ROOM.apart)));
    }
}
