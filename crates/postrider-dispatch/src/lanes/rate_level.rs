//! One configured rate: this worker's own, or one that all workers share through the store.

use std::fmt;

use postrider_core::policy::limiter::{Limiter, Rate, RateSource};
use postrider_core::policy::rate_stock::RateStock;
use postrider_core::{Gate, LaneKey, TenantId, Timestamp};

use super::{ProviderKey, provider_key};

pub(super) enum RateLevel {
    Own(Limiter),
    Shared(RateStock),
}

impl RateLevel {
    pub(super) fn new(rate: Rate, is_shared: bool) -> Self {
        match is_shared {
            true => Self::Shared(RateStock::new(rate)),
            false => Self::Own(Limiter::new(rate)),
        }
    }

    pub(super) fn adopt(&mut self, rate: Rate, now: Timestamp) {
        match self {
            Self::Own(limiter) => limiter.adopt(rate, now),
            Self::Shared(stock) => stock.adopt(rate, now),
        }
    }

    pub(super) fn is_idle(&self, now: Timestamp) -> bool {
        match self {
            Self::Own(limiter) => limiter.is_idle(now),
            Self::Shared(stock) => stock.is_idle(now),
        }
    }

    pub(super) fn source(&mut self) -> &mut dyn RateSource {
        match self {
            Self::Own(limiter) => limiter,
            Self::Shared(stock) => stock,
        }
    }
}

/// Names a rate, the same on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RateName {
    Tenant(TenantId),
    Provider(ProviderKey),
    Credential(ProviderKey, TenantId),
}

impl RateName {
    /// The rate of a lane that this gate checks.
    pub(super) fn of(gate: Gate, lane: &LaneKey) -> Self {
        match gate {
            Gate::TenantRateLimit => Self::Tenant(lane.tenant.clone()),
            Gate::CredentialRateLimit => Self::Credential(provider_key(lane), lane.tenant.clone()),
            _ => Self::Provider(provider_key(lane)),
        }
    }
}

impl fmt::Display for RateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(tenant) => write!(f, "tenant/{tenant}"),
            Self::Provider((channel, origin)) => write!(f, "provider/{channel}/{origin}"),
            Self::Credential((channel, origin), tenant) => {
                write!(f, "credential/{channel}/{origin}/{tenant}")
            }
        }
    }
}

/// Calls that a worker wants under a shared rate.
#[derive(Debug, Clone)]
pub(crate) struct RateRequest {
    pub(crate) name: RateName,
    pub(crate) rate: Rate,
    pub(crate) want: u32,
}
