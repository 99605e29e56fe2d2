//! Sections about pace and fair shares: dispatch, breaker, retry budget, capacity and tenants. They can
//! change while the server runs.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::TenantId;
use postrider_core::policy::backpressure::Capacity as Bound;
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::policy::budget::BudgetPolicy;
use postrider_core::policy::classify::RetryAfterMax;

use postrider_dispatch::Capacities;

use super::{check, check_range};
use crate::alerts;
use crate::config::ConfigError;
use postrider_channels::section;
use postrider_channels::settings;

section! {
    /// How deliveries are worked on.
    DispatchSection as "dispatch" {
        /// How long a delivery belongs to one attempt. At least twice any channel's timeout_s.
        lease_s: u64 = 180,
        /// Results wait at most this long to be written down together.
        settle_linger_ms: u64 = 2,
        /// Results written down together, at most.
        settle_batch: usize = 512,
        /// Calls under way, all lanes together, and never more than there are connections
        /// (network.connections_total_max). With one settle batch, this is what a crash can send twice.
        concurrency: usize = 4096,
        /// On shutdown, attempts have this long to finish; then they are left to the next start.
        drain_s: u64 = 25,
        /// How long idempotency keys are remembered, at least until their message expires.
        dedup_window_s: u64 = 86_400,
        /// Work that waits for a person, such as for a refused credential, is tried again after this time.
        park_s: u64 = 300,
        /// A delivery that was in flight at so many crashes of the server in a row becomes a dead letter (poison).
        crashes_max: u32 = 3,
        /// A message with TTL 0 ("now or never") has this long for its one attempt.
        now_or_never_s: u64 = 10,
        /// The longest wait that an answer (Retry-After) can ask for one address, ...
        retry_after_address_s_max: u64 = 3600,
        /// ... and for a provider, or for one credential there.
        retry_after_provider_s_max: u64 = 900,
    }
}

section! {
    /// What happens while a provider fails as a whole, for one tenant or for all: its lanes wait without
    /// using up attempts. Whether it does is judged by how many of the addresses and tenants fail there.
    BreakerSection as "breaker" {
        /// It stays open for this long, then three calls try; if none succeeds, this doubles ...
        open_s: u32 = 5,
        /// ... up to this.
        open_s_max: u32 = 60,
        /// It also opens in a retry storm: at least this many retries ended ...
        storm_retries_min: u32 = 100,
        /// ... within this time, more of them than first attempts, ...
        storm_window_s: u32 = 60,
        /// ... and less than this share of them succeeded.
        storm_success: f64 = 0.1,
        /// If more than this share of the sends of one credential call their address gone, ...
        gone_share: f64 = 0.2,
        /// ... out of at least this many ...
        gone_sends_min: u32 = 50,
        /// ... within this time, it is not believed: no address is erased and the credential waits.
        gone_window_s: u32 = 60,
    }
}

section! {
    /// How much of a lane's traffic may be retries, so that they never make an outage worse. A retry
    /// that succeeds gives its part back.
    RetryBudgetSection as "retry_budget" {
        /// Retries per first attempt.
        share: f64 = 0.2,
        /// Retries per second that are always allowed.
        floor_per_s: f64 = 10.0,
        /// Over which both are counted.
        window_s: u32 = 10,
    }
}

impl DispatchSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        check(self.lease_s >= 1, "dispatch.lease_s", self.lease_s, "at least 1")?;
        check_range("dispatch.settle_linger_ms", self.settle_linger_ms, 0..=1000)?;
        check(self.settle_batch > 0, "dispatch.settle_batch", self.settle_batch, "at least 1")?;
        check(self.concurrency > 0, "dispatch.concurrency", self.concurrency, "at least 1")?;
        check_range("dispatch.dedup_window_s", self.dedup_window_s, 1..=31_536_000)?;
        check_range("dispatch.park_s", self.park_s, 1..=86_400)?;
        check_range("dispatch.crashes_max", self.crashes_max, 1..=100)?;
        check_range("dispatch.now_or_never_s", self.now_or_never_s, 1..=3600)?;
        let (address, provider) = (self.retry_after_address_s_max, self.retry_after_provider_s_max);
        check_range("dispatch.retry_after_address_s_max", address, 1..=86_400)?;
        check_range("dispatch.retry_after_provider_s_max", provider, 1..=86_400)
    }

    pub(crate) fn retry_after_max(&self) -> RetryAfterMax {
        RetryAfterMax {
            address: Duration::from_secs(self.retry_after_address_s_max),
            provider: Duration::from_secs(self.retry_after_provider_s_max),
        }
    }
}

impl BreakerSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        let is_share = self.gone_share > 0.0 && self.gone_share <= 1.0;
        let allowed = "above 0, up to 1 (everything is believed)";
        check(is_share, "breaker.gone_share", self.gone_share, allowed)?;
        let storm = (0.0..=1.0).contains(&self.storm_success);
        let allowed = "0 (no storm is ever seen) to 1";
        check(storm, "breaker.storm_success", self.storm_success, allowed)?;
        for (field, found) in [
            ("breaker.open_s", self.open_s),
            ("breaker.storm_window_s", self.storm_window_s),
            ("breaker.storm_retries_min", self.storm_retries_min),
            ("breaker.gone_window_s", self.gone_window_s),
            ("breaker.gone_sends_min", self.gone_sends_min),
        ] {
            check_range(field, found, 1..=86_400)?;
        }
        let longest = (self.open_s..=86_400).contains(&self.open_s_max);
        check(longest, "breaker.open_s_max", self.open_s_max, "open_s to 86400")
    }

    pub(crate) fn policy(&self) -> BreakerPolicy {
        BreakerPolicy {
            open_s: self.open_s,
            open_s_max: self.open_s_max,
            storm_window_s: self.storm_window_s,
            storm_retries_min: self.storm_retries_min,
            storm_success: self.storm_success,
            gone_window_s: self.gone_window_s,
            gone_sends_min: self.gone_sends_min,
            gone_share: self.gone_share,
        }
    }
}

impl CapacitySection {
    /// The capacities of the server and of its tenants.
    pub(crate) fn bounds(&self, tenants: &BTreeMap<String, TenantSection>) -> Capacities {
        let bound = |deliveries_max, bytes_max| Bound { deliveries_max, bytes_max };
        let own = |(name, tenant): (&String, &TenantSection)| {
            let deliveries_max = tenant.deliveries_max.unwrap_or(self.tenant_deliveries_max);
            let bytes_max = tenant.bytes_max.unwrap_or(self.tenant_bytes_max);
            (TenantId::new(name), bound(deliveries_max, bytes_max))
        };
        Capacities {
            server: bound(self.deliveries_max, self.bytes_max),
            tenant: bound(self.tenant_deliveries_max, self.tenant_bytes_max),
            tenants: tenants.iter().map(own).collect(),
            // So that an alert that the server is full is not refused because it is full.
            reserved: [(TenantId::new(alerts::TENANT), bound(1_000, 16 << 20))].into(),
        }
    }
}

impl RetryBudgetSection {
    pub(in crate::config) fn validate(&self) -> Result<(), ConfigError> {
        check_range("retry_budget.share", self.share, 0.0..=100.0)?;
        // Without a floor, a lane whose traffic is all retries would never send again.
        check_range("retry_budget.floor_per_s", self.floor_per_s, 0.1..=1e6)?;
        check_range("retry_budget.window_s", self.window_s, 1..=3_600)?;
        check(
            self.floor_per_s * f64::from(self.window_s) >= 1.0,
            "retry_budget.floor_per_s",
            self.floor_per_s,
            "at least one retry within window_s",
        )
    }

    pub(crate) fn policy(&self) -> BudgetPolicy {
        BudgetPolicy { share: self.share, floor_per_s: self.floor_per_s, window_s: self.window_s }
    }
}

section! {
    /// How much may be pending: deliveries that are not final, and the bytes of their messages and
    /// addresses. Beyond it, new work gets 429 with the time at which there should be room. 0 is no
    /// bound.
    CapacitySection as "capacity" {
        /// All tenants together.
        deliveries_max: u64 = 20_000_000,
        /// All tenants together.
        bytes_max: u64 = 32 << 30,
        /// Each tenant, unless [tenants.NAME] says otherwise: less than the whole, so that none can
        /// fill the server alone.
        tenant_deliveries_max: u64 = 15_000_000,
        /// Each tenant, unless [tenants.NAME] says otherwise.
        tenant_bytes_max: u64 = 24 << 30,
    }
}

/// The settings of one tenant; a table by name, `[tenants.NAME]`.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantSection {
    /// Requests per second, all providers together; 0 for no limit.
    pub rate_per_s: f64,
    pub rate_burst: u32,
    /// Its share where tenants compete.
    pub weight: f64,
    /// Pending deliveries at the most; what [capacity] says if absent, 0 for no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliveries_max: Option<u64>,
    /// Bytes of what is pending at the most; what [capacity] says if absent, 0 for no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Days until its final deliveries are forgotten; what [retention] says if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<u32>,
    /// Days until its dead letters are discarded; what [retention] says if absent, 0 for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_days: Option<u32>,
    /// One of store.regions: only workers there send for it; all workers if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    // The same as in [limits], which counts where they are absent; 0 for no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub templates_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letters_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letter_bytes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strikes_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audience_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_marks_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vapid_keys_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_secrets_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_subscriptions_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pauses_max: Option<u64>,
}

impl Default for TenantSection {
    fn default() -> Self {
        Self {
            rate_per_s: 0.0,
            rate_burst: 10,
            weight: 1.0,
            deliveries_max: None,
            bytes_max: None,
            retention_days: None,
            dead_letter_days: None,
            region: None,
            addresses_max: None,
            templates_max: None,
            template_bytes_max: None,
            dead_letters_max: None,
            dead_letter_bytes_max: None,
            lanes_max: None,
            strikes_max: None,
            audience_max: None,
            gone_marks_max: None,
            keys_max: None,
            vapid_keys_max: None,
            webhook_secrets_max: None,
            event_subscriptions_max: None,
            pauses_max: None,
        }
    }
}

impl TenantSection {
    pub(in crate::config) fn validate(&self, name: &str) -> Result<(), ConfigError> {
        let field = |field: &str| format!("tenants.{name}.{field}");
        settings::check_rate(&field("rate_per_s"), self.rate_per_s)?;
        check_range(&field("weight"), self.weight, 0.01..=1_000.0)
    }
}
