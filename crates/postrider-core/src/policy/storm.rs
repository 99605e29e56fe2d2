//! Detects a retry storm: far more retries than first attempts, and hardly any of them succeeds. More
//! retries then only make it worse, whatever the answers are. Counts what it is told; reads no clock.
//!
//! A burst of new messages is no storm, and neither are retries that succeed, however many.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::breaker::BreakerPolicy;
use crate::policy::signal::Signal;
use crate::policy::window::SlidingWindow;

#[derive(Debug, Clone)]
pub struct Storm {
    retries_min: u32,
    success: f64,
    /// "Failed" are those that must be tried yet again.
    retries: SlidingWindow,
    firsts: SlidingWindow,
}

impl Storm {
    pub fn new(policy: &BreakerPolicy) -> Self {
        let window = SlidingWindow::new(Duration::from_secs(policy.storm_window_s.into()));
        Self {
            retries_min: policy.storm_retries_min,
            success: policy.storm_success,
            retries: window.clone(),
            firsts: window,
        }
    }

    /// Applies other rules from now on; counts over a window of another length are forgotten.
    pub fn adopt(&mut self, policy: &BreakerPolicy) {
        let new = Self::new(policy);
        let kept = self.retries.is_as_long_as(&new.retries);
        let old = std::mem::replace(self, new);
        if kept {
            (self.retries, self.firsts) = (old.retries, old.firsts);
        }
    }

    /// Counts the end of a call; true if there is a storm now. A 429 is no failure of the provider, but a
    /// retry that gets one has not helped either.
    pub fn count(&mut self, signal: Signal, is_retry: bool, now: Timestamp) -> bool {
        let again = signal.is_failure() || signal == Signal::Busy;
        if !again && signal != Signal::Well {
            return false;
        }
        if !is_retry {
            self.firsts.count(again, now);
            return false;
        }
        self.retries.count(again, now);
        again && self.rages(now)
    }

    pub fn clear(&mut self) {
        self.retries.clear();
        self.firsts.clear();
    }

    fn rages(&mut self, now: Timestamp) -> bool {
        let retries = self.retries.tally(now);
        let good = f64::from(retries.calls - retries.failed);
        retries.calls >= self.retries_min.max(1)
            && retries.calls > self.firsts.tally(now).calls
            && good < self.success * f64::from(retries.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn storm() -> Storm {
        Storm::new(&BreakerPolicy::default())
    }

    fn many(storm: &mut Storm, calls: u64, signal: Signal, is_retry: bool) -> bool {
        let at = |n| NOW + Duration::from_millis(n * 100);
        (0..calls).any(|n| storm.count(signal, is_retry, at(n)))
    }

    #[test]
    fn retries_that_outnumber_what_is_new_and_do_not_succeed_are_a_storm() {
        let mut storm = storm();
        assert!(!many(&mut storm, 50, Signal::Well, false));
        assert!(!many(&mut storm, 99, Signal::Busy, true), "too few to judge by");
        assert!(storm.count(Signal::Busy, true, NOW + Duration::from_secs(10)));
    }

    #[test]
    fn a_burst_of_new_messages_is_none_however_it_ends() {
        let mut storm = storm();
        assert!(!many(&mut storm, 500, Signal::Busy, false));
        assert!(!many(&mut storm, 400, Signal::Failing, true), "fewer than what is new");
    }

    #[test]
    fn a_recovered_provider_may_drain_any_number_of_retries() {
        let mut storm = storm();
        assert!(!many(&mut storm, 90, Signal::Overloaded, true));
        assert!(!many(&mut storm, 500, Signal::Well, true));
        assert!(!storm.count(Signal::Failing, true, NOW + Duration::from_secs(50)), "one of many");
    }

    #[test]
    fn the_same_number_over_a_long_time_is_none() {
        let mut storm = storm();
        let second = |n| NOW + Duration::from_secs(n);
        assert!(!(0..1_000).any(|n| storm.count(Signal::Failing, true, second(n))));
    }
}
