//! What operators say about lanes, tenants and providers, made durable: it stands across restarts
//! until it is taken back. Written down first, then obeyed.

use std::sync::Arc;

use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::ports::store::{Store, StoreResult};
use postrider_core::{LaneId, LaneKey, TenantId, Timestamp};
use postrider_dispatch::Lanes;
use postrider_dispatch::lanes::{OperatorOrder, PausedLane};
use serde::{Deserialize, Serialize};

const LANE: &str = "pause/lane/";
const TENANT: &str = "pause/tenant/";
const BREAKER: &str = "breaker/";

/// An order as it is kept.
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
    fn new(order: &OperatorOrder) -> Self {
        Self { by: order.by.clone(), at: order.at, lane: None, id: None, forced: None }
    }

    fn about(self, lane: &LaneKey) -> Self {
        Self { lane: Some(lane.clone()), ..self }
    }
}

pub struct OperatorActions {
    store: Arc<dyn Store>,
    lanes: Arc<Lanes>,
}

impl OperatorActions {
    /// Lets what was said before the last end of the server hold again.
    pub async fn restore(store: Arc<dyn Store>, lanes: Arc<Lanes>) -> StoreResult<Self> {
        let orders = Self { store, lanes };
        for (setting, text) in orders.store.settings().await? {
            let is_order = [LANE, TENANT, BREAKER].iter().any(|kind| setting.starts_with(kind));
            if is_order && !orders.obey_again(&setting, &text) {
                tracing::error!(setting, "an operator's order cannot be read");
            }
        }
        Ok(orders)
    }

    fn obey_again(&self, setting: &str, text: &str) -> bool {
        let Ok(kept) = serde_json::from_str::<OperatorActionRecord>(text) else { return false };
        let order = OperatorOrder { by: kept.by, at: kept.at };
        match (setting.strip_prefix(TENANT), kept.lane, kept.id, kept.forced) {
            (Some(tenant), ..) => {
                self.lanes.pause_tenant(TenantId::new(tenant), order);
            }
            (None, Some(lane), Some(id), None) => {
                self.lanes.pause(id, Arc::new(lane), order);
            }
            (None, Some(lane), None, Some(forced)) => {
                self.lanes.force_breaker(&lane, Some((forced, order)));
            }
            _ => return false,
        }
        true
    }

    /// The first word stands.
    pub async fn pause_lane(
        &self,
        id: LaneId,
        lane: &Arc<LaneKey>,
        order: OperatorOrder,
    ) -> StoreResult<PausedLane> {
        let paused = self.lanes.paused_lanes();
        if let Some(paused) = paused.into_iter().find(|paused| paused.key == *lane) {
            return Ok(paused);
        }
        let kept =
            OperatorActionRecord { id: Some(id), ..OperatorActionRecord::new(&order).about(lane) };
        self.keep(format!("{LANE}{lane}"), Some(kept)).await?;
        Ok(self.lanes.pause(id, lane.clone(), order))
    }

    /// False if it was not paused.
    pub async fn resume_lane(&self, lane: &LaneKey) -> StoreResult<bool> {
        self.keep(format!("{LANE}{lane}"), None).await?;
        Ok(self.lanes.resume(lane))
    }

    /// The first word stands.
    pub async fn pause_tenant(
        &self,
        tenant: &TenantId,
        order: OperatorOrder,
    ) -> StoreResult<OperatorOrder> {
        let paused = self.lanes.paused_tenants();
        if let Some((_, order)) = paused.into_iter().find(|(name, _)| name == tenant) {
            return Ok(order);
        }
        self.keep(format!("{TENANT}{tenant}"), Some(OperatorActionRecord::new(&order))).await?;
        Ok(self.lanes.pause_tenant(tenant.clone(), order))
    }

    /// False if it was not paused.
    pub async fn resume_tenant(&self, tenant: &TenantId) -> StoreResult<bool> {
        self.keep(format!("{TENANT}{tenant}"), None).await?;
        Ok(self.lanes.resume_tenant(tenant))
    }

    /// For all lanes of the lane's provider; `None` lets it be judged by what is counted.
    pub async fn force_breaker(
        &self,
        lane: &LaneKey,
        forced: Option<(BreakerOverride, OperatorOrder)>,
    ) -> StoreResult<()> {
        let kept = forced.as_ref().map(|(forced, order)| OperatorActionRecord {
            forced: Some(*forced),
            ..OperatorActionRecord::new(order).about(lane)
        });
        self.keep(format!("{BREAKER}{}/{}", lane.channel, lane.provider), kept).await?;
        self.lanes.force_breaker(lane, forced);
        Ok(())
    }

    async fn keep(&self, setting: String, kept: Option<OperatorActionRecord>) -> StoreResult<()> {
        let text = kept.and_then(|kept| serde_json::to_string(&kept).ok());
        self.store.put_setting(&setting, text.as_deref()).await
    }
}
