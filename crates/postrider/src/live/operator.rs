//! Pauses and forced breakers that operators order. An order is durable before it takes effect, and stays in
//! force across restarts until it is revoked.

use std::sync::Arc;

use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::ports::store::{Store, StoreResult};
use postrider_core::{LaneId, LaneKey, TenantId, Timestamp};
use postrider_dispatch::Lanes;
use postrider_dispatch::lanes::OperatorOrder;
use serde::{Deserialize, Serialize};

const LANE: &str = "pause/lane/";
const TENANT: &str = "pause/tenant/";
const BREAKER: &str = "breaker/";

/// An order as the store keeps it.
#[derive(Debug, Serialize, Deserialize)]
struct OperatorActionRecord {
    by: Arc<str>,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lane: Option<LaneKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<LaneId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forced: Option<BreakerOverride>,
}

impl OperatorActionRecord {
    fn new(order: &OperatorOrder, lane: Option<&LaneKey>) -> Self {
        let (by, at, lane) = (order.by.clone(), order.at, lane.cloned());
        Self { by, at, lane, id: None, forced: None }
    }
}

fn breaker_setting(lane: &LaneKey, name: &str) -> String {
    format!("{BREAKER}{}/{name}", lane.channel)
}

/// Applies and stores what operators order.
pub struct OperatorActions {
    store: Arc<dyn Store>,
    lanes: Arc<Lanes>,
}

impl OperatorActions {
    /// Applies the orders that the store keeps.
    pub async fn restore(store: Arc<dyn Store>, lanes: Arc<Lanes>) -> StoreResult<Self> {
        let actions = Self { store, lanes };
        for (setting, text) in actions.store.settings().await? {
            let is_order = [LANE, TENANT, BREAKER].iter().any(|kind| setting.starts_with(kind));
            if is_order && !actions.apply_stored(&setting, &text) {
                tracing::error!(setting, "an operator's order cannot be read");
            }
        }
        Ok(actions)
    }

    fn apply_stored(&self, setting: &str, text: &str) -> bool {
        let Ok(record) = serde_json::from_str::<OperatorActionRecord>(text) else { return false };
        let order = OperatorOrder { by: record.by, at: record.at };
        match (setting.strip_prefix(TENANT), record.lane, record.id, record.forced) {
            (Some(tenant), ..) => {
                self.lanes.pause_tenant(TenantId::new(tenant), order);
            }
            (None, Some(lane), Some(id), None) => {
                self.lanes.pause(id, Arc::new(lane), order);
            }
            (None, Some(lane), None, Some(forced)) => {
                if self.concerns(setting, &lane) {
                    self.lanes.force_breaker(&lane, Some((forced, order)));
                }
            }
            _ => return false,
        }
        true
    }

    /// Whether the order is about an account that the lane still has, or about its provider.
    fn concerns(&self, setting: &str, lane: &LaneKey) -> bool {
        let mut names = self.lanes.origin_names(lane);
        names.push(lane.provider.clone());
        names.iter().any(|name| setting == breaker_setting(lane, name))
    }

    /// Does nothing if it is paused already.
    pub async fn pause_lane(
        &self,
        id: LaneId,
        lane: &Arc<LaneKey>,
        order: OperatorOrder,
    ) -> StoreResult<()> {
        if self.lanes.paused_lanes().iter().any(|paused| paused.key == *lane) {
            return Ok(());
        }
        let record = OperatorActionRecord::new(&order, Some(lane));
        let record = OperatorActionRecord { id: Some(id), ..record };
        self.put(format!("{LANE}{lane}"), Some(record)).await?;
        self.lanes.pause(id, lane.clone(), order);
        Ok(())
    }

    /// False if it was not paused.
    pub async fn resume_lane(&self, lane: &LaneKey) -> StoreResult<bool> {
        self.put(format!("{LANE}{lane}"), None).await?;
        Ok(self.lanes.resume(lane))
    }

    /// Does nothing if it is paused already.
    pub async fn pause_tenant(&self, tenant: &TenantId, order: OperatorOrder) -> StoreResult<()> {
        if self.lanes.paused_tenants().iter().any(|(paused, _)| paused == tenant) {
            return Ok(());
        }
        let record = OperatorActionRecord::new(&order, None);
        self.put(format!("{TENANT}{tenant}"), Some(record)).await?;
        self.lanes.pause_tenant(tenant.clone(), order);
        Ok(())
    }

    /// False if it was not paused.
    pub async fn resume_tenant(&self, tenant: &TenantId) -> StoreResult<bool> {
        self.put(format!("{TENANT}{tenant}"), None).await?;
        Ok(self.lanes.resume_tenant(tenant))
    }

    /// For all lanes of the provider, or of the lane's accounts; `None` lets the breaker decide by the counted
    /// failures.
    pub async fn force_breaker(
        &self,
        lane: &LaneKey,
        forced: Option<(BreakerOverride, OperatorOrder)>,
    ) -> StoreResult<()> {
        let record = || {
            forced.as_ref().map(|(forced, order)| OperatorActionRecord {
                forced: Some(*forced),
                ..OperatorActionRecord::new(order, Some(lane))
            })
        };
        let names = self.lanes.origin_names(lane);
        if !names.contains(&lane.provider) {
            // An order of an older version, about all accounts of the channel.
            self.put(breaker_setting(lane, &lane.provider), None).await?;
        }
        for name in &names {
            self.put(breaker_setting(lane, name), record()).await?;
        }
        self.lanes.force_breaker(lane, forced);
        Ok(())
    }

    async fn put(&self, setting: String, record: Option<OperatorActionRecord>) -> StoreResult<()> {
        let text = record.and_then(|record| serde_json::to_string(&record).ok());
        self.store.put_setting(&setting, text.as_deref()).await
    }
}
