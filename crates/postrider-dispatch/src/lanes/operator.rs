//! Orders of operators about lanes, tenants, providers and accounts. An order holds until it is taken back, or until
//! its time is over. Makes nothing durable: the caller does. Without an order, asking costs nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::{ChannelKind, Gate, LaneKey, LaneState, TenantId, Timestamp};

use super::ProviderKey;

/// Who gave an order, when, why, and until when it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorOrder {
    pub by: Arc<str>,
    pub at: Timestamp,
    pub reason: Option<Arc<str>>,
    /// Absent if it holds until it is taken back.
    pub until: Option<Timestamp>,
}

impl OperatorOrder {
    /// An order without a reason, until it is taken back.
    pub fn new(by: impl Into<Arc<str>>, at: Timestamp) -> Self {
        Self { by: by.into(), at, reason: None, until: None }
    }

    /// Whether it ended by itself.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl std::fmt::Display for OperatorOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "by {} at {}", self.by, self.at)?;
        if let Some(until) = self.until {
            write!(f, " until {until}")?;
        }
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

/// A lane that an operator paused.
#[derive(Debug, Clone)]
pub struct PausedLane {
    pub key: Arc<LaneKey>,
    pub order: OperatorOrder,
}

/// A provider or an account that an operator paused.
#[derive(Debug, Clone)]
pub struct PausedProvider {
    pub channel: ChannelKind,
    /// An origin, or the name of an account.
    pub provider: Arc<str>,
    pub order: OperatorOrder,
}

#[derive(Default)]
pub(super) struct OperatorOrders {
    pauses: Mutex<PauseOrders>,
    /// How many there are, so that nobody takes the lock while nothing is paused.
    paused: AtomicUsize,
    breakers: Mutex<HashMap<ProviderKey, (BreakerOverride, OperatorOrder)>>,
}

#[derive(Default)]
struct PauseOrders {
    lanes: HashMap<Arc<LaneKey>, PausedLane>,
    tenants: HashMap<TenantId, OperatorOrder>,
    providers: HashMap<ProviderKey, OperatorOrder>,
}

impl OperatorOrder {
    /// What it does to a lane: nothing if it is over.
    fn holds(&self, on: Gate, now: Timestamp) -> Option<LaneState> {
        match self.until {
            Some(until) if until <= now => None,
            Some(until) => Some(LaneState::Waiting { on, until }),
            None => Some(LaneState::Blocked { on }),
        }
    }
}

impl OperatorOrders {
    /// The pause that holds the lane at this provider, if there is one.
    pub(super) fn pause_state(
        &self,
        lane: &LaneKey,
        provider: &ProviderKey,
        now: Timestamp,
    ) -> Option<LaneState> {
        if self.paused.load(Ordering::Acquire) == 0 {
            return None;
        }
        let pauses = self.pauses();
        let tenant = pauses.tenants.get(&lane.tenant);
        let tenant = tenant.and_then(|order| order.holds(Gate::TenantPaused, now));
        let own = || pauses.lanes.get(lane)?.order.holds(Gate::Paused, now);
        let provider = || pauses.providers.get(provider)?.holds(Gate::ProviderPaused, now);
        tenant.or_else(own).or_else(provider)
    }

    /// The pause of a provider or account, whatever lane asks.
    pub(super) fn provider_pause_state(
        &self,
        provider: &ProviderKey,
        now: Timestamp,
    ) -> Option<LaneState> {
        if self.paused.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.pauses().providers.get(provider)?.holds(Gate::ProviderPaused, now)
    }

    /// Who paused the lane's tenant, who the lane, and who its provider: each with its gate.
    pub(super) fn pauses_of(
        &self,
        lane: &LaneKey,
        provider: &ProviderKey,
        now: Timestamp,
    ) -> [(Gate, Option<OperatorOrder>); 3] {
        let pauses = self.pauses();
        let tenant = pauses.tenants.get(&lane.tenant).cloned();
        let own = pauses.lanes.get(lane).map(|paused| paused.order.clone());
        let provider = pauses.providers.get(provider).cloned();
        let all =
            [(Gate::TenantPaused, tenant), (Gate::Paused, own), (Gate::ProviderPaused, provider)];
        all.map(|(gate, order)| (gate, order.filter(|order| !order.is_over(now))))
    }

    /// The first order stands, as long as it holds.
    pub(super) fn pause_provider(
        &self,
        provider: ProviderKey,
        order: OperatorOrder,
        now: Timestamp,
    ) -> OperatorOrder {
        self.changed(|pauses| {
            pauses.providers.retain(|_, order| !order.is_over(now));
            pauses.providers.entry(provider).or_insert(order).clone()
        })
    }

    pub(super) fn resume_provider(&self, provider: &ProviderKey, now: Timestamp) -> bool {
        let removed = self.changed(|pauses| pauses.providers.remove(provider));
        removed.is_some_and(|order| !order.is_over(now))
    }

    /// By channel and name.
    pub(super) fn providers(&self, now: Timestamp) -> Vec<PausedProvider> {
        let pauses = self.pauses();
        let holding = pauses.providers.iter().filter(|(_, order)| !order.is_over(now));
        let paused = holding.map(|((channel, provider), order)| PausedProvider {
            channel: *channel,
            provider: provider.clone(),
            order: order.clone(),
        });
        let mut all: Vec<_> = paused.collect();
        all.sort_by(|a, b| (a.channel, &a.provider).cmp(&(b.channel, &b.provider)));
        all
    }

    /// The first order stands, as long as it holds.
    pub(super) fn pause_lane(&self, lane: PausedLane, now: Timestamp) -> PausedLane {
        self.changed(|pauses| {
            pauses.lanes.retain(|_, paused| !paused.order.is_over(now));
            pauses.lanes.entry(lane.key.clone()).or_insert(lane).clone()
        })
    }

    pub(super) fn resume_lane(&self, lane: &LaneKey, now: Timestamp) -> bool {
        let removed = self.changed(|pauses| pauses.lanes.remove(lane));
        removed.is_some_and(|paused| !paused.order.is_over(now))
    }

    pub(super) fn pause_tenant(&self, tenant: TenantId, order: OperatorOrder) -> OperatorOrder {
        self.changed(|pauses| pauses.tenants.entry(tenant).or_insert(order).clone())
    }

    pub(super) fn resume_tenant(&self, tenant: &TenantId) -> bool {
        self.changed(|pauses| pauses.tenants.remove(tenant).is_some())
    }

    /// By lane.
    pub(super) fn lanes(&self, now: Timestamp) -> Vec<PausedLane> {
        let mut all: Vec<_> = self.pauses().lanes.values().cloned().collect();
        all.retain(|paused| !paused.order.is_over(now));
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all
    }

    /// By name.
    pub(super) fn tenants(&self) -> Vec<(TenantId, OperatorOrder)> {
        let tenants = self.pauses().tenants.clone();
        let mut all: Vec<_> = tenants.into_iter().collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    pub(super) fn force(
        &self,
        provider: ProviderKey,
        forced: Option<(BreakerOverride, OperatorOrder)>,
    ) {
        let mut breakers = self.breakers();
        match forced {
            Some(forced) => breakers.insert(provider, forced),
            None => breakers.remove(&provider),
        };
    }

    pub(super) fn forced(
        &self,
        provider: &ProviderKey,
    ) -> Option<(BreakerOverride, OperatorOrder)> {
        self.breakers().get(provider).cloned()
    }

    fn changed<T>(&self, change: impl FnOnce(&mut PauseOrders) -> T) -> T {
        let mut pauses = self.pauses();
        let answer = change(&mut pauses);
        let paused = pauses.lanes.len() + pauses.tenants.len() + pauses.providers.len();
        self.paused.store(paused, Ordering::Release);
        answer
    }

    fn pauses(&self) -> MutexGuard<'_, PauseOrders> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn breakers(&self) -> MutexGuard<'_, HashMap<ProviderKey, (BreakerOverride, OperatorOrder)>> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
