//! Pauses and forced breakers that operators order. An order is durable before it takes effect, and stays in
//! force across restarts until it is revoked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::ports::store::{
    DocumentChanges, DocumentVersion, PutResult, Store, StoreError, StoreResult,
};
use postrider_core::{LaneKey, TenantId, Timestamp};
use postrider_dispatch::lanes::OperatorOrder;
use postrider_dispatch::{Lanes, QuotaExcess};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::documents::{OwnWrites, overwrite};

const LANE: &str = "pause/lane/";
const TENANT: &str = "pause/tenant/";
const BREAKER: &str = "breaker/";

/// An order as the store keeps it. Older versions also wrote the number of a lane, which says nothing to other nodes.
#[derive(Debug, Serialize, Deserialize)]
struct OperatorActionRecord {
    by: Arc<str>,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lane: Option<LaneKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forced: Option<BreakerOverride>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

impl OperatorActionRecord {
    fn new(order: &OperatorOrder, lane: Option<&LaneKey>) -> Self {
        let OperatorOrder { by, at, reason, until } = order.clone();
        Self { by, at, lane: lane.cloned(), forced: None, reason, until }
    }

    /// How long the store has to keep it; `None` for ever.
    fn kept_for(&self) -> Option<Duration> {
        self.until.map(|until| until.since(self.at))
    }

    /// Whether a stored order ended before another one was given.
    fn ended_before(text: &str, other: &Self) -> bool {
        let stored = serde_json::from_str::<Self>(text).ok();
        stored.and_then(|stored| stored.until).is_some_and(|until| until <= other.at)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error("the tenant has as many pauses as it may")]
    Full(QuotaExcess),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn is_order(name: &str) -> bool {
    [LANE, TENANT, BREAKER].iter().any(|kind| name.starts_with(kind))
}

fn breaker_name(lane: &LaneKey, origin: &str) -> String {
    format!("{BREAKER}{}/{origin}", lane.channel)
}

/// Applies and stores what operators order.
pub struct OperatorActions {
    store: Arc<dyn Store>,
    lanes: Arc<Lanes>,
    /// Locked during a change: one at a time.
    orders: Mutex<AppliedOrders>,
}

#[derive(Default)]
struct AppliedOrders {
    own: OwnWrites,
    /// By the names of their documents, each with the lane that it names.
    applied: BTreeMap<String, Option<LaneKey>>,
}

impl OperatorActions {
    /// Applies the orders that the store keeps.
    pub async fn restore(store: Arc<dyn Store>, lanes: Arc<Lanes>) -> StoreResult<Self> {
        let actions = Self { store, lanes, orders: Mutex::default() };
        let mut orders = actions.orders.lock().await;
        for kind in [LANE, TENANT, BREAKER] {
            for document in actions.store.documents(kind).await? {
                if let Some(text) = &document.json {
                    actions.apply_or_log(&mut orders, &document.name, text);
                }
            }
        }
        drop(orders);
        Ok(actions)
    }

    /// Applies what other nodes ordered and took back.
    pub async fn follow(&self, changes: &DocumentChanges) {
        let mut orders = self.orders.lock().await;
        let AppliedOrders { own, applied } = &mut *orders;
        for (name, text) in own.news(changes, is_order, || applied.keys().cloned().collect()) {
            match text {
                Some(text) => self.apply_or_log(&mut orders, &name, text),
                None => self.take_back(&mut orders, &name),
            }
        }
    }

    fn apply_or_log(&self, orders: &mut AppliedOrders, name: &str, text: &str) {
        if !self.apply(orders, name, text) {
            tracing::error!(setting = name, "an operator's order cannot be read");
        }
    }

    /// False if the order cannot be read.
    fn apply(&self, orders: &mut AppliedOrders, name: &str, text: &str) -> bool {
        let Ok(record) = serde_json::from_str::<OperatorActionRecord>(text) else { return false };
        let OperatorActionRecord { by, at, reason, until, .. } = record;
        let order = OperatorOrder { by, at, reason, until };
        match (name.strip_prefix(TENANT), &record.lane, record.forced) {
            (Some(tenant), ..) => {
                self.lanes.pause_tenant(TenantId::new(tenant), order);
            }
            (None, Some(lane), None) => {
                self.lanes.pause(Arc::new(lane.clone()), order);
            }
            (None, Some(lane), Some(forced)) => {
                self.force(name, lane, Some((forced, order)));
            }
            _ => return false,
        }
        orders.applied.insert(name.to_owned(), record.lane);
        true
    }

    fn take_back(&self, orders: &mut AppliedOrders, name: &str) {
        match (orders.applied.remove(name), name.strip_prefix(TENANT)) {
            (Some(_), Some(tenant)) => {
                self.lanes.resume_tenant(&TenantId::new(tenant));
            }
            (Some(Some(lane)), None) if name.starts_with(LANE) => {
                self.lanes.resume(&lane);
            }
            (Some(Some(lane)), None) => self.force(name, &lane, None),
            (Some(None) | None, _) => {}
        }
    }

    /// Forces the breaker that the order is about: of a provider, of an account that the lane still has, or of all of
    /// them by an order of an older version.
    fn force(&self, name: &str, lane: &LaneKey, forced: Option<(BreakerOverride, OperatorOrder)>) {
        let mut origins = self.lanes.origin_names(lane).into_iter();
        match origins.find(|origin| breaker_name(lane, origin) == name) {
            Some(origin) => self.lanes.force_breaker_of(lane.channel, origin, forced),
            None if breaker_name(lane, &lane.provider) == name => {
                self.lanes.force_breaker(lane, forced);
            }
            None => {}
        }
    }

    /// The lanes of a tenant that are paused.
    pub fn pauses_of(&self, tenant: &TenantId) -> u64 {
        let paused = self.lanes.paused_lanes().into_iter();
        paused.filter(|lane| lane.key.tenant == *tenant).count() as u64
    }

    /// Does nothing if it is paused already. A tenant has at most `max` pauses: every server keeps them. 0 is no limit.
    pub async fn pause_lane(
        &self,
        lane: &Arc<LaneKey>,
        order: OperatorOrder,
        max: u64,
    ) -> Result<(), PauseError> {
        let mut orders = self.orders.lock().await;
        if self.lanes.paused_lanes().iter().any(|paused| paused.key == *lane) {
            return Ok(());
        }
        let found = self.pauses_of(&lane.tenant);
        if max > 0 && found >= max {
            let remedy = "resume lanes (`postrider lanes resume`), or raise the limit";
            let quota = "limits.pauses_max";
            return Err(PauseError::Full(QuotaExcess { quota, found, allowed: max, remedy }));
        }
        let record = OperatorActionRecord::new(&order, Some(lane));
        if self.put_first(&mut orders, &lane_name(lane), record).await? {
            self.lanes.pause(lane.clone(), order);
        }
        Ok(())
    }

    /// False if it was not paused.
    pub async fn resume_lane(&self, lane: &LaneKey) -> StoreResult<bool> {
        let mut orders = self.orders.lock().await;
        self.put(&mut orders, &lane_name(lane), None).await?;
        Ok(self.lanes.resume(lane))
    }

    /// Does nothing if it is paused already.
    pub async fn pause_tenant(&self, tenant: &TenantId, order: OperatorOrder) -> StoreResult<()> {
        let mut orders = self.orders.lock().await;
        if self.lanes.paused_tenants().iter().any(|(paused, _)| paused == tenant) {
            return Ok(());
        }
        let record = OperatorActionRecord::new(&order, None);
        if self.put_first(&mut orders, &tenant_name(tenant), record).await? {
            self.lanes.pause_tenant(tenant.clone(), order);
        }
        Ok(())
    }

    /// False if it was not paused.
    pub async fn resume_tenant(&self, tenant: &TenantId) -> StoreResult<bool> {
        let mut orders = self.orders.lock().await;
        self.put(&mut orders, &tenant_name(tenant), None).await?;
        Ok(self.lanes.resume_tenant(tenant))
    }

    /// For all lanes of the provider, or of the lane's accounts; `None` lets the breaker decide by the counted
    /// failures.
    pub async fn force_breaker(
        &self,
        lane: &LaneKey,
        forced: Option<(BreakerOverride, OperatorOrder)>,
    ) -> StoreResult<()> {
        let mut orders = self.orders.lock().await;
        let record = || {
            forced.as_ref().map(|(forced, order)| OperatorActionRecord {
                forced: Some(*forced),
                ..OperatorActionRecord::new(order, Some(lane))
            })
        };
        let origins = self.lanes.origin_names(lane);
        if !origins.contains(&lane.provider) {
            // An order of an older version, about all accounts of the channel.
            let name = breaker_name(lane, &lane.provider);
            self.put(&mut orders, &name, None).await?;
        }
        for origin in &origins {
            self.put(&mut orders, &breaker_name(lane, origin), record()).await?;
        }
        self.lanes.force_breaker(lane, forced);
        Ok(())
    }

    async fn put(
        &self,
        orders: &mut AppliedOrders,
        name: &str,
        record: Option<OperatorActionRecord>,
    ) -> StoreResult<()> {
        let text = record.as_ref().and_then(|record| serde_json::to_string(record).ok());
        let kept = record.as_ref().and_then(OperatorActionRecord::kept_for);
        let version = match kept {
            None => overwrite(&*self.store, name, text.as_deref()).await?,
            Some(_) => match self.store.put_document(name, text.as_deref(), None, kept).await? {
                PutResult::Written(version) => version,
                PutResult::Conflict(_) => DocumentVersion::NONE,
            },
        };
        orders.wrote(name, version, record);
        Ok(())
    }

    /// Stores an order unless another node has stored one. Then that one is applied; false.
    async fn put_first(
        &self,
        orders: &mut AppliedOrders,
        name: &str,
        record: OperatorActionRecord,
    ) -> StoreResult<bool> {
        let text = serde_json::to_string(&record).ok();
        let absent = Some(DocumentVersion::NONE);
        let kept = record.kept_for();
        let found = match self.store.put_document(name, text.as_deref(), absent, kept).await? {
            PutResult::Written(version) => {
                orders.wrote(name, version, Some(record));
                return Ok(true);
            }
            PutResult::Conflict(found) => found.and_then(|document| document.json),
        };
        let found = found.filter(|text| !OperatorActionRecord::ended_before(text, &record));
        if found.is_some_and(|text| self.apply(orders, name, &text)) {
            return Ok(false);
        }
        // What is stored cannot be read, or is over.
        self.put(orders, name, Some(record)).await?;
        Ok(true)
    }
}

impl AppliedOrders {
    fn wrote(
        &mut self,
        name: &str,
        version: DocumentVersion,
        record: Option<OperatorActionRecord>,
    ) {
        self.own.note(name, version);
        match record {
            Some(record) => self.applied.insert(name.to_owned(), record.lane),
            None => self.applied.remove(name),
        };
    }
}

fn lane_name(lane: &LaneKey) -> String {
    format!("{LANE}{lane}")
}

fn tenant_name(tenant: &TenantId) -> String {
    format!("{TENANT}{tenant}")
}
