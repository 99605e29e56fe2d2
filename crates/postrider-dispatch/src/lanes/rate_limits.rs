//! The configured rates: of a lane's provider, tenant and credential, taken from together or not at all,
//! and of each address. Where none is configured, asking costs nothing. Where several workers share a store, they share
//! the rates that concern more than one of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::policy::limiter::{Limiter, Rate, RateSource, available};
use postrider_core::policy::rate_slice::RateSlice;
use postrider_core::{ChannelKind, Gate, LaneKey, LaneState, TenantId, Timestamp};
use tokio::sync::Notify;

use super::accounts::LaneChannels;
use super::rate_level::{RateLevel, RateName, RateRequest};
use super::{ProviderKey, provider_key};
use crate::limits::DispatchLimits;
use crate::policies::Policies;

/// Beyond this many, limiters with nothing owed are forgotten.
const LIMITERS_MAX: usize = 10_000;
const ADDRESSES_MAX: usize = 100_000;

pub(super) struct RateLimits {
    configured: AtomicBool,
    /// Other workers make calls under the same limits.
    is_shared: AtomicBool,
    policies: Arc<Policies>,
    channels: Arc<LaneChannels>,
    limiters: Mutex<RateLimiters>,
    /// Somebody has to ask for more calls of a shared rate.
    wanted: Notify,
}

#[derive(Default)]
struct RateLimiters {
    providers: HashMap<ProviderKey, RateLevel>,
    tenants: HashMap<TenantId, RateLevel>,
    /// A tenant's credential at a provider.
    credentials: HashMap<(ProviderKey, TenantId), RateLevel>,
    addresses: HashMap<(ChannelKind, u64), AddressRate>,
    /// Requests for calls of shared rates that nobody has made yet.
    requests: Vec<RateRequest>,
}

impl RateLimiters {
    fn level(&mut self, name: &RateName) -> Option<&mut RateLevel> {
        match name {
            RateName::Tenant(tenant) => self.tenants.get_mut(tenant),
            RateName::Provider(provider) => self.providers.get_mut(provider),
            RateName::Credential(provider, tenant) => {
                self.credentials.get_mut(&(provider.clone(), tenant.clone()))
            }
        }
    }
}

struct AddressRate {
    limiter: Limiter,
    /// The last time that was given to a call that has to wait.
    promised: Timestamp,
}

impl RateLimits {
    pub(super) fn new(policies: Arc<Policies>, channels: Arc<LaneChannels>) -> Self {
        let configured = AtomicBool::new(is_configured(&policies.now().limits));
        let (is_shared, limiters, wanted) = Default::default();
        Self { configured, is_shared, policies, channels, limiters, wanted }
    }

    /// From now on, limits that concern other workers, too, are shared with them.
    pub(super) fn share(&self) {
        self.is_shared.store(true, Ordering::Release);
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        *limiters = RateLimiters::default();
    }

    /// Returns when calls of shared rates are wanted; what [`requests`](Self::requests) answers.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    pub(super) fn requests(&self) -> Vec<RateRequest> {
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut limiters.requests)
    }

    /// Calls of a shared rate that were asked for; `None` if nobody answered.
    pub(super) fn give(&self, name: &RateName, slice: Option<RateSlice>, now: Timestamp) {
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(RateLevel::Shared(stock)) = limiters.level(name) else { return };
        match slice {
            Some(slice) => stock.give(slice, now),
            None => stock.give_nothing(now),
        }
        // It may want more by now.
        if let Some((rate, want)) = stock.request(now) {
            limiters.requests.push(RateRequest { name: name.clone(), rate, want });
            self.wanted.notify_one();
        }
    }

    /// What is owed under an old limit is owed under the new one, too.
    pub(super) fn adopt(&self, limits: &DispatchLimits, now: Timestamp) {
        self.configured.store(is_configured(limits), Ordering::Release);
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let renew = |level: &mut RateLevel, rate: Option<&Rate>| {
            rate.map(|rate| level.adopt(*rate, now)).is_some()
        };
        limiters.providers.retain(|(kind, _), l| renew(l, limits.rates.get(kind)));
        limiters.tenants.retain(|tenant, l| renew(l, limits.tenant_rates.get(tenant)));
        let credential_rates = &limits.credential_rates;
        limiters.credentials.retain(|((kind, _), _), l| renew(l, credential_rates.get(kind)));
        let address_rates = &limits.address_rates;
        limiters.addresses.retain(|(kind, _), address| {
            let rate = address_rates.get(kind);
            rate.map(|rate| address.limiter.adopt(*rate, now)).is_some()
        });
    }

    /// Takes up to `want` from every limit at once.
    pub(super) fn take(
        &self,
        lane: &LaneKey,
        want: usize,
        now: Timestamp,
    ) -> Result<usize, LaneState> {
        self.with(lane, now, Ok(want), |levels, names| {
            let count = available(levels, want, now)
                .map_err(|(which, until)| LaneState::Waiting { on: names[which], until })?;
            levels.iter_mut().for_each(|level| level.take(count, now));
            Ok(count)
        })
    }

    /// Calls that weigh more than one each: the surplus is owed, and the next ones wait for it.
    pub(super) fn charge(&self, lane: &LaneKey, surplus: usize, now: Timestamp) {
        self.with(lane, now, (), |levels, _| {
            levels.iter_mut().for_each(|level| level.take(surplus, now));
        });
    }

    /// Takes one call to an address, or says when there may be one: each call that has to wait gets a
    /// time of its own.
    pub(super) fn take_address(
        &self,
        channel: ChannelKind,
        target: u64,
        now: Timestamp,
    ) -> Result<(), Timestamp> {
        if !self.configured.load(Ordering::Acquire) {
            return Ok(());
        }
        let policy = self.policies.now();
        let Some(rate) = policy.limits.address_rates.get(&channel) else { return Ok(()) };
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = &mut limiters.addresses;
        if addresses.len() >= ADDRESSES_MAX {
            addresses.retain(|_, a| !a.limiter.is_idle(now) || a.promised > now);
        }
        let new = || AddressRate { limiter: Limiter::new(*rate), promised: Timestamp::default() };
        let AddressRate { limiter, promised } =
            addresses.entry((channel, target)).or_insert_with(new);
        if limiter.available(1, now) > 0 {
            limiter.take(1, now);
            return Ok(());
        }
        let apart = Duration::from_secs_f64(1.0 / rate.per_s.max(1e-3));
        *promised = limiter.next(now).max(*promised + apart);
        Err(*promised)
    }

    pub(super) fn refund(&self, lane: &LaneKey, count: usize, now: Timestamp) {
        self.with(lane, now, (), |levels, _| {
            levels.iter_mut().for_each(|level| level.refund(count, now));
        });
    }

    /// Each limit of the lane, its rate, and the time at which there is room; takes nothing.
    pub(super) fn next_calls(
        &self,
        lane: &LaneKey,
        now: Timestamp,
    ) -> Vec<(Gate, Rate, Timestamp)> {
        self.with(lane, now, Vec::new(), |levels, names| {
            let next = |(gate, level): (&Gate, &&mut dyn RateSource)| {
                (*gate, level.rate(), level.next(now))
            };
            names.iter().zip(levels.iter()).map(next).collect()
        })
    }

    /// Calls `act` with the limiters of the lane, or returns `otherwise` if it has none.
    fn with<T>(
        &self,
        lane: &LaneKey,
        now: Timestamp,
        otherwise: T,
        act: impl FnOnce(&mut [&mut dyn RateSource], &[Gate]) -> T,
    ) -> T {
        if !self.configured.load(Ordering::Acquire) {
            return otherwise;
        }
        let is_shared = self.is_shared.load(Ordering::Acquire);
        let policy = self.policies.now();
        let limits = &policy.limits;
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let RateLimiters { providers, tenants, credentials, requests, .. } = &mut *limiters;
        // An origin with one worker has its own limits there; a tenant and a wide provider have many.
        let spans_workers = is_shared && self.channels.is_wide(lane.channel, &lane.provider);
        let (mut levels, mut gates) = (Vec::with_capacity(3), Vec::with_capacity(3));
        if let Some(rate) = limits.rates.get(&lane.channel) {
            forget_idle(providers, now);
            let new = || RateLevel::new(*rate, spans_workers);
            levels.push(providers.entry(provider_key(lane)).or_insert_with(new));
            gates.push(Gate::RateLimit);
        }
        if let Some(rate) = limits.tenant_rates.get(&lane.tenant) {
            let new = || RateLevel::new(*rate, is_shared);
            levels.push(tenants.entry(lane.tenant.clone()).or_insert_with(new));
            gates.push(Gate::TenantRateLimit);
        }
        if let Some(rate) = limits.credential_rates.get(&lane.channel) {
            forget_idle(credentials, now);
            let key = (provider_key(lane), lane.tenant.clone());
            let new = || RateLevel::new(*rate, spans_workers);
            levels.push(credentials.entry(key).or_insert_with(new));
            gates.push(Gate::CredentialRateLimit);
        }
        if levels.is_empty() {
            return otherwise;
        }
        let mut sources: Vec<&mut dyn RateSource> =
            levels.iter_mut().map(|level| level.source()).collect();
        let result = act(&mut sources, &gates);
        if is_shared {
            let before = requests.len();
            for (level, gate) in levels.into_iter().zip(gates) {
                let RateLevel::Shared(stock) = level else { continue };
                if let Some((rate, want)) = stock.request(now) {
                    requests.push(RateRequest { name: RateName::of(gate, lane), rate, want });
                }
            }
            if requests.len() > before {
                self.wanted.notify_one();
            }
        }
        result
    }
}

fn is_configured(limits: &DispatchLimits) -> bool {
    let channels = [&limits.rates, &limits.credential_rates, &limits.address_rates];
    !limits.tenant_rates.is_empty() || channels.iter().any(|rates| !rates.is_empty())
}

fn forget_idle<K>(limiters: &mut HashMap<K, RateLevel>, now: Timestamp) {
    if limiters.len() >= LIMITERS_MAX {
        limiters.retain(|_, level| !level.is_idle(now));
    }
}
