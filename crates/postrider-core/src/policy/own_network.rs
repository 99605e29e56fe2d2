//! Whether our own network is down: too many origins at once give no sign of life. Reads no clock.
//!
//! A refused connection, a bad certificate or a name that does not exist is a sign of life: it came over the network.

use std::time::Duration;

use crate::model::time::Timestamp;

/// Origins share so many slots, so that memory is bounded.
const SLOTS: u64 = 256;
/// So many origins must have been tried, and half of them must be silent.
const ORIGINS_MIN: usize = 10;
/// How long a sign counts.
const VALID_FOR: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Default)]
pub struct OwnNetwork(Vec<NetworkSign>);

/// The latest that is known of an origin.
#[derive(Debug, Clone, Copy)]
struct NetworkSign {
    slot: u64,
    is_silent: bool,
    at: Timestamp,
}

impl OwnNetwork {
    /// The origin answered in some way. `origin` is a number that stands for it.
    pub fn heard(&mut self, origin: u64, now: Timestamp) {
        self.note(origin, false, now);
    }

    /// A connection to the origin could not be opened, and nothing came back. True if our network is down.
    pub fn silent(&mut self, origin: u64, now: Timestamp) -> bool {
        self.note(origin, true, now);
        self.is_down(now)
    }

    pub fn is_down(&self, now: Timestamp) -> bool {
        let recent = || self.0.iter().filter(|sign| now.since(sign.at) < VALID_FOR);
        let silent = recent().filter(|sign| sign.is_silent).count();
        let tried = recent().count();
        tried >= ORIGINS_MIN && silent * 2 >= tried
    }

    fn note(&mut self, origin: u64, is_silent: bool, now: Timestamp) {
        let sign = NetworkSign { slot: origin % SLOTS, is_silent, at: now };
        match self.0.binary_search_by_key(&sign.slot, |sign| sign.slot) {
            Ok(nth) => self.0[nth] = sign,
            Err(nth) => self.0.insert(nth, sign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn at(ms: u64) -> Timestamp {
        NOW + Duration::from_millis(ms)
    }

    #[test]
    fn ten_silent_origins_mean_that_our_network_is_down() {
        let mut network = OwnNetwork::default();
        let down: Vec<_> = (0..10).map(|origin| network.silent(origin, at(origin * 100))).collect();
        assert_eq!(down.iter().position(|down| *down), Some(9));
    }

    #[test]
    fn one_silent_origin_says_nothing_however_often_it_is_tried() {
        let mut network = OwnNetwork::default();
        assert!(!(0..1_000).any(|_| network.silent(7, NOW)));
    }

    #[test]
    fn it_works_while_more_than_half_of_the_origins_answer() {
        let mut network = OwnNetwork::default();
        (0..11).for_each(|origin| network.heard(origin, NOW));
        assert!(!(100..110).any(|origin| network.silent(origin, NOW)));
        assert!(network.silent(110, NOW), "11 of 22");
    }

    #[test]
    fn what_is_longer_ago_does_not_count() {
        let mut network = OwnNetwork::default();
        (0..9).for_each(|origin| _ = network.silent(origin, NOW));
        assert!(!network.silent(9, at(10_000)));
    }

    #[test]
    fn it_works_again_when_origins_answer_again() {
        let mut network = OwnNetwork::default();
        (0..10).for_each(|origin| _ = network.silent(origin, NOW));
        assert!(network.is_down(NOW));
        (0..6).for_each(|origin| network.heard(origin, at(100)));
        assert!(!network.is_down(at(100)));
    }
}
