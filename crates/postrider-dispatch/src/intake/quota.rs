//! Tenants that keep as much as they may. Their new messages are refused until there is room. Counts nothing itself:
//! whoever measures what tenants keep replaces the list.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::ports::store::NewMessage;
use postrider_core::{LaneKey, TenantId};

use super::refusal::IntakeRefusal;

/// A quota that is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaExcess {
    /// The setting, such as `limits.addresses_max`.
    pub quota: &'static str,
    pub found: u64,
    pub allowed: u64,
    /// What makes room.
    pub remedy: &'static str,
}

/// Why messages of a tenant are refused.
#[derive(Debug, Clone, Default)]
pub struct TenantOverQuota {
    /// No message is accepted.
    pub messages: Option<QuotaExcess>,
    /// No message is accepted that would need another lane than these.
    pub lanes: Option<(QuotaExcess, HashSet<Arc<LaneKey>>)>,
}

/// The tenants that are over a quota: usually none.
#[derive(Debug, Default)]
pub struct IntakeQuotas(RwLock<Arc<HashMap<TenantId, TenantOverQuota>>>);

impl IntakeQuotas {
    pub fn replace(&self, over: HashMap<TenantId, TenantOverQuota>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(over);
    }

    fn now(&self) -> Arc<HashMap<TenantId, TenantOverQuota>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The check for messages of a tenant; `None` if it is over no quota.
    pub(super) fn check(&self, tenant: &TenantId) -> Option<TenantOverQuota> {
        self.now().get(tenant).cloned()
    }
}

impl TenantOverQuota {
    pub(super) fn refuse(&self, message: &NewMessage) -> Option<IntakeRefusal> {
        if let Some(excess) = &self.messages {
            return Some(IntakeRefusal::quota(excess));
        }
        let (excess, known) = self.lanes.as_ref()?;
        let is_new = message.deliveries.iter().any(|delivery| !known.contains(&delivery.lane));
        is_new.then(|| IntakeRefusal::quota(excess))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_within_its_quotas_is_not_checked() {
        let quotas = IntakeQuotas::default();
        assert!(quotas.check(&TenantId::new("acme")).is_none());
        let over = HashMap::from([(TenantId::new("acme"), TenantOverQuota::default())]);
        quotas.replace(over);
        assert!(quotas.check(&TenantId::new("acme")).is_some());
        assert!(quotas.check(&TenantId::new("other")).is_none());
    }
}
