//! All subscriptions: documents of the store, and in memory for the question who wants an event. Sends nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::TenantId;
use postrider_core::ports::store::{DocumentChanges, Store, StoreError, StoreResult};
use postrider_dispatch::QuotaExcess;
use tokio::sync::{Mutex, Notify};

use super::relay_state::state_name;
use super::{EventSubscription, LoggedEvent};
use crate::documents::{OwnWrites, overwrite};

const PREFIX: &str = "event-subscription/";

#[derive(Debug, thiserror::Error)]
pub(crate) enum SubscriptionError {
    #[error("the tenant has as many subscriptions as it may")]
    Full(QuotaExcess),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(crate) struct EventSubscriptions {
    store: Arc<dyn Store>,
    table: RwLock<Arc<BTreeMap<String, Arc<EventSubscription>>>>,
    /// Whether there is any.
    is_any: AtomicBool,
    /// One change at a time.
    changing: Mutex<OwnWrites>,
    pub(crate) changed: Notify,
}

impl EventSubscriptions {
    /// Skips and logs those that cannot be read.
    pub(crate) async fn load(store: Arc<dyn Store>) -> StoreResult<Self> {
        let mut table = BTreeMap::new();
        for document in store.documents(PREFIX).await? {
            put(&mut table, &document.name, document.json.as_deref());
        }
        let is_any = AtomicBool::new(!table.is_empty());
        let table = RwLock::new(Arc::new(table));
        Ok(Self { store, table, is_any, changing: Mutex::default(), changed: Notify::new() })
    }

    /// Costs one load.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    pub(crate) fn all(&self) -> Arc<BTreeMap<String, Arc<EventSubscription>>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn want(&self, event: &LoggedEvent) -> bool {
        self.all().values().any(|subscription| subscription.wants(event))
    }

    /// Whether events of this tenant are logged at all; without a tenant, those of the server.
    pub(crate) fn is_any_of(&self, tenant: Option<&TenantId>) -> bool {
        let is_its = |own: &Option<TenantId>| own.is_none() || own.as_ref() == tenant;
        self.all().values().any(|subscription| is_its(&subscription.tenant))
    }

    /// Those of one owner.
    pub(crate) fn of(&self, tenant: Option<&TenantId>) -> Vec<Arc<EventSubscription>> {
        let all = self.all();
        let own = all.values().filter(|subscription| subscription.tenant.as_ref() == tenant);
        own.cloned().collect()
    }

    /// Adds or replaces one. Durable on return. 0 is no limit.
    pub(crate) async fn put(
        &self,
        subscription: EventSubscription,
        max: u64,
    ) -> Result<(), SubscriptionError> {
        let mut own = self.changing.lock().await;
        let others = self.of(subscription.tenant.as_ref());
        let found = others.iter().filter(|other| other.id != subscription.id).count() as u64 + 1;
        if max > 0 && found > max {
            let remedy = "delete subscriptions that are not needed, or raise the limit";
            let quota = "limits.event_subscriptions_max";
            return Err(SubscriptionError::Full(QuotaExcess {
                quota,
                found,
                allowed: max,
                remedy,
            }));
        }
        let name = format!("{PREFIX}{}", subscription.id);
        let json = serde_json::to_string(&subscription).unwrap_or_default();
        own.note(&name, overwrite(&*self.store, &name, Some(&json)).await?);
        self.change(|table| drop(table.insert(subscription.id.clone(), subscription.into())));
        Ok(())
    }

    /// Deletes one, with how far it was.
    pub(crate) async fn delete(&self, id: &str) -> StoreResult<()> {
        let mut own = self.changing.lock().await;
        let name = format!("{PREFIX}{id}");
        own.note(&name, overwrite(&*self.store, &name, None).await?);
        self.change(|table| drop(table.remove(id)));
        overwrite(&*self.store, &state_name(id), None).await.map(drop)
    }

    /// Applies what other nodes changed.
    pub(crate) async fn follow(&self, changes: &DocumentChanges) {
        let mut own = self.changing.lock().await;
        let known = || self.all().keys().map(|id| format!("{PREFIX}{id}")).collect();
        let news = own.news(changes, |name| name.starts_with(PREFIX), known);
        if !news.is_empty() {
            self.change(|table| {
                news.iter().for_each(|(name, json)| put(table, name, *json));
            });
        }
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<String, Arc<EventSubscription>>)) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut table));
        self.is_any.store(!table.is_empty(), Ordering::Relaxed);
        self.changed.notify_one();
    }
}

fn put(table: &mut BTreeMap<String, Arc<EventSubscription>>, name: &str, json: Option<&str>) {
    let Some(id) = name.strip_prefix(PREFIX) else { return };
    let Some(json) = json else { return drop(table.remove(id)) };
    match serde_json::from_str::<EventSubscription>(json) {
        Ok(subscription) => drop(table.insert(id.to_owned(), subscription.into())),
        Err(error) => tracing::error!(id, %error, "an event subscription cannot be read"),
    }
}
