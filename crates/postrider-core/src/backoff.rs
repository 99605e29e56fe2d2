//! How long to wait before the next attempt. The random number is an argument.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often and how patiently to retry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// Retries after the first attempt.
    pub retries: u32,
    pub base_ms: u64,
    /// Multiplier of the exponential kind.
    pub factor: f64,
    pub cap_ms: u64,
    pub kind: BackoffKind,
    pub jitter: Jitter,
    /// Delays of the `schedule` kind, in order; the last one repeats.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedule_ms: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackoffKind {
    #[default]
    Exponential,
    Linear,
    Fixed,
    Schedule,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Jitter {
    None,
    Additive,
    Proportional,
    #[default]
    Full,
    Doubling,
    Equal,
    Decorrelated,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 5,
            base_ms: 2_000,
            factor: 2.0,
            cap_ms: 120_000,
            kind: BackoffKind::Exponential,
            jitter: Jitter::Full,
            schedule_ms: Vec::new(),
        }
    }
}

impl RetryPolicy {
    /// The wait before retry number `retry` (1 for the first). `previous` is the wait before that,
    /// `roll` a random number in `0.0..1.0`.
    pub fn delay(&self, _retry: u32, _previous: Duration, _roll: f64) -> Duration {
        Duration::from_millis(self.base_ms)
    }
}
