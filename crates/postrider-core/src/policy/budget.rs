//! A retry budget: retries may take a set share of a lane's traffic and a floor beside it, so that
//! they never make an outage worse. A retry that succeeds gives its share back: a recovered lane whose
//! backlog is all retries drains at full speed. Reads no clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;
use crate::policy::window::{STEPS, SlidingWindow};

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetPolicy {
    /// Retries per first attempt.
    pub share: f64,
    /// Retries per second that are always allowed.
    pub floor_per_s: f64,
    /// The window over which both are counted.
    pub window_s: u32,
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self { share: 0.2, floor_per_s: 10.0, window_s: 10 }
    }
}

#[derive(Debug, Clone)]
pub struct RetryBudget {
    policy: BudgetPolicy,
    /// All attempts; what is counted as failed are retries.
    attempts: SlidingWindow,
    /// Retries that ended; what is counted as failed are successes.
    earned: SlidingWindow,
}

impl RetryBudget {
    pub fn new(policy: BudgetPolicy) -> Self {
        let length = Duration::from_secs(policy.window_s.into());
        Self { policy, attempts: SlidingWindow::new(length), earned: SlidingWindow::new(length) }
    }

    /// Applies another policy from now on; counts over a window of another length are forgotten.
    pub fn adopt(&mut self, policy: BudgetPolicy) {
        if policy.window_s != self.policy.window_s {
            *self = Self::new(policy);
        }
        self.policy = policy;
    }

    pub fn first_attempts(&mut self, count: usize, now: Timestamp) {
        self.attempts.count_many(count, false, now);
    }

    /// How many of `want` retries may be made now; they are counted as made.
    pub fn take(&mut self, want: usize, now: Timestamp) -> usize {
        let granted = want.min(self.left(now));
        self.attempts.count_many(granted, true, now);
        granted
    }

    /// A retry succeeded.
    pub fn earn(&mut self, now: Timestamp) {
        self.earned.count(true, now);
    }

    /// How many retries could be made now.
    pub fn left(&mut self, now: Timestamp) -> usize {
        let attempts = self.attempts.tally(now);
        let earned = f64::from(self.earned.tally(now).failed);
        let (retries, all) = (f64::from(attempts.failed), f64::from(attempts.calls));
        let floor = self.policy.floor_per_s * f64::from(self.policy.window_s);
        let allowed = floor + self.policy.share * (all - retries) + earned;
        (allowed - retries).max(0.0) as usize
    }

    /// When there may be more, if there is none left now.
    pub fn next(&self, now: Timestamp) -> Timestamp {
        let step = Duration::from_secs(self.policy.window_s.into()) / STEPS;
        let step_ms = (step.as_millis() as i64).max(1);
        Timestamp((now.0.div_euclid(step_ms) + 1) * step_ms)
    }

    /// Whether nothing is remembered.
    pub fn is_fresh(&mut self, now: Timestamp) -> bool {
        self.attempts.tally(now).calls == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn budget() -> RetryBudget {
        RetryBudget::new(BudgetPolicy { floor_per_s: 1.0, ..BudgetPolicy::default() })
    }

    #[test]
    fn retries_are_a_fifth_of_the_traffic_and_a_floor() {
        let mut budget = budget();
        budget.first_attempts(100, NOW);
        assert_eq!(budget.take(1_000, NOW), 10 + 20);
        assert_eq!(budget.take(1_000, NOW), 0);
    }

    #[test]
    fn what_was_spent_comes_back_after_the_window_and_not_before() {
        let mut budget = budget();
        assert_eq!(budget.take(1_000, NOW), 10);
        assert_eq!(budget.take(1, NOW + Duration::from_millis(9_499)), 0);
        assert_eq!(budget.take(1_000, NOW + Duration::from_secs(10)), 10);
        assert!(budget.next(NOW) > NOW);
        assert!(budget.next(NOW).since(NOW) <= Duration::from_millis(500));
    }

    #[test]
    fn a_recovered_lane_full_of_retries_drains_at_full_speed() {
        let mut budget = budget();
        let mut drained = 0;
        for _ in 0..1_000 {
            let granted = budget.take(64, NOW);
            assert!(granted > 0, "after {drained}");
            (0..granted).for_each(|_| budget.earn(NOW));
            drained += granted;
        }
        assert!(drained >= 10_000);
    }

    #[test]
    fn retries_that_fail_earn_nothing() {
        let mut budget = budget();
        let sent: usize = (0..100).map(|n| budget.take(64, NOW + Duration::from_millis(n))).sum();
        assert_eq!(sent, 10);
    }
}
