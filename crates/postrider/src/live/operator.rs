//! Pauses and forced breakers that operators order. An order is durable before it takes effect, and stays in
//! force across restarts until it is revoked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_channels::accounts::AccountListing;
use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::ports::store::{
    DocumentChanges, DocumentVersion, PutResult, Store, StoreError, StoreResult,
};
use postrider_core::{ChannelKind, LaneKey, TenantId, Timestamp};
use postrider_dispatch::lanes::OperatorOrder;
use postrider_dispatch::{Lanes, QuotaExcess};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::documents::{OwnWrites, overwrite};

const LANE: &str = "pause/lane/";
const TENANT: &str = "pause/tenant/";
const PROVIDER: &str = "pause/provider/";
const BREAKER: &str = "breaker/";
const KINDS: [&str; 4] = [LANE, TENANT, PROVIDER, BREAKER];

/// An order as the store keeps it. Older versions also wrote the number of a lane, which says nothing to other nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OperatorActionRecord {
    by: Arc<str>,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lane: Option<LaneKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider: Option<OrderedProvider>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forced: Option<BreakerOverride>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
}

/// A provider, or an account, that an order is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedProvider {
    pub channel: ChannelKind,
    /// An origin, or the name of an account.
    pub name: Arc<str>,
}

/// What an applied order is about.
enum OrderSubject {
    Tenant,
    Lane(LaneKey),
    Provider(OrderedProvider),
}

impl OperatorActionRecord {
    fn new(order: &OperatorOrder, lane: Option<&LaneKey>) -> Self {
        let OperatorOrder { by, at, reason, until } = order.clone();
        Self { by, at, lane: lane.cloned(), provider: None, forced: None, reason, until }
    }

    fn subject(self) -> OrderSubject {
        match (self.lane, self.provider) {
            (_, Some(provider)) => OrderSubject::Provider(provider),
            (Some(lane), None) => OrderSubject::Lane(lane),
            (None, None) => OrderSubject::Tenant,
        }
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
    KINDS.iter().any(|kind| name.starts_with(kind))
}

fn breaker_name(lane: &LaneKey, origin: &str) -> String {
    format!("{BREAKER}{}/{origin}", lane.channel)
}

/// Applies and stores what operators order.
pub struct OperatorActions {
    store: Arc<dyn Store>,
    lanes: Arc<Lanes>,
    /// The accounts of the channels, which choose no paused one.
    books: Vec<Arc<dyn AccountListing>>,
    /// Locked during a change: one at a time.
    orders: Mutex<AppliedOrders>,
}

#[derive(Default)]
struct AppliedOrders {
    own: OwnWrites,
    /// By the names of their documents.
    applied: BTreeMap<String, OrderSubject>,
}

impl OperatorActions {
    /// Applies the orders that the store keeps.
    pub async fn restore(
        store: Arc<dyn Store>,
        lanes: Arc<Lanes>,
        books: Vec<Arc<dyn AccountListing>>,
    ) -> StoreResult<Self> {
        let actions = Self { store, lanes, books, orders: Mutex::default() };
        let mut orders = actions.orders.lock().await;
        for kind in KINDS {
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
        let OperatorActionRecord { by, at, reason, until, forced, .. } = record.clone();
        let order = OperatorOrder { by, at, reason, until };
        let subject = record.subject();
        match (&subject, forced, name.strip_prefix(TENANT)) {
            (OrderSubject::Tenant, _, Some(tenant)) => {
                self.lanes.pause_tenant(TenantId::new(tenant), order);
            }
            (OrderSubject::Lane(lane), None, None) => {
                self.lanes.pause(Arc::new(lane.clone()), order);
            }
            (OrderSubject::Lane(lane), Some(forced), None) => {
                self.force(name, lane, Some((forced, order)));
            }
            (OrderSubject::Provider(provider), None, None) => {
                self.hold_provider(provider, order);
            }
            _ => return false,
        }
        orders.applied.insert(name.to_owned(), subject);
        true
    }

    fn hold_provider(&self, provider: &OrderedProvider, order: OperatorOrder) {
        let OrderedProvider { channel, name } = provider;
        let order = self.lanes.pause_provider(*channel, name.clone(), order);
        let until = order.until.unwrap_or(Timestamp::MAX);
        self.books.iter().for_each(|book| book.order_pause(*channel, name, Some(until)));
    }

    fn free_provider(&self, provider: &OrderedProvider) -> bool {
        let OrderedProvider { channel, name } = provider;
        self.books.iter().for_each(|book| book.order_pause(*channel, name, None));
        self.lanes.resume_provider(*channel, name)
    }

    fn take_back(&self, orders: &mut AppliedOrders, name: &str) {
        match (orders.applied.remove(name), name.strip_prefix(TENANT)) {
            (Some(OrderSubject::Tenant), Some(tenant)) => {
                self.lanes.resume_tenant(&TenantId::new(tenant));
            }
            (Some(OrderSubject::Lane(lane)), None) if name.starts_with(LANE) => {
                self.lanes.resume(&lane);
            }
            (Some(OrderSubject::Lane(lane)), None) => self.force(name, &lane, None),
            (Some(OrderSubject::Provider(provider)), _) => {
                self.free_provider(&provider);
            }
            _ => {}
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

    /// Does nothing if it is paused already.
    pub async fn pause_provider(
        &self,
        provider: &OrderedProvider,
        order: OperatorOrder,
    ) -> StoreResult<()> {
        let mut orders = self.orders.lock().await;
        if self.is_paused(provider) {
            return Ok(());
        }
        let mut record = OperatorActionRecord::new(&order, None);
        record.provider = Some(provider.clone());
        if self.put_first(&mut orders, &provider_name(provider), record).await? {
            self.hold_provider(provider, order);
        }
        Ok(())
    }

    /// False if it was not paused.
    pub async fn resume_provider(&self, provider: &OrderedProvider) -> StoreResult<bool> {
        let mut orders = self.orders.lock().await;
        self.put(&mut orders, &provider_name(provider), None).await?;
        Ok(self.free_provider(provider))
    }

    fn is_paused(&self, provider: &OrderedProvider) -> bool {
        let OrderedProvider { channel, name } = provider;
        let paused = self.lanes.paused_providers();
        paused.iter().any(|paused| paused.channel == *channel && paused.provider == *name)
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
            Some(record) => self.applied.insert(name.to_owned(), record.subject()),
            None => self.applied.remove(name),
        };
    }
}

fn lane_name(lane: &LaneKey) -> String {
    format!("{LANE}{lane}")
}

fn provider_name(provider: &OrderedProvider) -> String {
    format!("{PROVIDER}{}/{}", provider.channel, provider.name)
}

fn tenant_name(tenant: &TenantId) -> String {
    format!("{TENANT}{tenant}")
}
