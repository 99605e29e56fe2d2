//! From when on something is a problem.

use std::time::Duration;

use postrider_channels::section;
use postrider_core::policy::problems::{ProblemLimits, ProblemTimes};

use super::{ConfigError, check, check_range};

section! {
    /// From when on something is a problem: docs/problems.md. 0 turns a limit off.
    ProblemSection as "problems" {
        /// The used share of the capacity, of the server or of a tenant.
        fill: f64 = 0.8,
        /// More new dead letters in a minute.
        dead_letters_per_min: u64 = 5,
        /// More failures of one kind at one provider in ten minutes.
        failures: u64 = 100,
        /// They are also at least this share of the attempts there.
        failures_share: f64 = 0.02,
        /// So many answers with status 400 from one provider in ten minutes.
        bad_requests: u64 = 5,
        /// So many deliveries to one provider that used up their attempts in ten minutes.
        exhausted: u64 = 10,
        /// More is pending than usual (three standard deviations), and more than this.
        depth_unusual: u64 = 1_000,
        /// Deliveries are taken up later than this because the server is busy.
        lag_s: f64 = 30.0,
        /// Objective: at least this share of the retries succeeds.
        objective_retry_success: f64 = 0.65,
        /// Objective: less is pending at some time of every quarter of an hour.
        objective_depth: u64 = 10_000,
        /// Objective: 95 % of the deliveries are taken up in this time after they could have been.
        objective_overhead_p95_ms: u64 = 500,
        /// Objective: at most this share of the deliveries fails for good.
        objective_permanent_failures: f64 = 0.05,
        /// A problem is resolved when there was no sign of it for so long; longer if it came back.
        resolves_after_s: u64 = 120,
    }
}

impl ProblemSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        for (name, share) in [
            ("fill", self.fill),
            ("failures_share", self.failures_share),
            ("objective_retry_success", self.objective_retry_success),
            ("objective_permanent_failures", self.objective_permanent_failures),
        ] {
            check((0.0..=1.0).contains(&share), &format!("problems.{name}"), share, "0 to 1")?;
        }
        let is_time = self.lag_s.is_finite() && self.lag_s >= 0.0;
        check(is_time, "problems.lag_s", self.lag_s, "a number of seconds, or 0")?;
        check_range("problems.resolves_after_s", self.resolves_after_s, 10..=86_400)
    }

    pub(crate) fn limits(&self) -> ProblemLimits {
        ProblemLimits {
            fill: self.fill,
            dead_letters_per_min: self.dead_letters_per_min,
            failures: self.failures,
            failures_share: self.failures_share,
            bad_requests: self.bad_requests,
            exhausted: self.exhausted,
            depth_unusual: self.depth_unusual,
            lag_s: self.lag_s,
            retry_success: self.objective_retry_success,
            depth_at_rest: self.objective_depth,
            overhead_p95_ms: self.objective_overhead_p95_ms,
            permanent_share: self.objective_permanent_failures,
        }
    }

    pub(crate) fn times(&self) -> ProblemTimes {
        let resolves_after = Duration::from_secs(self.resolves_after_s);
        ProblemTimes { resolves_after, ..ProblemTimes::default() }
    }
}
