//! The limits of the dispatcher. Checks nothing: the configuration did.

use std::collections::HashMap;
use std::time::Duration;

use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::policy::budget::BudgetPolicy;
use postrider_core::policy::classify::RetryAfterMax;
use postrider_core::policy::decide::AttemptTimes;
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::strikes::StrikeRules;
use postrider_core::policy::ttl::DISPATCH_WINDOW;
use postrider_core::{ChannelKind, RegionNumber, TenantId};

/// How much the dispatcher does at once, and for how long.
#[derive(Debug, Clone)]
pub struct DispatchLimits {
    /// Calls under way per origin.
    pub per_origin: HashMap<ChannelKind, usize>,
    /// Calls under way in all. A crash can send at most these and one settle batch twice.
    pub concurrency: usize,
    /// Connections that may be open in all: there are never more calls, so this is for people.
    pub connections: usize,
    /// At least twice as long as an attempt can last: one that is to go again at once may do so
    /// during the first half.
    pub lease: Duration,
    pub settle_batch: usize,
    /// How long a settlement may wait for others to share its fsync.
    pub settle_linger: Duration,
    /// When a provider counts as failing.
    pub breaker: BreakerPolicy,
    /// Calls per second to one origin, by channel; none is no limit.
    pub rates: HashMap<ChannelKind, Rate>,
    /// Calls per second to one origin with one tenant's credential, by channel.
    pub credential_rates: HashMap<ChannelKind, Rate>,
    /// Calls per second to one address, by channel.
    pub address_rates: HashMap<ChannelKind, Rate>,
    /// Calls per second of one tenant.
    pub tenant_rates: HashMap<TenantId, Rate>,
    /// Shares of tenants where they compete; a tenant that is not named weighs 1.
    pub weights: HashMap<TenantId, f64>,
    /// Tenants that only workers of one region send for.
    pub tenant_regions: HashMap<TenantId, RegionNumber>,
    /// How much of a lane's traffic may be retries.
    pub retry_budget: BudgetPolicy,
    /// What follows when strikes against an address add up.
    pub strikes: StrikeRules,
    /// Numbers of attempts.
    pub times: AttemptTimes,
    /// How long idempotency keys are kept at the least.
    pub dedup_window: Duration,
    /// How long a message with TTL 0 may wait for its one attempt.
    pub now_or_never: Duration,
    /// The longest waits that providers may ask for.
    pub retry_after_max: RetryAfterMax,
}

impl Default for DispatchLimits {
    fn default() -> Self {
        Self {
            per_origin: HashMap::new(),
            concurrency: 4_096,
            connections: usize::MAX,
            lease: Duration::from_secs(90),
            settle_batch: 512,
            settle_linger: Duration::from_millis(2),
            breaker: BreakerPolicy::default(),
            rates: HashMap::new(),
            credential_rates: HashMap::new(),
            address_rates: HashMap::new(),
            tenant_rates: HashMap::new(),
            weights: HashMap::new(),
            tenant_regions: HashMap::new(),
            retry_budget: BudgetPolicy::default(),
            strikes: StrikeRules::default(),
            times: AttemptTimes::default(),
            dedup_window: Duration::from_secs(86_400),
            now_or_never: DISPATCH_WINDOW,
            retry_after_max: RetryAfterMax::default(),
        }
    }
}

impl DispatchLimits {
    /// How many deliveries may be leased and not yet durably settled.
    pub(crate) fn unsettled_max(&self) -> usize {
        self.concurrency.max(1) + self.settle_batch
    }
}
