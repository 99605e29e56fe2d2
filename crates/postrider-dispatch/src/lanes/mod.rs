//! What every lane may do at this moment and what it waits for. The dispatcher asks before it leases and
//! tells how calls ended; the API shows it and passes on what operators order. Leases and sends nothing.

mod call;
mod checks;
mod operator;
mod permit;
mod provider;
mod rate_limits;
mod report;
mod retry_budgets;
mod slots;
mod wakeups;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::model::message::Priority;
use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::policy::throttle::Pause;
use postrider_core::{ChannelKind, Clock, LaneId, LaneKey, LaneState, TenantId, Timestamp};

use crate::jitter_rng::JitterRng;
use crate::limits::DispatchLimits;
use crate::policies::{Policies, Policy};
pub use call::LaneEvent;
pub(crate) use call::{CallEffect, CallResult};
use checks::LaneContext;
pub use checks::gates;
use operator::OperatorOrders;
pub use operator::{OperatorOrder, PausedLane};
pub(crate) use permit::{CallPermit, LanePermit};
use provider::LaneProvider;
use rate_limits::RateLimits;
pub use report::{GateVerdict, LaneReport};
pub(crate) use retry_budgets::RetryAllowance;
use retry_budgets::RetryBudgets;
use slots::FreedSlots;
pub(crate) use wakeups::Wakeup;
use wakeups::Wakeups;

/// Beyond this many, idle providers are forgotten.
const PROVIDERS_MAX: usize = 10_000;
const PER_ORIGIN_DEFAULT: usize = 64;

/// Names a [`LaneProvider`].
pub(crate) type ProviderKey = (ChannelKind, Arc<str>);

pub(crate) fn provider_key(lane: &LaneKey) -> ProviderKey {
    (lane.channel, lane.provider.clone())
}

/// Why nothing can be sent at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneRefusal {
    pub(crate) state: LaneState,
    /// Every lane of the provider would be told the same (of this priority, where no slot is free).
    pub(crate) of_provider: bool,
}

pub struct Lanes {
    clock: Arc<dyn Clock>,
    policies: Arc<Policies>,
    random: JitterRng,
    providers: Mutex<HashMap<ProviderKey, Arc<LaneProvider>>>,
    budgets: RetryBudgets,
    rates: RateLimits,
    operator: OperatorOrders,
    pub(crate) wakeups: Wakeups,
}

impl Lanes {
    pub fn new(policies: Arc<Policies>, clock: Arc<dyn Clock>, seed: u64) -> Arc<Self> {
        let policy = policies.now();
        let wakeups = Wakeups::default();
        let weak = Arc::downgrade(wakeups.waker());
        clock.on_move(Arc::new(move || {
            if let Some(wake) = weak.upgrade() {
                wake.notify_one();
            }
        }));
        Arc::new(Self {
            clock,
            budgets: RetryBudgets::new(policy.limits.retry_budget),
            rates: RateLimits::new(policies.clone()),
            policies,
            random: JitterRng::new(seed),
            providers: Mutex::default(),
            operator: OperatorOrders::default(),
            wakeups,
        })
    }

    pub fn policies(&self) -> &Arc<Policies> {
        &self.policies
    }

    /// Applies another policy from now on, for everyone who shares these [`Policies`]. What was learned
    /// about providers stays where the new policy allows; calls under way end as they would have.
    pub fn adopt(&self, policy: Policy) {
        let policy = Arc::new(policy);
        self.policies.replace(policy.clone());
        self.budgets.adopt(policy.limits.retry_budget);
        self.rates.adopt(&policy.limits, self.clock.now());
        for ((channel, _), provider) in self.providers().iter() {
            provider.adopt(per_origin(&policy.limits, *channel), policy.limits.breaker);
        }
        self.acted();
    }

    /// Asks every check of the lane for up to `want` calls.
    pub(crate) fn admit(
        self: &Arc<Self>,
        lane: &Arc<LaneKey>,
        priority: Priority,
        want: usize,
    ) -> Result<LanePermit, LaneRefusal> {
        let now = self.clock.now();
        let provider = self.provider(lane, now);
        let free_slots = checks::slots_for(&provider, priority, want);
        let mut context = LaneContext::new(self, lane, &provider, now);
        context.free_slots = free_slots;
        let (calls, epochs) = context.admit(want)?;
        drop(context);
        let call = CallPermit { provider, lane: lane.clone(), epochs, priority };
        Ok(LanePermit { lanes: self.clone(), call, calls, at: now })
    }

    /// Counts what is about to be attempted; says how many of the retries fit the lane's budget.
    pub(crate) fn spend(
        &self,
        lane: &Arc<LaneKey>,
        firsts: usize,
        retries: usize,
    ) -> RetryAllowance {
        self.budgets.spend(lane, firsts, retries, self.clock.now())
    }

    /// Takes one call to an address from its rate, or says when there may be one.
    pub(crate) fn take_address(&self, lane: &LaneKey, target: u64) -> Result<(), Timestamp> {
        self.rates.take_address(lane.channel, target, self.clock.now())
    }

    /// The end of a call, with its result if there was an answer.
    pub(crate) fn ended(&self, permit: &CallPermit, result: Option<CallResult>) -> CallEffect {
        let effect = self.learn(permit, result.as_ref());
        if effect.refills_budget {
            self.wakeups.post(Wakeup::Lane(permit.lane.clone()));
        }
        let provider = || provider_key(&permit.lane);
        match permit.provider.slots.free_one(permit.priority) {
            // Also for the worse: a lane that waited for a probe to end now waits for another time.
            _ if effect.eased || effect.event.is_some() || result.is_none() => {
                self.wakeups.post(Wakeup::GatesChanged(provider()));
            }
            FreedSlots::Enough => self.wakeups.post(Wakeup::SlotsFree(provider())),
            FreedSlots::Few => self.wakeups.gather(provider(), permit.provider.clone()),
            FreedSlots::Unwanted => {}
        }
        effect
    }

    fn learn(&self, permit: &CallPermit, result: Option<&CallResult>) -> CallEffect {
        let now = self.clock.now_rounded_up();
        let random = result.map_or(0.0, |_| self.random.next());
        let mut context = LaneContext::new(self, &permit.lane, &permit.provider, now);
        (context.epochs, context.begun, context.random) = (permit.epochs, true, random);
        if let Some(result) = result {
            return context.learn(result);
        }
        context.give_back(1);
        CallEffect::default()
    }

    /// Leases nothing more from the lane until it is resumed. The first order stands.
    pub fn pause(&self, id: LaneId, key: Arc<LaneKey>, order: OperatorOrder) -> PausedLane {
        self.operator.pause_lane(PausedLane { id, key, order })
    }

    /// False if it was not paused.
    pub fn resume(&self, key: &LaneKey) -> bool {
        let was_paused = self.operator.resume_lane(key);
        self.wakeups.post(Wakeup::Lane(Arc::new(key.clone())));
        was_paused
    }

    /// By lane.
    pub fn paused_lanes(&self) -> Vec<PausedLane> {
        self.operator.lanes()
    }

    /// Leases nothing more of the tenant until it is resumed. The first order stands.
    pub fn pause_tenant(&self, tenant: TenantId, order: OperatorOrder) -> OperatorOrder {
        self.operator.pause_tenant(tenant, order)
    }

    /// False if it was not paused.
    pub fn resume_tenant(&self, tenant: &TenantId) -> bool {
        let was_paused = self.operator.resume_tenant(tenant);
        self.acted();
        was_paused
    }

    /// By name.
    pub fn paused_tenants(&self) -> Vec<(TenantId, OperatorOrder)> {
        self.operator.tenants()
    }

    /// Forces the breaker of a lane's provider by an operator's order; `None` takes it back. `Closed`
    /// also ends the provider's `Retry-After` and the doubt that so many addresses are gone.
    pub fn force_breaker(&self, lane: &LaneKey, forced: Option<(BreakerOverride, OperatorOrder)>) {
        let now = self.clock.now();
        self.operator.force(provider_key(lane), forced.clone());
        let forced = forced.map(|(forced, _)| forced);
        let provider = self.provider(lane, now);
        {
            let mut gates = provider.gates();
            gates.breaker.force(forced);
            let closed = forced == Some(BreakerOverride::Closed);
            if closed {
                gates.pause = Pause::default();
                gates.tenants.values_mut().for_each(|own| own.pause = Pause::default());
            }
            gates.tenants.values_mut().for_each(|own| own.credential.believe_gone(closed));
        }
        self.acted();
    }

    /// The tenant has a new credential: it is tried at once where the old one was refused.
    pub fn credential_renewed(&self, tenant: &TenantId) {
        for provider in self.providers().values() {
            if let Some(own) = provider.gates().tenants.get_mut(tenant) {
                own.credential.renewed();
            }
        }
        self.acted();
    }

    fn acted(&self) {
        self.wakeups.post(Wakeup::All);
    }

    fn providers(&self) -> MutexGuard<'_, HashMap<ProviderKey, Arc<LaneProvider>>> {
        self.providers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn provider(&self, lane: &LaneKey, now: Timestamp) -> Arc<LaneProvider> {
        let mut providers = self.providers();
        let key = provider_key(lane);
        if let Some(provider) = providers.get(&key) {
            return provider.clone();
        }
        if providers.len() >= PROVIDERS_MAX {
            providers.retain(|_, provider| !provider.is_idle(now));
        }
        let provider = self.new_provider(lane);
        providers.insert(key, provider.clone());
        provider
    }

    fn new_provider(&self, lane: &LaneKey) -> Arc<LaneProvider> {
        let limits = &self.policies.now().limits;
        let provider = LaneProvider::new(per_origin(limits, lane.channel), limits.breaker);
        if let Some((forced, _)) = self.operator.forced(&provider_key(lane)) {
            provider.gates().breaker.force(Some(forced));
        }
        Arc::new(provider)
    }
}

fn per_origin(limits: &DispatchLimits, channel: ChannelKind) -> usize {
    limits.per_origin.get(&channel).copied().unwrap_or(PER_ORIGIN_DEFAULT)
}

#[cfg(test)]
mod tests;
