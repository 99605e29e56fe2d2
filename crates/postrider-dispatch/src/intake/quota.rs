//! Tenants that keep as much as they may. Their new messages are refused until there is room. Counts nothing itself:
//! whoever measures what tenants keep replaces the list.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use postrider_core::ports::store::NewMessage;
use postrider_core::{LaneKey, TenantId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::refusal::IntakeRefusal;

/// Calls of one tenant over a quota that are read and answered at the same time.
const TURNS: usize = 2;
/// A refused call is answered this late: so `TURNS` tell how many of them there are in a second ...
const PAUSE: Duration = Duration::from_millis(100);
/// ... and this says how many bytes of them are read and parsed in a second: large ones have fewer turns.
const BYTES_PER_S: u64 = 512 << 10;
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a call waits for its turn. Its body is not read meanwhile.
const WAIT: Duration = Duration::from_secs(1);
/// Tenants whose turns are remembered; beyond it, those without calls are forgotten.
const TENANTS_MAX: usize = 10_000;

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
pub struct IntakeQuotas {
    over: RwLock<Arc<HashMap<TenantId, Arc<TenantOverQuota>>>>,
    turns: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
}

/// The right of one call of a tenant over a quota to be read and answered. The call waits its pause with it.
#[derive(Debug)]
pub struct QuotaTurn {
    _permit: OwnedSemaphorePermit,
}

impl QuotaTurn {
    /// What a refused call waits that has read so many bytes, so that trying again at once costs others little.
    pub async fn pause(&self, bytes: usize) {
        tokio::time::sleep(pause_after(bytes)).await;
    }
}

fn pause_after(bytes: usize) -> Duration {
    let micros = (bytes as u64).saturating_mul(1_000_000) / BYTES_PER_S;
    (PAUSE + Duration::from_micros(micros)).min(PAUSE_MAX)
}

impl IntakeQuotas {
    pub fn replace(&self, over: HashMap<TenantId, TenantOverQuota>) {
        let over = over.into_iter().map(|(tenant, over)| (tenant, Arc::new(over))).collect();
        *self.over.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(over);
    }

    /// The check for messages of a tenant; `None` if it is over no quota.
    pub(super) fn check(&self, tenant: &TenantId) -> Option<Arc<TenantOverQuota>> {
        let over = self.over.read().unwrap_or_else(PoisonError::into_inner).clone();
        over.get(tenant).cloned()
    }

    /// Whether the messages of a tenant are refused, all or some of them.
    pub fn is_over(&self, tenant: &TenantId) -> bool {
        self.check(tenant).is_some()
    }

    /// Before the body of a message is read: waits for a turn if the tenant is over a quota.
    pub async fn turn(&self, tenant: &TenantId) -> Result<Option<QuotaTurn>, IntakeRefusal> {
        match self.check(tenant) {
            None => Ok(None),
            Some(_) => self.turn_of(tenant).await.map(Some),
        }
    }

    /// Waits for a turn of a tenant that is over a quota of any kind.
    pub async fn turn_of(&self, tenant: &TenantId) -> Result<QuotaTurn, IntakeRefusal> {
        let turns = {
            let mut all = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= TENANTS_MAX {
                all.retain(|_, turns| Arc::strong_count(turns) > 1);
            }
            all.entry(tenant.clone()).or_insert_with(|| Arc::new(Semaphore::new(TURNS))).clone()
        };
        match tokio::time::timeout(WAIT, turns.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(QuotaTurn { _permit: permit }),
            _ => Err(IntakeRefusal::no_turn()),
        }
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
    use futures_util::FutureExt as _;

    use super::*;

    fn over(tenant: &str) -> HashMap<TenantId, TenantOverQuota> {
        HashMap::from([(TenantId::new(tenant), TenantOverQuota::default())])
    }

    #[test]
    fn a_tenant_within_its_quotas_is_not_checked() {
        let quotas = IntakeQuotas::default();
        assert!(quotas.check(&TenantId::new("acme")).is_none());
        quotas.replace(over("acme"));
        assert!(quotas.check(&TenantId::new("acme")).is_some());
        assert!(quotas.check(&TenantId::new("other")).is_none());
    }

    #[test]
    fn a_refused_call_waits_the_longer_the_more_it_has_read() {
        assert_eq!(pause_after(0), PAUSE);
        assert_eq!(pause_after(512 << 10), PAUSE + Duration::from_secs(1));
        assert_eq!(pause_after(usize::MAX), PAUSE_MAX);
    }

    #[tokio::test]
    async fn calls_of_a_tenant_over_a_quota_take_turns_and_others_do_not() {
        let (quotas, acme) = (IntakeQuotas::default(), TenantId::new("acme"));
        quotas.replace(over("acme"));
        let mut turns = Vec::new();
        for _ in 0..TURNS {
            turns.push(quotas.turn(&acme).await.unwrap().unwrap());
        }
        assert!(quotas.turn(&acme).now_or_never().is_none(), "the next call waits");
        assert!(quotas.turn(&TenantId::new("other")).await.unwrap().is_none());
        drop(turns.pop());
        assert!(quotas.turn(&acme).await.unwrap().is_some());
    }
}
