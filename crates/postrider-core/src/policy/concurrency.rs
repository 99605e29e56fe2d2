//! How many calls a provider takes at once, found by trying: doubling at first, then one more now and
//! then while it goes well, less when it does not. Reads no clock and makes no call.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::signal::Signal;

/// Where the search starts.
const START: f64 = 16.0;
/// This many signs of too much in one round trip, and this share of all answers, are no noise.
const SIGNS_MIN: u32 = 2;
const SIGNS_SHARE: f64 = 0.05;
/// The limit keeps at least this share at a cut.
const CUT_MAX: f64 = 0.5;
/// The limit keeps this share when calls merely get slow.
const EASE: f64 = 0.9;
/// Slow is a multiple of the best that was seen lately ...
const SLOW_FACTOR: f64 = 3.0;
/// ... and by at least so much: small differences are noise of our own.
const SLOW_MS: f64 = 250.0;
/// How long the best latency is remembered.
const BEST_WITHIN: Duration = Duration::from_secs(60);
/// Where more was too much, more is tried again after so many round trips, and calls, went well; after
/// half as many each time that more was well.
const TRIPS_WELL: f64 = 16.0;
const CALLS_WELL: f64 = 64.0;
/// A round trip that nobody has seen yet, and the shortest that is believed.
const UNKNOWN: Duration = Duration::from_millis(100);
const SHORTEST: Duration = Duration::from_millis(5);

#[derive(Debug, Clone)]
pub struct Concurrency {
    limit: f64,
    ceiling: f64,
    /// Until the first sign of too much, it doubles per round trip.
    searching: bool,
    /// Smoothed.
    latency_ms: f64,
    best_ms: f64,
    best_at: Timestamp,
    round: Round,
    /// Where it was too much, and how many calls went well since.
    too_much_at: f64,
    well: f64,
    patience: f64,
}

/// What one round trip tells.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    began: Timestamp,
    /// Calls that went well took so long, together.
    busy_ms: f64,
    well: u32,
    signs: u32,
    /// The limit was made use of.
    full: bool,
    cut: bool,
}

impl Concurrency {
    pub fn new(ceiling: usize) -> Self {
        let ceiling = ceiling.max(1) as f64;
        Self {
            limit: START.min(ceiling),
            ceiling,
            searching: true,
            latency_ms: 0.0,
            best_ms: f64::MAX,
            best_at: Timestamp::default(),
            round: Round::default(),
            too_much_at: f64::MAX,
            well: 0.0,
            patience: 1.0,
        }
    }

    /// Sets another ceiling; a limit below it stays.
    pub fn adopt(&mut self, ceiling: usize) {
        self.ceiling = ceiling.max(1) as f64;
        self.limit = self.limit.min(self.ceiling);
    }

    /// Between one and the ceiling.
    pub fn limit(&self) -> usize {
        self.limit as usize
    }

    /// The end of a call that took so long while `in_flight` were under way, itself included.
    pub fn report(&mut self, signal: Signal, latency_ms: u32, in_flight: usize, now: Timestamp) {
        if self.round.began == Timestamp::default() {
            self.round.began = now;
        }
        self.round.full |= in_flight as f64 * 2.0 >= self.limit;
        if signal.is_too_much() {
            self.round.signs += 1;
            self.heed_signs(now);
        } else if signal == Signal::Well {
            self.round.well += 1;
            self.round.busy_ms += f64::from(latency_ms);
            self.measure(f64::from(latency_ms), now);
            let slow = (self.best_ms * SLOW_FACTOR).max(self.best_ms + SLOW_MS);
            if self.latency_ms > slow && !self.round.cut {
                self.cut(self.limit * EASE);
            }
        }
        if now.since(self.round.began) >= self.round_trip() {
            self.end_round(now);
        }
    }

    fn measure(&mut self, latency_ms: f64, now: Timestamp) {
        self.latency_ms = match self.latency_ms {
            0.0 => latency_ms,
            before => before + (latency_ms - before) * 0.1,
        };
        if latency_ms <= self.best_ms || now.since(self.best_at) > BEST_WITHIN {
            self.best_ms = latency_ms.max(1.0);
            self.best_at = now;
        }
    }

    fn round_trip(&self) -> Duration {
        match self.latency_ms {
            0.0 => UNKNOWN,
            ms => Duration::from_millis(ms.ceil() as u64).max(SHORTEST),
        }
    }

    /// Down to what went well meanwhile, if that is known; at most once per round trip, since all calls
    /// under way tell of the same excess.
    fn heed_signs(&mut self, now: Timestamp) {
        let Round { began, busy_ms, well, signs, cut, .. } = self.round;
        let noise = SIGNS_SHARE * self.limit.max(f64::from(well));
        if cut || signs < SIGNS_MIN || f64::from(signs) <= noise {
            return;
        }
        let passed_ms = now.since(began).as_millis() as f64;
        let seen = well > 0 && passed_ms >= self.latency_ms / 2.0;
        // By Little's law: how many of them were under way, on the average.
        let well_at_once = if seen { busy_ms / passed_ms.max(self.latency_ms) } else { 0.0 };
        let tried_more = self.limit > self.too_much_at - 1.0 && self.limit <= self.too_much_at;
        let to = if tried_more { self.limit - 1.0 } else { well_at_once.round() };
        self.cut(to.min(self.limit - 1.0));
    }

    fn cut(&mut self, to: f64) {
        self.too_much_at = self.limit;
        self.searching = false;
        self.well = 0.0;
        self.patience = 1.0;
        self.round.cut = true;
        self.limit = to.max(self.limit * CUT_MAX).floor().max(1.0);
    }

    fn end_round(&mut self, now: Timestamp) {
        let Round { signs, full, cut, well, .. } = self.round;
        let noise = SIGNS_SHARE * self.limit.max(f64::from(well));
        self.round = Round { began: now, ..Round::default() };
        // Where less is asked for than allowed, nothing is learned about more.
        if cut || f64::from(signs) > noise || !full {
            return;
        }
        self.well += f64::from(well);
        let long_enough = self.well >= CALLS_WELL.max(TRIPS_WELL * self.limit) * self.patience;
        if self.searching {
            self.limit = (self.limit * 2.0).min(self.ceiling);
        } else if self.limit + 1.0 < self.too_much_at || long_enough {
            if self.limit >= self.too_much_at {
                self.patience = (self.patience / 2.0).max(1.0 / TRIPS_WELL);
            }
            self.too_much_at = self.too_much_at.max(self.limit + 1.0);
            self.well = 0.0;
            self.limit = (self.limit + 1.0).min(self.ceiling);
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

    /// One round trip of as many calls as are allowed.
    fn trip(concurrency: &mut Concurrency, signal: Signal, began_ms: u64) {
        let in_flight = concurrency.limit();
        (0..in_flight).for_each(|_| concurrency.report(signal, 20, in_flight, at(began_ms + 20)));
    }

    #[test]
    fn it_doubles_per_round_trip_until_the_ceiling() {
        let mut concurrency = Concurrency::new(100);
        concurrency.report(Signal::Well, 20, 16, NOW);
        let mut limits = Vec::new();
        for n in 0..4 {
            limits.push(concurrency.limit());
            trip(&mut concurrency, Signal::Well, n * 20);
        }
        assert_eq!(limits, [16, 32, 64, 100]);
    }

    #[test]
    fn too_much_cuts_it_once_per_round_trip_and_never_below_one() {
        let mut concurrency = Concurrency::new(100);
        concurrency.report(Signal::Well, 50, 1, NOW);
        (0..16).for_each(|_| concurrency.report(Signal::Busy, 50, 16, at(1)));
        assert_eq!(concurrency.limit(), 8, "half of 16, once");
        for trip in 1..100 {
            (0..2)
                .for_each(|n| concurrency.report(Signal::Overloaded, 50, 1, at(1_000 * trip + n)));
        }
        assert_eq!(concurrency.limit(), 1);
    }

    #[test]
    fn after_a_cut_it_grows_by_one_per_round_trip_to_just_below_it_and_then_rarely() {
        let mut concurrency = Concurrency::new(100);
        concurrency.report(Signal::Well, 20, 16, NOW);
        (0..3).for_each(|_| concurrency.report(Signal::Busy, 20, 16, at(1)));
        let mut limits = vec![concurrency.limit()];
        for n in 1..30 {
            trip(&mut concurrency, Signal::Well, n * 20);
            limits.push(concurrency.limit());
        }
        assert_eq!(limits[..9], [8, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!((limits[20], limits[29]), (15, 16));
    }

    #[test]
    fn a_few_bad_answers_among_many_good_ones_cost_little() {
        let mut concurrency = Concurrency::new(100);
        for call in 0..100_000_u64 {
            let signal = if call % 50 == 0 { Signal::Overloaded } else { Signal::Well };
            concurrency.report(signal, 50, 100, at(call / 2));
        }
        assert!(concurrency.limit() >= 90, "{}", concurrency.limit());
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut concurrency = Concurrency::new(100);
        (0..1_000).for_each(|_| concurrency.report(Signal::Well, 50, 2, NOW));
        assert_eq!(concurrency.limit(), 16);
    }

    #[test]
    fn a_refusal_of_one_message_or_a_plain_error_is_no_sign_of_too_much() {
        let mut concurrency = Concurrency::new(100);
        for signal in [Signal::Failing, Signal::Credential, Signal::Nothing] {
            concurrency.report(signal, 50, 16, NOW);
        }
        assert_eq!(concurrency.limit(), 16);
    }

    #[test]
    fn a_provider_that_gets_slow_gets_less() {
        let mut concurrency = Concurrency::new(100);
        (0..200).for_each(|n| concurrency.report(Signal::Well, 20, 100, at(n)));
        assert_eq!(concurrency.limit(), 100);
        for step in 0..100 {
            concurrency.report(Signal::Well, 2_000, 100, at(1_000 + step * 2_000));
        }
        assert!(concurrency.limit() < 60, "{}", concurrency.limit());
    }
}
