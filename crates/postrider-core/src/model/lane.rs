//! A lane is tenant × provider × class: the unit of scheduling, pacing and isolation.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::channel::ChannelKind;
use crate::model::message::TenantId;
use crate::model::time::Timestamp;

/// A lane's name, interned by its store. Means nothing outside that store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LaneId(pub u32);

/// What a lane stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneKey {
    pub tenant: TenantId,
    pub channel: ChannelKind,
    /// The provider's origin, `https://host[:port]`, or the channel's name where an account is chosen.
    pub provider: Arc<str>,
    pub class: Arc<str>,
}

impl fmt::Display for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.tenant, self.channel, self.provider, self.class)
    }
}

/// Writes each gate once, with the name that users see.
macro_rules! gates {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A check that can hold a lane, in the order in which they are asked.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Gate { $($(#[$doc])* $variant,)* }

        impl Gate {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

gates! {
    /// An operator paused the tenant.
    TenantPaused = "tenant not paused",
    /// An operator paused the lane.
    Paused = "lane not paused",
    /// An operator paused the provider, or the account.
    ProviderPaused = "provider not paused",
    /// The provider asked to be left alone.
    RetryAfter = "provider takes calls",
    /// The provider's breaker is open.
    Breaker = "breaker",
    /// The provider refuses the tenant's credential.
    Credential = "credential",
    /// The provider calls too many of the tenant's addresses gone to be believed.
    MassGone = "mass-gone guard",
    /// The provider complains when it is called faster.
    Pace = "learned pace",
    /// The provider's rate limit is used up.
    RateLimit = "rate limit",
    /// The tenant's rate limit is used up.
    TenantRateLimit = "tenant's rate limit",
    /// The rate limit of the tenant's credential at the provider is used up.
    CredentialRateLimit = "credential's rate limit",
    /// Retries took their share of the lane's traffic.
    RetryBudget = "retry budget",
    /// As many calls as allowed are under way to the provider.
    Concurrency = "concurrency",
}

/// Whether a lane can be worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneState {
    Ready,
    /// Until a known time.
    Waiting {
        on: Gate,
        until: Timestamp,
    },
    /// Until something happens.
    Blocked {
        on: Gate,
    },
}

impl LaneState {
    /// The gate that holds the lane, if one does.
    pub fn gate(self) -> Option<Gate> {
        match self {
            Self::Ready => None,
            Self::Waiting { on, .. } | Self::Blocked { on } => Some(on),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Waiting { .. } => "waiting",
            Self::Blocked { .. } => "blocked",
        }
    }
}
