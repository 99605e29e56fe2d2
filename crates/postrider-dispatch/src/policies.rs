//! The classes and limits in force: one snapshot, replaced as a whole while the server runs. Readers take
//! it once per batch or round, so that none sees half of a change. Checks nothing: the caller did.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::policy::backpressure::Capacity;
use postrider_core::{Class, TenantId};

use crate::audience::AudienceBook;
use crate::limits::DispatchLimits;

/// How much may be pending.
#[derive(Debug, Clone, Default)]
pub struct Capacities {
    /// All tenants together.
    pub server: Capacity,
    /// Each tenant that is not named.
    pub tenant: Capacity,
    pub tenants: HashMap<TenantId, Capacity>,
    /// Room that a tenant has when the server has none left.
    pub reserved: HashMap<TenantId, Capacity>,
}

impl Capacities {
    pub fn of(&self, tenant: &TenantId) -> Capacity {
        self.tenants.get(tenant).copied().unwrap_or(self.tenant)
    }

    /// The server's capacity as this tenant may use it.
    pub fn server_for(&self, tenant: &TenantId) -> Capacity {
        let reserved = self.reserved.get(tenant).copied().unwrap_or_default();
        // 0 is no bound.
        let sum = |max: u64, more: u64| if max == 0 { 0 } else { max.saturating_add(more) };
        Capacity {
            deliveries_max: sum(self.server.deliveries_max, reserved.deliveries_max),
            bytes_max: sum(self.server.bytes_max, reserved.bytes_max),
        }
    }
}

/// Everything that can change while the server runs.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    pub limits: DispatchLimits,
    pub capacities: Capacities,
    classes: HashMap<Arc<str>, Arc<Class>>,
    fallback: Arc<Class>,
}

impl Policy {
    pub fn new(classes: impl IntoIterator<Item = Class>, limits: DispatchLimits) -> Self {
        let named = |class: Class| (class.name.clone(), Arc::new(class));
        Self { limits, classes: classes.into_iter().map(named).collect(), ..Self::default() }
    }

    /// The same with bounds on what may be pending.
    pub fn bounded(self, capacities: Capacities) -> Self {
        Self { capacities, ..self }
    }

    pub fn class(&self, name: &str) -> Option<&Arc<Class>> {
        self.classes.get(name)
    }

    /// The class of that name, or the default for one that is not configured any more.
    pub fn class_or_default(&self, name: &str) -> &Arc<Class> {
        self.class(name).unwrap_or(&self.fallback)
    }

    /// In order.
    pub fn class_names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.classes.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }
}

/// Holds the snapshot, which [`Lanes::adopt`](crate::Lanes::adopt) alone changes, and the rules of tenants for their
/// audience.
#[derive(Debug, Default)]
pub struct Policies {
    current: RwLock<Arc<Policy>>,
    audience: AudienceBook,
}

impl Policies {
    pub fn new(policy: Policy) -> Arc<Self> {
        Arc::new(Self { current: RwLock::new(Arc::new(policy)), audience: AudienceBook::default() })
    }

    pub fn now(&self) -> Arc<Policy> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn audience(&self) -> &AudienceBook {
        &self.audience
    }

    pub(crate) fn replace(&self, policy: Arc<Policy>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }
}
