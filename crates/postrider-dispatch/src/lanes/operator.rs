//! Orders of operators about lanes, tenants and providers. An order holds until it is taken back. Makes
//! nothing durable: the caller does. Without an order, asking costs nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::{Gate, LaneKey, TenantId, Timestamp};

use super::ProviderKey;

/// Who gave an order, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorOrder {
    pub by: Arc<str>,
    pub at: Timestamp,
}

impl std::fmt::Display for OperatorOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "by {} at {}", self.by, self.at)
    }
}

/// A lane that an operator paused.
#[derive(Debug, Clone)]
pub struct PausedLane {
    pub key: Arc<LaneKey>,
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
}

impl OperatorOrders {
    /// The pause that holds the lane, if there is one.
    pub(super) fn pause_gate(&self, lane: &LaneKey) -> Option<Gate> {
        if self.paused.load(Ordering::Acquire) == 0 {
            return None;
        }
        let pauses = self.pauses();
        if pauses.tenants.contains_key(&lane.tenant) {
            return Some(Gate::TenantPaused);
        }
        pauses.lanes.contains_key(lane).then_some(Gate::Paused)
    }

    /// Who paused the lane's tenant, and who the lane.
    pub(super) fn pauses_of(
        &self,
        lane: &LaneKey,
    ) -> (Option<OperatorOrder>, Option<OperatorOrder>) {
        let pauses = self.pauses();
        let tenant = pauses.tenants.get(&lane.tenant).cloned();
        (tenant, pauses.lanes.get(lane).map(|paused| paused.order.clone()))
    }

    /// The first order stands.
    pub(super) fn pause_lane(&self, lane: PausedLane) -> PausedLane {
        self.changed(|pauses| pauses.lanes.entry(lane.key.clone()).or_insert(lane).clone())
    }

    pub(super) fn resume_lane(&self, lane: &LaneKey) -> bool {
        self.changed(|pauses| pauses.lanes.remove(lane).is_some())
    }

    pub(super) fn pause_tenant(&self, tenant: TenantId, order: OperatorOrder) -> OperatorOrder {
        self.changed(|pauses| pauses.tenants.entry(tenant).or_insert(order).clone())
    }

    pub(super) fn resume_tenant(&self, tenant: &TenantId) -> bool {
        self.changed(|pauses| pauses.tenants.remove(tenant).is_some())
    }

    /// By lane.
    pub(super) fn lanes(&self) -> Vec<PausedLane> {
        let mut all: Vec<_> = self.pauses().lanes.values().cloned().collect();
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
        self.paused.store(pauses.lanes.len() + pauses.tenants.len(), Ordering::Release);
        answer
    }

    fn pauses(&self) -> MutexGuard<'_, PauseOrders> {
        self.pauses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn breakers(&self) -> MutexGuard<'_, HashMap<ProviderKey, (BreakerOverride, OperatorOrder)>> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
