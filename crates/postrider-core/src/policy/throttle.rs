//! Pauses that providers ask for (`Retry-After`), for an address, a credential or the whole host. Several
//! addresses that ask at the same time make it a pause of the host. Reads no clock.

use std::time::Duration;

use crate::model::outcome::Scope;
use crate::model::time::Timestamp;
use crate::policy::classify::RetryAfterMax;
use crate::policy::signal::Signal;
use crate::policy::window::SlidingWindow;

/// Within this time, pauses of single addresses add up.
pub const WIDEN_WITHIN: Duration = Duration::from_secs(10);
/// So many different addresses make it a pause of their host.
pub const WIDEN_AT: usize = 3;

/// And only if they are at least this share of the calls made meanwhile.
const WIDEN_SHARE: f64 = 0.5;
/// With fewer calls, only if all of them were answered so.
const CALLS_SURE: u32 = 10;
/// That their host wants a pause is a guess: the first is this long, each after it twice as long, up to what
/// they asked for. So many successes in a row say that it was wrong.
const GUESSED_MIN: Duration = Duration::from_secs(1);
const WELL_IN_A_ROW: u32 = 3;

/// Until when one scope is left alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pause(Option<Timestamp>);

impl Pause {
    /// Pauses until then, or longer if that was asked for before.
    pub fn extend(&mut self, until: Timestamp) {
        self.0 = self.0.max(Some(until));
    }

    pub fn until(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.filter(|until| *until > now)
    }
}

/// The addresses of one host that asked to be left alone lately.
#[derive(Debug, Clone)]
pub struct ThrottleSpread {
    recent: [Option<(Timestamp, u64, Duration)>; WIDEN_AT],
    /// All calls, and those that were answered so.
    calls: SlidingWindow,
    /// The longest pause of the host that is guessed next.
    guessed: Duration,
    well_in_a_row: u32,
}

impl Default for ThrottleSpread {
    fn default() -> Self {
        let calls = SlidingWindow::new(WIDEN_WITHIN);
        Self { recent: [None; WIDEN_AT], calls, guessed: GUESSED_MIN, well_in_a_row: 0 }
    }
}

impl ThrottleSpread {
    /// Counts the end of any call: a few pauses among many calls are about single addresses.
    pub fn count(&mut self, signal: Signal, now: Timestamp) {
        self.calls.count(signal == Signal::Busy, now);
        match signal {
            Signal::Well => self.well_in_a_row += 1,
            Signal::Busy => self.well_in_a_row = 0,
            _ => {}
        }
        if self.well_in_a_row >= WELL_IN_A_ROW {
            self.guessed = GUESSED_MIN;
        }
    }

    /// Counts calls that went well before anything was noted.
    pub fn count_well(&mut self, calls: usize, at: Timestamp) {
        self.calls.count_many(calls, false, at);
    }

    /// Notes the pause that one address asked for (`target` is a number that stands for it). If enough
    /// addresses did, returns the pause of the host: the shortest of theirs, or less at first.
    pub fn note(&mut self, target: u64, after: Duration, now: Timestamp) -> Option<Duration> {
        let is_recent = |at: Timestamp| now.since(at) < WIDEN_WITHIN;
        for slot in &mut self.recent {
            if slot.is_some_and(|(at, of, _)| of == target || !is_recent(at)) {
                *slot = None;
            }
        }
        self.recent.sort_unstable_by_key(|slot| std::cmp::Reverse(slot.map(|(at, ..)| at)));
        self.recent.rotate_right(1);
        self.recent[0] = Some((now, target, after));
        let waits = self.recent.iter().flatten().map(|(.., after)| *after);
        let tally = self.calls.tally(now);
        let many = f64::from(tally.failed) >= WIDEN_SHARE * f64::from(tally.calls)
            && (tally.calls >= CALLS_SURE || tally.failed == tally.calls);
        if waits.clone().count() < WIDEN_AT || !many {
            return None;
        }
        let shortest = waits.min().map(|shortest| shortest.min(self.guessed));
        self.guessed = self.guessed.saturating_mul(2);
        self.recent = [None; WIDEN_AT];
        shortest
    }
}

/// The scope and length of a pause, given how many addresses asked for one.
pub fn reach(
    scope: Scope,
    after: Duration,
    target: u64,
    spread: &mut ThrottleSpread,
    at_most: RetryAfterMax,
    now: Timestamp,
) -> (Scope, Duration) {
    match scope {
        Scope::Target => match spread.note(target, after, now) {
            Some(shortest) => (Scope::Host, shortest.min(at_most.provider)),
            None => (Scope::Target, after),
        },
        wider => (wider, after.min(at_most.of(wider))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn note(spread: &mut ThrottleSpread, target: u64, after_s: u64, at_s: u64) -> Option<u64> {
        let at = NOW + Duration::from_secs(at_s);
        spread.count(Signal::Busy, at);
        spread.note(target, Duration::from_secs(after_s), at).map(|d| d.as_secs())
    }

    #[test]
    fn one_address_that_repeats_itself_speaks_for_itself() {
        let mut spread = ThrottleSpread::default();
        for second in 0..9 {
            assert_eq!(note(&mut spread, 7, 60, second), None);
        }
    }

    #[test]
    fn several_addresses_within_ten_seconds_speak_for_the_host() {
        let mut spread = ThrottleSpread::default();
        assert_eq!(note(&mut spread, 1, 60, 0), None);
        assert_eq!(note(&mut spread, 2, 30, 4), None);
        assert_eq!(note(&mut spread, 3, 90, 9), Some(1), "a guess, short at first");
        assert_eq!(note(&mut spread, 4, 90, 9), None, "counted anew afterwards");
    }

    #[test]
    fn among_a_few_calls_only_all_of_them_speak_for_the_host() {
        let mut spread = ThrottleSpread::default();
        spread.count(Signal::Well, NOW);
        assert_eq!([1, 2, 3, 4].map(|target| note(&mut spread, target, 60, 0)), [None; 4]);
    }

    #[test]
    fn a_guess_that_nothing_contradicts_grows_to_what_was_asked_for() {
        let mut spread = ThrottleSpread::default();
        let mut guesses =
            |at_s| (0..3).find_map(|target| note(&mut spread, target, 30, at_s)).unwrap_or(0);
        assert_eq!([10, 20, 30, 40, 50, 60, 70].map(&mut guesses), [1, 2, 4, 8, 16, 30, 30]);
        (0..3).for_each(|_| spread.count(Signal::Well, NOW + Duration::from_secs(71)));
        let mut guesses =
            |at_s| (0..3).find_map(|target| note(&mut spread, target, 30, at_s)).unwrap_or(0);
        assert_eq!(guesses(82), 1, "three successes say that it was wrong");
    }

    #[test]
    fn a_few_addresses_among_many_that_are_fine_speak_for_themselves() {
        let mut spread = ThrottleSpread::default();
        for target in 0..100 {
            (0..9).for_each(|_| spread.count(Signal::Well, NOW));
            assert_eq!(note(&mut spread, target, 60, 0), None);
        }
    }

    #[test]
    fn addresses_over_a_longer_time_do_not_add_up() {
        let mut spread = ThrottleSpread::default();
        for target in 0..20 {
            assert_eq!(note(&mut spread, target, 60, target * 6), None);
        }
    }

    #[test]
    fn a_host_is_never_left_alone_for_longer_than_its_ceiling() {
        let mut spread = ThrottleSpread::default();
        let hour = Duration::from_secs(3600);
        let (scope, after) =
            reach(Scope::Host, hour, 1, &mut spread, RetryAfterMax::default(), NOW);
        assert_eq!((scope, after), (Scope::Host, Duration::from_secs(900)));
        let own = RetryAfterMax { provider: Duration::from_secs(7), ..RetryAfterMax::default() };
        let (_, after) = reach(Scope::Credential, hour, 1, &mut spread, own, NOW);
        assert_eq!(after, Duration::from_secs(7), "an operator may set the ceiling");
    }

    #[test]
    fn a_shorter_wish_does_not_shorten_a_longer_one() {
        let mut pause = Pause::default();
        pause.extend(NOW + Duration::from_secs(60));
        pause.extend(NOW + Duration::from_secs(5));
        assert_eq!(pause.until(NOW), Some(NOW + Duration::from_secs(60)));
        assert_eq!(pause.until(NOW + Duration::from_secs(60)), None);
    }
}
