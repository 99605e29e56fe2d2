//! How long the history is kept.

use postrider_channels::section;

use super::{ConfigError, check_range};

section! {
    /// The history: counts and latencies by minute and by hour (docs/history.md).
    RollupSection as "rollups" {
        /// Minutes are kept for this many hours.
        minutes_kept_h: u32 = 48,
        /// Hours are kept for this many days.
        hours_kept_days: u32 = 90,
        /// Lanes (tenant, provider and class) that have their own rows in a minute on one server. The rest of a minute
        /// counts for the provider `other`. The last quarter is for tenants that have less than a quarter.
        lanes_max: usize = 500,
    }
}

impl RollupSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        check_range("rollups.minutes_kept_h", self.minutes_kept_h, 3..=24 * 31)?;
        check_range("rollups.hours_kept_days", self.hours_kept_days, 1..=3_660)?;
        check_range("rollups.lanes_max", self.lanes_max, 1..=100_000)
    }
}
