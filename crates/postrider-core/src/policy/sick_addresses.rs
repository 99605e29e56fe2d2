//! Addresses of one tenant at one origin that fail while others there work, that ask to be left alone, or
//! that take long. A sick address is called rarely and by one call at a time, so that it costs the others
//! nothing. Reads no clock, draws no number.

use std::collections::HashMap;
use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::address_room::AddressShare;

/// Failures in a row after which an address is sick.
const FAILURES_MIN: u32 = 3;
/// How long a sick address is left alone, at first and at the most.
const REST_MIN: Duration = Duration::from_secs(5);
const REST_MAX: Duration = Duration::from_secs(300);
/// So often in a row an address asks for less as a rule ...
const ASKED_MIN: u32 = 2;
/// ... and so often where others ask, too, because calls are too fast for the provider.
const ASKED_MIN_PACED: u32 = 5;
/// Long calls after which an address is slow.
const LONG_MIN: u32 = 2;
/// How long something is remembered about an address that is not heard of.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Where there is no room, what can be forgotten is looked for so often.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct SickAddresses {
    share: AddressShare,
    swept: Timestamp,
    known: HashMap<u64, AddressHealth>,
    /// Calls under way by address, as far as they were told.
    under_way: HashMap<u64, u32>,
}

/// What is known about one address.
#[derive(Debug, Clone, Copy, Default)]
struct AddressHealth {
    failures: u32,
    /// When the first of these ended.
    failing_since: Timestamp,
    /// When the last failure ended that counted, or a success.
    ended: Timestamp,
    /// When something was last heard of it.
    heard: Timestamp,
    /// Its rest, if it is sick, and when that is over.
    rest: Option<Duration>,
    until: Timestamp,
    long: u32,
    /// How long its last long call took; zero if none ended.
    took_ms: u32,
    /// How often in a row it asked to be left alone.
    asked: u32,
}

/// Whether a call to an address may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressTurn {
    Go,
    /// Not before then.
    Wait {
        until: Timestamp,
    },
}

/// An address that is left alone, as people are shown it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressCondition {
    /// In a row.
    pub failures: u32,
    pub is_sick: bool,
    pub is_slow: bool,
    pub until: Timestamp,
    /// Since when it fails.
    pub failing_since: Timestamp,
    /// How long its last long call took; zero if none ended.
    pub took_ms: u32,
}

impl SickAddresses {
    pub fn sharing(share: AddressShare) -> Self {
        let (known, under_way) = (HashMap::new(), HashMap::new());
        Self { share, swept: Timestamp::default(), known, under_way }
    }

    /// Whether a call to the address may be made, or when. `target` is a number that stands for the
    /// address.
    pub fn turn(&self, target: u64, now: Timestamp) -> AddressTurn {
        let Some(health) = self.known.get(&target) else { return AddressTurn::Go };
        if now < health.until {
            return AddressTurn::Wait { until: health.until };
        }
        if health.rest.is_none() {
            return AddressTurn::Go;
        }
        if self.under_way.contains_key(&target) {
            return AddressTurn::Wait { until: now + REST_MIN };
        }
        AddressTurn::Go
    }

    /// A call begins.
    pub fn begin(&mut self, target: u64) {
        *self.under_way.entry(target).or_default() += 1;
    }

    /// A call ended, whatever it said.
    pub fn end(&mut self, target: u64) {
        if let Some(calls) = self.under_way.get_mut(&target) {
            *calls -= 1;
            if *calls == 0 {
                self.under_way.remove(&target);
            }
        }
    }

    pub fn is_sick(&self, target: u64) -> bool {
        self.known.get(&target).is_some_and(|health| health.rest.is_some())
    }

    /// Since when it fails, if it does.
    pub fn failing_since(&self, target: u64) -> Option<Timestamp> {
        let health = self.known.get(&target).filter(|health| health.failures > 0)?;
        Some(health.failing_since)
    }

    /// Whether its calls take long as a rule.
    pub fn is_slow(&self, target: u64) -> bool {
        self.known.get(&target).is_some_and(|health| health.long >= LONG_MIN)
    }

    pub fn condition(&self, target: u64) -> Option<AddressCondition> {
        let known = self.known.get(&target)?;
        let AddressHealth { failures, failing_since, until, took_ms, .. } = *known;
        let (is_sick, is_slow) = (known.rest.is_some(), known.long >= LONG_MIN);
        Some(AddressCondition { failures, is_sick, is_slow, until, failing_since, took_ms })
    }

    /// A call failed. `others_work` says that it is the address, not the origin. `random` is a random
    /// number in `0.0..1.0`. True if the address is sick now.
    pub fn failed(
        &mut self,
        target: u64,
        began: Timestamp,
        others_work: bool,
        now: Timestamp,
        random: f64,
    ) -> bool {
        let Some(health) = self.health(target, now) else { return false };
        if began >= health.ended {
            if health.failures == 0 {
                health.failing_since = now;
            }
            health.failures = health.failures.saturating_add(1);
            health.ended = now;
            let longer = health.rest.map(|rest| (rest * 2).min(REST_MAX));
            let falls_sick = health.failures >= FAILURES_MIN && others_work;
            if let Some(rest) = longer.or(falls_sick.then_some(REST_MIN)) {
                health.rest = Some(rest);
                health.until = now + rest.mul_f64(0.75 + 0.5 * random);
            }
        }
        health.rest.is_some()
    }

    /// A call succeeded.
    pub fn succeeded(&mut self, target: u64, now: Timestamp) {
        let Some(health) = self.known.get_mut(&target) else { return };
        health.failures = 0;
        health.asked = 0;
        health.ended = now;
        health.until = Timestamp::default();
        health.rest = None;
        if health.long == 0 {
            self.known.remove(&target);
            self.share.give_back(1);
        }
    }

    /// The address asked to be left alone until then.
    pub fn pause(&mut self, target: u64, until: Timestamp, now: Timestamp) {
        if let Some(health) = self.health(target, now) {
            health.until = health.until.max(until);
        }
    }

    /// The address asked for less. True if it did so before, without a success in between; more often
    /// where the provider `is_paced`.
    pub fn asked(&mut self, target: u64, is_paced: bool, now: Timestamp) -> bool {
        let Some(health) = self.health(target, now) else { return false };
        health.asked = health.asked.saturating_add(1);
        health.asked >= if is_paced { ASKED_MIN_PACED } else { ASKED_MIN }
    }

    /// A call ended that was long, or was not.
    pub fn took(&mut self, target: u64, long: bool, now: Timestamp) {
        if !long && !self.known.contains_key(&target) {
            return;
        }
        let Some(health) = self.health(target, now) else { return };
        health.long =
            if long { (health.long + 1).min(LONG_MIN) } else { health.long.saturating_sub(1) };
    }

    /// Notes how long a long call took, for people.
    pub fn note_long(&mut self, target: u64, took_ms: u32) {
        if let Some(health) = self.known.get_mut(&target) {
            health.took_ms = took_ms;
        }
    }

    /// Whether nothing is remembered that is worth its memory.
    pub fn is_forgettable(&self, now: Timestamp) -> bool {
        self.known.values().all(|health| health.is_forgettable(now))
    }

    /// The entry of an address, unless there are too many.
    fn health(&mut self, target: u64, now: Timestamp) -> Option<&mut AddressHealth> {
        if !self.known.contains_key(&target) && !self.make_room(now) {
            return None;
        }
        let health = self.known.entry(target).or_default();
        health.heard = now;
        Some(health)
    }

    fn make_room(&mut self, now: Timestamp) -> bool {
        if self.share.take() {
            return true;
        }
        if now.since(self.swept) < SWEEP_EVERY {
            return false;
        }
        self.swept = now;
        let before = self.known.len();
        self.known.retain(|_, health| !health.is_forgettable(now));
        self.share.give_back(before - self.known.len());
        self.share.take()
    }
}

impl Drop for SickAddresses {
    fn drop(&mut self) {
        self.share.give_back(self.known.len());
    }
}

impl AddressHealth {
    fn is_forgettable(&self, now: Timestamp) -> bool {
        now >= self.until && now.since(self.heard) > REMEMBERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn at(s: u64) -> Timestamp {
        NOW + Duration::from_secs(s)
    }

    fn fail(addresses: &mut SickAddresses, s: u64) -> bool {
        addresses.failed(7, at(s), true, at(s), 0.5)
    }

    #[test]
    fn an_address_asks_as_a_rule_after_more_refusals_where_others_are_refused_too() {
        for (is_paced, until_it_does) in [(false, 2), (true, 5)] {
            let mut addresses = SickAddresses::default();
            let refused = (1..10).find(|_| addresses.asked(7, is_paced, NOW));
            assert_eq!(refused, Some(until_it_does));
        }
    }

    #[test]
    fn three_failures_in_a_row_make_an_address_sick_while_others_work() {
        let mut addresses = SickAddresses::default();
        assert_eq!([1, 2, 3].map(|s| fail(&mut addresses, s)), [false, false, true]);
        assert_eq!(addresses.turn(7, at(3)), AddressTurn::Wait { until: at(8) });
        assert_eq!(addresses.turn(8, at(3)), AddressTurn::Go, "others go on");
    }

    #[test]
    fn failures_at_the_same_time_are_one() {
        let mut addresses = SickAddresses::default();
        (0..100).for_each(|_| _ = addresses.failed(7, at(1), true, at(2), 0.5));
        assert!(!addresses.is_sick(7));
    }

    #[test]
    fn where_the_others_fail_too_it_is_not_the_address() {
        let mut addresses = SickAddresses::default();
        (1..100).for_each(|s| _ = addresses.failed(7, at(s), false, at(s), 0.5));
        assert!(!addresses.is_sick(7));
    }

    #[test]
    fn a_sick_address_has_one_call_at_a_time_and_rests_longer_each_time() {
        let mut addresses = SickAddresses::default();
        (1..=3).for_each(|s| _ = fail(&mut addresses, s));
        assert_eq!(addresses.turn(7, at(8)), AddressTurn::Go);
        addresses.begin(7);
        assert_ne!(addresses.turn(7, at(8)), AddressTurn::Go);
        fail(&mut addresses, 9);
        addresses.end(7);
        assert_eq!(addresses.turn(7, at(10)), AddressTurn::Wait { until: at(19) });
        (0..20).for_each(|n| _ = fail(&mut addresses, 100 + n));
        assert_eq!(addresses.turn(7, at(119)), AddressTurn::Wait { until: at(419) });
    }

    #[test]
    fn a_success_heals_it() {
        let mut addresses = SickAddresses::default();
        (1..=3).for_each(|s| _ = fail(&mut addresses, s));
        addresses.succeeded(7, at(10));
        assert!(!addresses.is_sick(7));
        assert_eq!(addresses.turn(7, at(10)), AddressTurn::Go);
    }

    #[test]
    fn memory_is_bounded_and_what_is_sick_stays_known() {
        let mut addresses = SickAddresses::default();
        (1..=3).for_each(|s| _ = fail(&mut addresses, s));
        (100..100_000).for_each(|target| _ = addresses.failed(target, at(4), true, at(4), 0.5));
        assert_eq!(addresses.known.len(), 16_384);
        assert!(addresses.is_sick(7));
    }

    #[test]
    fn a_sick_address_that_nobody_writes_to_any_more_is_forgotten() {
        let mut addresses = SickAddresses::default();
        (1..=3).for_each(|s| _ = fail(&mut addresses, s));
        assert!(!addresses.is_forgettable(at(600)));
        assert!(addresses.is_forgettable(at(604)));
    }
}
