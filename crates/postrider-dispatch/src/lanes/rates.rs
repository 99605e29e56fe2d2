//! The rate limits that a lane passes: its provider's and its tenant's, all of them or none. Where none
//! is configured, asking costs nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use postrider_core::limiter::{Limiter, Rate, available};
use postrider_core::{Hold, LaneKey, LaneState, TenantId, Timestamp};

use super::OriginKey;
use crate::dispatcher::Limits;
use crate::policies::Policies;

/// Beyond this many, limits that nothing is owed to are forgotten.
const LIMITERS_MAX: usize = 10_000;

pub(super) struct Rates {
    configured: AtomicBool,
    policies: Arc<Policies>,
    limiters: Mutex<Limiters>,
}

#[derive(Default)]
struct Limiters {
    providers: HashMap<OriginKey, Limiter>,
    tenants: HashMap<TenantId, Limiter>,
}

impl Rates {
    pub(super) fn new(policies: Arc<Policies>) -> Arc<Self> {
        let configured = AtomicBool::new(is_configured(&policies.now().limits));
        Arc::new(Self { configured, policies, limiters: Mutex::default() })
    }

    /// What is owed under a limit is owed under the new one, too.
    pub(super) fn adopt(&self, limits: &Limits, now: Timestamp) {
        self.configured.store(is_configured(limits), Ordering::Release);
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let renew = |limiter: &mut Limiter, rate: Option<&Rate>| match rate {
            Some(rate) => {
                limiter.adopt(*rate, now);
                true
            }
            None => false,
        };
        limiters.providers.retain(|(kind, _), l| renew(l, limits.rates.get(kind)));
        limiters.tenants.retain(|tenant, l| renew(l, limits.tenant_rates.get(tenant)));
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

    pub(super) fn refund(&self, lane: &LaneKey, count: usize, now: Timestamp) {
        self.with(lane, now, (), |levels, _| {
            levels.iter_mut().for_each(|level| level.refund(count, now));
        });
    }

    /// Each limit of the lane with the time at which there is room; takes nothing.
    pub(super) fn look(&self, lane: &LaneKey, now: Timestamp) -> Vec<(Hold, Timestamp)> {
        self.with(lane, now, Vec::new(), |levels, names| {
            names.iter().copied().zip(levels.iter().map(|level| level.next(now))).collect()
        })
    }

    /// Calls `act` with the limits of the lane, or answers `otherwise` if it has none.
    fn with<T>(
        &self,
        lane: &LaneKey,
        now: Timestamp,
        otherwise: T,
        act: impl FnOnce(&mut [&mut Limiter], &[Hold]) -> T,
    ) -> T {
        if !self.configured.load(Ordering::Acquire) {
            return otherwise;
        }
        let policy = self.policies.now();
        let limits = &policy.limits;
        let mut limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let Limiters { providers, tenants } = &mut *limiters;
        let (mut levels, mut names) = (Vec::with_capacity(2), Vec::with_capacity(2));
        if let Some(rate) = limits.rates.get(&lane.channel) {
            forget_idle(providers, now);
            let key = (lane.channel, lane.provider.clone());
            levels.push(providers.entry(key).or_insert_with(|| Limiter::new(*rate)));
            names.push(Hold::RateLimit);
        }
        if let Some(rate) = limits.tenant_rates.get(&lane.tenant) {
            levels.push(tenants.entry(lane.tenant.clone()).or_insert_with(|| Limiter::new(*rate)));
            names.push(Hold::TenantRateLimit);
        }
        if levels.is_empty() { otherwise } else { act(&mut levels, &names) }
    }

    pub(super) fn of(&self, lane: &LaneKey, level: Hold) -> Option<Rate> {
        let limits = &self.policies.now().limits;
        match level {
            Hold::RateLimit => limits.rates.get(&lane.channel).copied(),
            _ => limits.tenant_rates.get(&lane.tenant).copied(),
        }
    }
}

fn is_configured(limits: &Limits) -> bool {
    !limits.rates.is_empty() || !limits.tenant_rates.is_empty()
}

fn forget_idle(providers: &mut HashMap<OriginKey, Limiter>, now: Timestamp) {
    if providers.len() >= LIMITERS_MAX {
        providers.retain(|_, limiter| !limiter.is_idle(now));
    }
}
