//! The configured rates: of a lane's provider, tenant and credential, taken from together or not at all,
//! and of each address. Where none is configured, asking costs nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::policy::limiter::{Limiter, Rate, available};
use postrider_core::{ChannelKind, Gate, LaneKey, LaneState, TenantId, Timestamp};

use super::{ProviderKey, provider_key};
use crate::limits::DispatchLimits;
use crate::policies::Policies;

/// Beyond this many, limiters with nothing owed are forgotten.
const LIMITERS_MAX: usize = 10_000;
const ADDRESSES_MAX: usize = 100_000;

pub(super) struct RateLimits {
    configured: AtomicBool,
    policies: Arc<Policies>,
    limiters: Mutex<RateLimiters>,
}

#[derive(Default)]
struct RateLimiters {
    providers: HashMap<ProviderKey, Limiter>,
    tenants: HashMap<TenantId, Limiter>,
    /// A tenant's credential at a provider.
    credentials: HashMap<(ProviderKey, TenantId), Limiter>,
    addresses: HashMap<(ChannelKind, u64), AddressRate>,
}

struct AddressRate {
    limiter: Limiter,
    /// The last time that was given to a call that has to wait.
    promised: Timestamp,
}

impl RateLimits {
    pub(super) fn new(policies: Arc<Policies>) -> Self {
        let configured = AtomicBool::new(is_configured(&policies.now().limits));
        Self { configured, policies, limiters: Mutex::default() }
    }

    /// What is owed under an old limit is owed under the new one, too.
    pub(super) fn adopt(&self, limits: &DispatchLimits, now: Timestamp) {
        self.configured.store(is_configured(limits), Ordering::Release);
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let renew = |limiter: &mut Limiter, rate: Option<&Rate>| {
            rate.map(|rate| limiter.adopt(*rate, now)).is_some()
        };
        limiters.providers.retain(|(kind, _), l| renew(l, limits.rates.get(kind)));
        limiters.tenants.retain(|tenant, l| renew(l, limits.tenant_rates.get(tenant)));
        let credential_rates = &limits.credential_rates;
        limiters.credentials.retain(|((kind, _), _), l| renew(l, credential_rates.get(kind)));
        let address_rates = &limits.address_rates;
        limiters.addresses.retain(|(kind, _), a| renew(&mut a.limiter, address_rates.get(kind)));
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
            let next =
                |(gate, level): (&Gate, &&mut Limiter)| (*gate, level.rate(), level.next(now));
            names.iter().zip(levels.iter()).map(next).collect()
        })
    }

    /// Calls `act` with the limiters of the lane, or returns `otherwise` if it has none.
    fn with<T>(
        &self,
        lane: &LaneKey,
        now: Timestamp,
        otherwise: T,
        act: impl FnOnce(&mut [&mut Limiter], &[Gate]) -> T,
    ) -> T {
        if !self.configured.load(Ordering::Acquire) {
            return otherwise;
        }
        let policy = self.policies.now();
        let limits = &policy.limits;
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let RateLimiters { providers, tenants, credentials, .. } = &mut *limiters;
        let (mut levels, mut names) = (Vec::with_capacity(3), Vec::with_capacity(3));
        if let Some(rate) = limits.rates.get(&lane.channel) {
            forget_idle(providers, now);
            let key = provider_key(lane);
            levels.push(providers.entry(key).or_insert_with(|| Limiter::new(*rate)));
            names.push(Gate::RateLimit);
        }
        if let Some(rate) = limits.tenant_rates.get(&lane.tenant) {
            levels.push(tenants.entry(lane.tenant.clone()).or_insert_with(|| Limiter::new(*rate)));
            names.push(Gate::TenantRateLimit);
        }
        if let Some(rate) = limits.credential_rates.get(&lane.channel) {
            forget_idle(credentials, now);
            let key = (provider_key(lane), lane.tenant.clone());
            levels.push(credentials.entry(key).or_insert_with(|| Limiter::new(*rate)));
            names.push(Gate::CredentialRateLimit);
        }
        if levels.is_empty() { otherwise } else { act(&mut levels, &names) }
    }
}

fn is_configured(limits: &DispatchLimits) -> bool {
    let channels = [&limits.rates, &limits.credential_rates, &limits.address_rates];
    !limits.tenant_rates.is_empty() || channels.iter().any(|rates| !rates.is_empty())
}

fn forget_idle<K>(limiters: &mut HashMap<K, Limiter>, now: Timestamp) {
    if limiters.len() >= LIMITERS_MAX {
        limiters.retain(|_, limiter| !limiter.is_idle(now));
    }
}
