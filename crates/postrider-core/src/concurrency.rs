//! How many calls a provider takes at once, found by trying: doubling at first, then one more per
//! round trip while it goes well, less when it does not. Reads no clock and makes no call.

use std::time::Duration;

use crate::signal::Signal;
use crate::time::Timestamp;

/// Where the search starts.
const START: f64 = 16.0;
/// A few signs of too much among many calls are noise; from this (smoothed) share on they are not.
const TOO_MUCH: f64 = 0.1;
/// What is left when the provider says that it is too much.
const CUT: f64 = 0.7;
/// What is left when it merely gets slow.
const EASE: f64 = 0.9;
/// Slow is a multiple of the best that was seen lately ...
const SLOW_FACTOR: f64 = 3.0;
/// ... and by at least so much: small differences are noise of our own.
const SLOW_MS: f64 = 250.0;
/// How long the best latency is remembered.
const BEST_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Concurrency {
    limit: f64,
    ceiling: f64,
    /// Until the first sign of too much, every success adds one.
    searching: bool,
    /// Smoothed.
    latency_ms: f64,
    /// The share of calls that were too much, smoothed.
    too_much: f64,
    best_ms: f64,
    best_at: Timestamp,
    cut_at: Option<Timestamp>,
}

impl Concurrency {
    pub fn new(ceiling: usize) -> Self {
        let ceiling = ceiling.max(1) as f64;
        Self {
            limit: START.min(ceiling),
            ceiling,
            searching: true,
            latency_ms: 0.0,
            too_much: 0.0,
            best_ms: f64::MAX,
            best_at: Timestamp::default(),
            cut_at: None,
        }
    }

    /// Another ceiling from now on; what was found below it stays.
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
        let sign = f64::from(u8::from(signal.is_too_much()));
        self.too_much += (sign - self.too_much) * 0.05;
        if sign > 0.0 && self.too_much > TOO_MUCH {
            self.shrink(CUT, now);
        }
        if signal != Signal::Well {
            return;
        }
        self.measure(f64::from(latency_ms), now);
        let slow = (self.best_ms * SLOW_FACTOR).max(self.best_ms + SLOW_MS);
        if self.latency_ms > slow {
            self.shrink(EASE, now);
        } else if in_flight as f64 * 2.0 >= self.limit {
            // Where less is asked for than allowed, nothing is learned about more.
            let more = if self.searching { 1.0 } else { 1.0 / self.limit };
            self.limit = (self.limit + more).min(self.ceiling);
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

    /// At most once per round trip: all calls under way tell of the same excess.
    fn shrink(&mut self, to: f64, now: Timestamp) {
        let round_trip = Duration::from_millis(self.latency_ms.max(1.0) as u64);
        if self.cut_at.is_some_and(|at| now.since(at) < round_trip) {
            return;
        }
        self.cut_at = Some(now);
        self.searching = false;
        self.too_much = 0.0;
        self.limit = (self.limit * to).max(1.0);
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
    fn it_doubles_per_round_trip_until_the_ceiling() {
        let mut concurrency = Concurrency::new(100);
        let mut limits = Vec::new();
        for trip in 0..4 {
            limits.push(concurrency.limit());
            let in_flight = concurrency.limit();
            (0..in_flight).for_each(|_| {
                concurrency.report(Signal::Well, 20, in_flight, at(trip * 20));
            });
        }
        assert_eq!(limits, [16, 32, 64, 100]);
    }

    #[test]
    fn too_much_cuts_it_once_per_round_trip_and_never_below_one() {
        let mut concurrency = Concurrency::new(100);
        concurrency.report(Signal::Well, 50, 1, NOW);
        (0..16).for_each(|_| concurrency.report(Signal::Busy, 50, 16, at(1)));
        assert_eq!(concurrency.limit(), 11, "16 × 0.7, once");
        for trip in 0..100 {
            concurrency.report(Signal::Overloaded, 50, 1, at(1_000 * (trip + 1)));
        }
        assert_eq!(concurrency.limit(), 1);
    }

    #[test]
    fn after_the_first_cut_it_grows_by_one_per_round_trip() {
        let mut concurrency = Concurrency::new(100);
        (0..3).for_each(|_| concurrency.report(Signal::Busy, 50, 16, NOW));
        let before = concurrency.limit();
        (0..before + 1).for_each(|_| concurrency.report(Signal::Well, 50, before, at(100)));
        assert_eq!(concurrency.limit(), before + 1);
    }

    #[test]
    fn a_few_bad_answers_among_many_good_ones_cost_nothing() {
        let mut concurrency = Concurrency::new(100);
        for call in 0..10_000_u64 {
            let signal = if call % 50 == 0 { Signal::Overloaded } else { Signal::Well };
            concurrency.report(signal, 50, 100, at(call));
        }
        assert_eq!(concurrency.limit(), 100);
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

    /// A provider with `slots` serves that many at once and answers 503 to the rest.
    fn settles_at(slots: usize) -> f64 {
        let mut concurrency = Concurrency::new(100);
        let (mut sum, trips) = (0, 2_000);
        for trip in 0..trips {
            let in_flight = concurrency.limit();
            for call in 0..in_flight {
                let signal = if call < slots { Signal::Well } else { Signal::Overloaded };
                concurrency.report(signal, 50, in_flight, at(trip * 51));
            }
            sum += in_flight.min(slots);
        }
        sum as f64 / trips as f64
    }

    #[test]
    fn it_uses_most_of_what_a_provider_can_take() {
        for slots in [5, 20, 60] {
            let used = settles_at(slots);
            assert!(used >= 0.8 * slots as f64, "{used} of {slots}");
        }
    }

    #[test]
    fn a_provider_that_gets_slow_gets_less() {
        let mut concurrency = Concurrency::new(100);
        (0..200).for_each(|_| concurrency.report(Signal::Well, 20, 100, NOW));
        assert_eq!(concurrency.limit(), 100);
        for step in 0..100 {
            concurrency.report(Signal::Well, 2_000, 100, at(step * 2_000));
        }
        assert!(concurrency.limit() < 60, "{}", concurrency.limit());
    }
}
