//! What all breakers share: when they open and for how long, why, and what they answer. The breakers
//! themselves are [`crate::policy::probe_breaker`] and [`crate::policy::ramp_breaker`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;

/// When a breaker opens and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BreakerPolicy {
    /// How long it stays open the first time; doubled each time in a row.
    pub open_s: u32,
    pub open_s_max: u32,
    /// A retry storm: at least so many retries within the window, more than there are first
    /// attempts, and less than this share of them successful ([`crate::policy::storm`]).
    pub storm_window_s: u32,
    pub storm_retries_min: u32,
    pub storm_success: f64,
    /// More than this share of at least so many sends of one credential called gone within the
    /// window is not believed ([`crate::policy::gone_guard`]).
    pub gone_window_s: u32,
    pub gone_sends_min: u32,
    pub gone_share: f64,
}

impl BreakerPolicy {
    /// How long it stays open after so many openings in a row before this one. `random` is a random number in
    /// `0.0..1.0`: jitter keeps those behind one cause from being probed all at the same moment.
    pub(super) fn open_for(&self, in_a_row: u32, random: f64) -> Duration {
        let longest = self.open_s_max.max(self.open_s);
        let open_s = self.open_s.saturating_mul(2_u32.saturating_pow(in_a_row)).min(longest);
        Duration::from_secs(open_s.into()).mul_f64(1.0 + 0.25 * random)
    }
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            open_s: 5,
            open_s_max: 60,
            storm_window_s: 60,
            storm_retries_min: 100,
            storm_success: 0.1,
            gone_window_s: 60,
            gone_sends_min: 50,
            gone_share: 0.2,
        }
    }
}

/// An operator's order, which holds until it is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BreakerOverride {
    Open,
    Closed,
}

/// Why it opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakerCause {
    /// Too many calls failed.
    #[default]
    Failures,
    /// Retries without success.
    Storm,
    /// The provider does not accept the credential.
    Refused,
    /// Too many addresses at once are called gone.
    MassGone,
}

/// Calls that may be made, and the count of openings under which they were permitted: results of an
/// earlier epoch do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    pub calls: usize,
    pub epoch: u32,
}

/// Why no call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerRefusal {
    Until(Timestamp),
    /// A probe is under way; its end decides.
    Probing,
    /// By an operator.
    Forced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    Closed,
    Open {
        until: Timestamp,
    },
    /// Coming back: so many calls at once.
    Recovering {
        allowed: usize,
    },
    ForcedOpen,
    ForcedClosed,
}

/// What a result has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerChange {
    Opened {
        until: Timestamp,
    },
    /// More may go through than before.
    Eased,
    Closed,
}

impl BreakerChange {
    /// Whether more calls may go than before.
    pub fn is_easing(self) -> bool {
        matches!(self, Self::Eased | Self::Closed)
    }
}

impl BreakerState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::Recovering { .. } => "half_open",
            Self::ForcedOpen => "forced_open",
            Self::ForcedClosed => "forced_closed",
        }
    }
}
