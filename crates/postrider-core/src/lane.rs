//! A lane is tenant × provider × class: the unit of scheduling, pacing and isolation.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::address::ChannelKind;
use crate::message::TenantId;
use crate::time::Timestamp;

/// A lane's name, interned by its store. Means nothing outside that store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneId(pub u32);

/// What a lane stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneKey {
    pub tenant: TenantId,
    pub channel: ChannelKind,
    /// The origin for Web Push, webhooks and HTTP: `https://host[:port]`.
    pub provider: Arc<str>,
    pub class: Arc<str>,
}

impl fmt::Display for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.tenant, self.channel, self.provider, self.class)
    }
}

/// What can keep a lane from being worked on, in the order in which it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// An operator paused the tenant.
    TenantPaused,
    /// An operator paused the lane.
    Paused,
    /// The provider asked to be left alone.
    RetryAfter,
    /// The provider's breaker is open.
    Breaker,
    /// The provider refuses the tenant's credential.
    Credential,
    /// The provider calls too many of the tenant's addresses gone to be believed.
    MassGone,
    /// The provider's rate limit is used up.
    RateLimit,
    /// The tenant's rate limit is used up.
    TenantRateLimit,
    /// Retries took their share of the lane's traffic.
    RetryBudget,
    /// As many calls as allowed are under way to the provider.
    Concurrency,
}

impl Hold {
    pub fn name(self) -> &'static str {
        match self {
            Self::TenantPaused => "tenant not paused",
            Self::Paused => "lane not paused",
            Self::RetryAfter => "provider takes calls",
            Self::Breaker => "breaker",
            Self::Credential => "credential",
            Self::MassGone => "mass-gone guard",
            Self::RateLimit => "rate limit",
            Self::TenantRateLimit => "tenant's rate limit",
            Self::RetryBudget => "retry budget",
            Self::Concurrency => "concurrency",
        }
    }
}

/// Whether a lane can be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneState {
    Ready,
    /// Until a known time.
    Waiting {
        on: Hold,
        until: Timestamp,
    },
    /// Until something happens.
    Blocked {
        on: Hold,
    },
}

impl LaneState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Waiting { .. } => "waiting",
            Self::Blocked { .. } => "blocked",
        }
    }
}
