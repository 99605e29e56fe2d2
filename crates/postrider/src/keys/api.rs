//! The API keys of callers: stored as hashes, compared in constant time, cached in memory.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::ports::store::{ApiKey, KeyScope, Store};
use postrider_core::{Clock, KeyId, TenantId, Timestamp};

use super::{KeyError, text};

/// The tenant of a caller that names none.
pub const DEFAULT_TENANT: &str = "default";

type ApiKeyCache = RwLock<Arc<HashMap<KeyId, ApiKey>>>;

pub struct ApiKeys {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Hash of the admin key from the configuration. The store does not have it.
    configured_admin: Option<[u8; 32]>,
    cache: ApiKeyCache,
    /// Locked during a change and the refresh that follows, so that an older refresh never wins.
    changing: tokio::sync::Mutex<()>,
}

/// The caller of a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Absent for the configured admin key.
    pub key: Option<KeyId>,
    pub tenant: TenantId,
    pub scope: KeyScope,
}

/// Why a key is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRejection {
    Unknown,
    Revoked(Timestamp),
}

/// A new key. Its text exists only here.
#[derive(Debug)]
pub struct NewApiKey {
    pub key: ApiKey,
    pub text: String,
}

impl ApiKeys {
    pub async fn load(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        configured_admin: Option<&str>,
    ) -> Result<Self, KeyError> {
        let keys = Self {
            store,
            clock,
            configured_admin: configured_admin.map(text::hash),
            cache: ApiKeyCache::default(),
            changing: tokio::sync::Mutex::default(),
        };
        keys.refresh().await?;
        Ok(keys)
    }

    /// Creates an admin key if there is none, and returns its text.
    pub async fn ensure_admin(&self) -> Result<Option<String>, KeyError> {
        let exists = self.configured_admin.is_some()
            || self.cached().values().any(|k| k.scope == KeyScope::Admin && k.revoked_at.is_none());
        if exists {
            return Ok(None);
        }
        let tenant = TenantId::new(DEFAULT_TENANT);
        Ok(Some(self.create(tenant, "first admin key", KeyScope::Admin).await?.text))
    }

    pub async fn create(
        &self,
        tenant: TenantId,
        name: &str,
        scope: KeyScope,
    ) -> Result<NewApiKey, KeyError> {
        let secret = text::new_secret()?;
        let key = ApiKey {
            id: self.store.new_key_id(),
            tenant,
            name: name.into(),
            scope,
            secret_hash: text::hash(&secret),
            created_at: self.clock.now(),
            revoked_at: None,
        };
        let _one_at_a_time = self.changing.lock().await;
        self.store.put_api_key(key.clone()).await?;
        self.refresh().await?;
        Ok(NewApiKey { text: text::compose(key.id, &secret), key })
    }

    /// False if there is no such key, or it is revoked already.
    pub async fn revoke(&self, id: KeyId) -> Result<bool, KeyError> {
        let _one_at_a_time = self.changing.lock().await;
        let revoked = self.store.revoke_api_key(id).await?;
        self.refresh().await?;
        Ok(revoked)
    }

    /// All keys, newest first.
    pub fn list(&self) -> Vec<ApiKey> {
        let mut keys: Vec<_> = self.cached().values().cloned().collect();
        keys.sort_unstable_by_key(|k| std::cmp::Reverse(k.id));
        keys
    }

    pub fn authenticate(&self, bearer: &str) -> Result<Caller, KeyRejection> {
        if let Some(admin) = &self.configured_admin
            && text::same(admin, &text::hash(bearer))
        {
            return Ok(Caller {
                key: None,
                tenant: TenantId::new(DEFAULT_TENANT),
                scope: KeyScope::Admin,
            });
        }
        let (id, secret) = text::parse(bearer).ok_or(KeyRejection::Unknown)?;
        let cache = self.cached();
        let key = cache.get(&id).ok_or(KeyRejection::Unknown)?;
        if !text::same(&key.secret_hash, &text::hash(secret)) {
            return Err(KeyRejection::Unknown);
        }
        match key.revoked_at {
            Some(at) => Err(KeyRejection::Revoked(at)),
            None => Ok(Caller { key: Some(id), tenant: key.tenant.clone(), scope: key.scope }),
        }
    }

    async fn refresh(&self) -> Result<(), KeyError> {
        let keys = self.store.api_keys().await?;
        let map = Arc::new(keys.into_iter().map(|k| (k.id, k)).collect());
        *self.cache.write().unwrap_or_else(PoisonError::into_inner) = map;
        Ok(())
    }

    fn cached(&self) -> Arc<HashMap<KeyId, ApiKey>> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
