//! Our own keys: VAPID key pairs and webhook secrets per tenant, and the key with which endpoints are
//! hashed. Created on first use, rotated with an overlap, cached in memory.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use postrider_channels::webhook::{WebhookSecret, WebhookSecrets};
use postrider_channels::webpush::{VapidKey, VapidKeys};
use postrider_core::ports::store::{SigningKey, SigningKind, Store};
use postrider_core::{Clock, KeyId, TenantId, Timestamp};

use super::{DEFAULT_TENANT, KeyError, text};

/// One key, for a list.
#[derive(Debug, Clone)]
pub struct SigningKeyInfo {
    pub id: KeyId,
    /// The VAPID public key, or the webhook secret in the form that receivers use.
    pub text: String,
    pub active: bool,
    pub created_at: Timestamp,
    pub retired_at: Option<Timestamp>,
}

#[derive(Default)]
struct SigningKeyCache {
    tenants: HashMap<TenantId, Arc<TenantKeys>>,
    hash: Vec<u8>,
}

/// Newest first: the first of each is the active one.
#[derive(Clone, Default)]
struct TenantKeys {
    vapid: Vec<(Arc<VapidKey>, SigningKey)>,
    webhook: Vec<(Arc<WebhookSecret>, SigningKey)>,
}

pub struct SigningKeys {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// How long a replaced webhook secret goes on signing.
    overlap: Duration,
    cache: RwLock<SigningKeyCache>,
    /// Locked while keys are created: one at a time.
    creating: tokio::sync::Mutex<()>,
}

impl SigningKeys {
    /// Loads all keys and creates those that the default tenant lacks. `vapid_private_key` becomes the
    /// default tenant's active key.
    pub async fn load(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        overlap: Duration,
        vapid_private_key: Option<&str>,
    ) -> Result<Self, KeyError> {
        let keys = Self {
            store,
            clock,
            overlap,
            cache: RwLock::default(),
            creating: tokio::sync::Mutex::default(),
        };
        keys.refresh().await?;
        if keys.hash_key().is_empty() {
            keys.put(TenantId::new(""), SigningKind::Hash, text::random::<32>()?.to_vec()).await?;
        }
        let tenant = TenantId::new(DEFAULT_TENANT);
        if let Some(given) = vapid_private_key {
            keys.adopt(&tenant, given).await?;
        }
        keys.ensure(&tenant).await?;
        Ok(keys)
    }

    /// The key with which endpoints are hashed.
    pub fn hash_key(&self) -> Vec<u8> {
        self.cached().hash.clone()
    }

    /// Creates a tenant's keys if it has none. Cheap if it has them: reads only the cache.
    pub async fn ensure(&self, tenant: &TenantId) -> Result<(), KeyError> {
        if self.is_complete(tenant) {
            return Ok(());
        }
        let _one_at_a_time = self.creating.lock().await;
        if self.is_complete(tenant) {
            return Ok(());
        }
        let lacks = |kind| self.list(tenant, kind).is_empty();
        if lacks(SigningKind::Vapid) {
            self.put(tenant.clone(), SigningKind::Vapid, self.new_vapid()?).await?;
        }
        if lacks(SigningKind::Webhook) {
            let secret = text::random::<32>()?.to_vec();
            self.put(tenant.clone(), SigningKind::Webhook, secret).await?;
        }
        Ok(())
    }

    /// Creates a new active key. The key before stays usable.
    pub async fn rotate(&self, tenant: &TenantId, kind: SigningKind) -> Result<(), KeyError> {
        self.ensure(tenant).await?;
        let _one_at_a_time = self.creating.lock().await;
        let secret = match kind {
            SigningKind::Vapid => self.new_vapid()?,
            SigningKind::Webhook | SigningKind::Hash => text::random::<32>()?.to_vec(),
        };
        self.put(tenant.clone(), kind, secret).await
    }

    /// The active key first.
    pub fn list(&self, tenant: &TenantId, kind: SigningKind) -> Vec<SigningKeyInfo> {
        let Some(keys) = self.tenant_keys(tenant) else { return Vec::new() };
        let info = |text: String, key: &SigningKey| SigningKeyInfo {
            id: key.id,
            text,
            active: key.retired_at.is_none(),
            created_at: key.created_at,
            retired_at: key.retired_at,
        };
        match kind {
            SigningKind::Vapid => {
                keys.vapid.iter().map(|(v, key)| info(v.public_key().to_owned(), key)).collect()
            }
            SigningKind::Webhook => keys
                .webhook
                .iter()
                .filter(|(_, key)| self.still_signs(key))
                .map(|(_, key)| info(WebhookSecret::show(&key.secret), key))
                .collect(),
            SigningKind::Hash => Vec::new(),
        }
    }

    /// The id of the tenant's active VAPID key. New subscriptions are made with it.
    pub fn active_vapid(&self, tenant: &TenantId) -> Option<KeyId> {
        Some(self.tenant_keys(tenant)?.vapid.first()?.1.id)
    }

    async fn adopt(&self, tenant: &TenantId, given: &str) -> Result<(), KeyError> {
        let id = self.store.new_key_id();
        let key = VapidKey::from_raw_private(id, given).map_err(|_| KeyError::BadVapidKey)?;
        let active = self.list(tenant, SigningKind::Vapid).into_iter().find(|k| k.active);
        if active.is_some_and(|k| k.text == key.public_key()) {
            return Ok(());
        }
        let secret = key.to_pkcs8().map_err(|_| KeyError::BadVapidKey)?;
        self.put(tenant.clone(), SigningKind::Vapid, secret).await
    }

    fn new_vapid(&self) -> Result<Vec<u8>, KeyError> {
        let key = VapidKey::generate(self.store.new_key_id()).and_then(|key| key.to_pkcs8());
        key.map_err(|_| KeyError::NoRandomness)
    }

    async fn put(
        &self,
        tenant: TenantId,
        kind: SigningKind,
        secret: Vec<u8>,
    ) -> Result<(), KeyError> {
        let id = self.store.new_key_id();
        let created_at = self.clock.now();
        let key = SigningKey { id, tenant, kind, secret, created_at, retired_at: None };
        self.store.put_signing_key(key.clone()).await?;
        let known = self.tenant_keys(&key.tenant).unwrap_or_default();
        if kind == SigningKind::Hash || known.has(kind) {
            // The store has retired the key before this one.
            return self.refresh().await;
        }
        let tenant = key.tenant.clone();
        let mut keys = (*known).clone();
        keys.push(key)?;
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        cache.tenants.insert(tenant, Arc::new(keys));
        Ok(())
    }

    async fn refresh(&self) -> Result<(), KeyError> {
        let mut all = self.store.signing_keys().await?;
        all.sort_unstable_by_key(|k| (k.retired_at.is_some(), std::cmp::Reverse(k.id)));
        let mut cached = SigningKeyCache::default();
        for key in all {
            if key.kind != SigningKind::Hash {
                let keys = cached.tenants.entry(key.tenant.clone()).or_default();
                Arc::make_mut(keys).push(key)?;
            } else if cached.hash.is_empty() {
                cached.hash = key.secret;
            }
        }
        *self.cache.write().unwrap_or_else(PoisonError::into_inner) = cached;
        Ok(())
    }

    fn is_complete(&self, tenant: &TenantId) -> bool {
        let keys = self.tenant_keys(tenant);
        keys.is_some_and(|keys| keys.has(SigningKind::Vapid) && keys.has(SigningKind::Webhook))
    }

    fn still_signs(&self, key: &SigningKey) -> bool {
        key.retired_at.is_none_or(|at| self.clock.now() < at + self.overlap)
    }

    fn tenant_keys(&self, tenant: &TenantId) -> Option<Arc<TenantKeys>> {
        self.cached().tenants.get(tenant).cloned()
    }

    fn cached(&self) -> RwLockReadGuard<'_, SigningKeyCache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TenantKeys {
    fn has(&self, kind: SigningKind) -> bool {
        match kind {
            SigningKind::Vapid => !self.vapid.is_empty(),
            SigningKind::Webhook => !self.webhook.is_empty(),
            SigningKind::Hash => false,
        }
    }

    /// Parses a key and adds it behind the others of its kind, which are newer.
    fn push(&mut self, key: SigningKey) -> Result<(), KeyError> {
        let unreadable = KeyError::Unreadable(key.id);
        match key.kind {
            SigningKind::Vapid => {
                let vapid = VapidKey::from_pkcs8(key.id, &key.secret).map_err(|_| unreadable)?;
                self.vapid.push((Arc::new(vapid), key));
            }
            SigningKind::Webhook => {
                let secret = WebhookSecret::from_raw(&key.secret).map_err(|_| unreadable)?;
                self.webhook.push((Arc::new(secret), key));
            }
            SigningKind::Hash => {}
        }
        Ok(())
    }
}

impl VapidKeys for SigningKeys {
    fn key(&self, tenant: &TenantId, id: Option<KeyId>) -> Option<Arc<VapidKey>> {
        let keys = self.tenant_keys(tenant)?;
        let found = match id {
            Some(id) => keys.vapid.iter().find(|(_, key)| key.id == id),
            None => keys.vapid.first(),
        };
        found.map(|(vapid, _)| vapid.clone())
    }
}

impl WebhookSecrets for SigningKeys {
    fn secrets(&self, tenant: &TenantId) -> Vec<Arc<WebhookSecret>> {
        let Some(keys) = self.tenant_keys(tenant) else { return Vec::new() };
        let signing = keys.webhook.iter().filter(|(_, key)| self.still_signs(key));
        signing.map(|(secret, _)| secret.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::ports::store::Registry;
    use postrider_store::{ManualClock, MemoryStore};

    const DAY: Duration = Duration::from_secs(86_400);

    async fn keys(
        store: &Arc<MemoryStore>,
        clock: &Arc<ManualClock>,
        vapid: Option<&str>,
    ) -> SigningKeys {
        SigningKeys::load(store.clone(), clock.clone(), DAY, vapid).await.unwrap()
    }

    fn fixture() -> (Arc<MemoryStore>, Arc<ManualClock>, TenantId) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        (store, clock, TenantId::new(DEFAULT_TENANT))
    }

    #[tokio::test]
    async fn a_replaced_webhook_secret_signs_for_one_more_day() {
        let (store, clock, tenant) = fixture();
        let keys = keys(&store, &clock, None).await;
        keys.rotate(&tenant, SigningKind::Webhook).await.unwrap();
        assert_eq!(keys.secrets(&tenant).len(), 2);
        clock.advance(DAY);
        assert_eq!(keys.secrets(&tenant).len(), 1);
        assert_eq!(keys.list(&tenant, SigningKind::Webhook).len(), 1);
    }

    #[tokio::test]
    async fn a_replaced_vapid_key_stays_usable_for_its_subscriptions() {
        let (store, clock, tenant) = fixture();
        let keys = keys(&store, &clock, None).await;
        let old = keys.active_vapid(&tenant).unwrap();
        keys.rotate(&tenant, SigningKind::Vapid).await.unwrap();
        clock.advance(DAY * 400);
        assert_ne!(keys.active_vapid(&tenant), Some(old));
        assert_eq!(keys.key(&tenant, Some(old)).unwrap().id(), old);
        assert_eq!(keys.key(&tenant, None).unwrap().id(), keys.active_vapid(&tenant).unwrap());
        assert!(keys.key(&TenantId::new("stranger"), Some(old)).is_none());
    }

    #[tokio::test]
    async fn a_given_vapid_key_becomes_the_active_one_and_only_once() {
        let given = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94";
        let (store, clock, tenant) = fixture();
        keys(&store, &clock, None).await;
        for _ in 0..2 {
            let keys = keys(&store, &clock, Some(given)).await;
            let list = keys.list(&tenant, SigningKind::Vapid);
            assert_eq!(list.len(), 2, "the generated and the given one");
            assert!(list[0].active && list[0].text.starts_with("BCVxsr7N"));
        }
        let wrong = SigningKeys::load(store, clock, DAY, Some("AAAA")).await;
        assert!(matches!(wrong, Err(KeyError::BadVapidKey)));
    }

    #[tokio::test]
    async fn keys_are_the_same_after_a_restart() {
        let (store, clock, tenant) = fixture();
        let first = keys(&store, &clock, None).await;
        let second = keys(&store, &clock, None).await;
        assert_eq!(first.hash_key(), second.hash_key());
        assert_eq!(first.active_vapid(&tenant), second.active_vapid(&tenant));
        assert_eq!(first.hash_key().len(), 32);
    }
    #[tokio::test]
    async fn the_first_keys_of_a_tenant_leave_those_of_the_others_alone() {
        let (store, clock, tenant) = fixture();
        let loaded = keys(&store, &clock, None).await;
        let before = (loaded.key(&tenant, None).unwrap(), loaded.secrets(&tenant));
        let damaged = SigningKey {
            id: store.new_key_id(),
            tenant: TenantId::new("damaged"),
            kind: SigningKind::Vapid,
            secret: vec![0],
            created_at: clock.now(),
            retired_at: None,
        };
        store.put_signing_key(damaged).await.unwrap();

        let second = TenantId::new("second");
        loaded.ensure(&second).await.expect("the keys of other tenants are not read");
        assert!(Arc::ptr_eq(&before.0, &loaded.key(&tenant, None).unwrap()), "parsed again");
        assert!(Arc::ptr_eq(&before.1[0], &loaded.secrets(&tenant)[0]), "parsed again");
    }

    #[tokio::test]
    async fn the_first_keys_of_a_tenant_are_cached_as_a_restart_reads_them() {
        let (store, clock, _) = fixture();
        let first = keys(&store, &clock, None).await;
        let tenant = TenantId::new("second");
        first.ensure(&tenant).await.unwrap();
        let lists = |keys: &SigningKeys| {
            let kinds = [SigningKind::Vapid, SigningKind::Webhook];
            kinds.map(|kind| format!("{:?}", keys.list(&tenant, kind)))
        };
        assert_eq!(lists(&first), lists(&keys(&store, &clock, None).await));
        first.rotate(&tenant, SigningKind::Vapid).await.unwrap();
        first.rotate(&tenant, SigningKind::Webhook).await.unwrap();
        assert_eq!(first.list(&tenant, SigningKind::Vapid).len(), 2);
        assert_eq!(first.secrets(&tenant).len(), 2);
        assert_eq!(lists(&first), lists(&keys(&store, &clock, None).await));
    }
}
