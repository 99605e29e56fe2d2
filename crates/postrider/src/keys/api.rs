//! The API keys of callers: stored as hashes, compared in constant time, cached in memory.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_core::ports::store::{DocumentChanges, DocumentVersion, PutResult, Store};
use postrider_core::{Clock, KeyId, TenantId, Timestamp};

use super::stored::{self, ApiKey, KeyScope};
use super::{KeyError, text};
use crate::documents::{OwnWrites, overwrite};

/// The tenant of a caller that names none.
pub const DEFAULT_TENANT: &str = "default";

type ApiKeyCache = RwLock<Arc<HashMap<KeyId, ApiKey>>>;

pub struct ApiKeys {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Hash of the admin key from the configuration. The store does not have it.
    configured_admin: Option<[u8; 32]>,
    cache: ApiKeyCache,
    /// Locked during a change: one at a time.
    changing: tokio::sync::Mutex<OwnWrites>,
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
        let mut keys = HashMap::new();
        for document in store.documents(stored::API_KEYS).await? {
            let Some(text) = document.json else { continue };
            let key = stored::api_key(&document.name, &text)?;
            keys.insert(key.id, key);
        }
        Ok(Self {
            store,
            clock,
            configured_admin: configured_admin.map(text::hash),
            cache: RwLock::new(Arc::new(keys)),
            changing: tokio::sync::Mutex::default(),
        })
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
        let mut own = self.changing.lock().await;
        let name = stored::api_key_name(key.id);
        let version = overwrite(&*self.store, &name, Some(&stored::api_key_text(&key)?)).await?;
        own.note(&name, version);
        self.cache(key.clone());
        Ok(NewApiKey { text: text::compose(key.id, &secret), key })
    }

    /// False if there is no such key, or it is revoked already.
    pub async fn revoke(&self, id: KeyId) -> Result<bool, KeyError> {
        let mut own = self.changing.lock().await;
        let name = stored::api_key_name(id);
        let mut found = self.store.documents(&name).await?.into_iter();
        let mut present = found.find(|document| document.name == name);
        loop {
            let version = present.as_ref().map_or(DocumentVersion::NONE, |found| found.version);
            let Some(text) = present.and_then(|document| document.json) else { return Ok(false) };
            let mut key = stored::api_key(&name, &text)?;
            if key.revoked_at.is_some() {
                self.cache(key);
                return Ok(false);
            }
            key.revoked_at = Some(self.clock.now());
            let text = stored::api_key_text(&key)?;
            match self.store.put_document(&name, Some(&text), Some(version), None).await? {
                PutResult::Written(version) => {
                    own.note(&name, version);
                    self.cache(key);
                    return Ok(true);
                }
                PutResult::Conflict(newer) => present = newer,
            }
        }
    }

    /// Applies what other nodes changed.
    pub async fn follow(&self, changes: &DocumentChanges) {
        let mut own = self.changing.lock().await;
        let known = || self.cached().keys().map(|id| stored::api_key_name(*id)).collect();
        let is_key = |name: &str| name.starts_with(stored::API_KEYS);
        for (name, text) in own.news(changes, is_key, known) {
            match text.map(|text| stored::api_key(&name, text)) {
                Some(Ok(key)) => self.cache(key),
                Some(Err(error)) => {
                    tracing::error!(%error, "an API key of another node is not used")
                }
                None => {
                    let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
                    if let Some(id) = stored::api_key_id(&name) {
                        Arc::make_mut(&mut cache).remove(&id);
                    }
                }
            }
        }
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

    fn cache(&self, key: ApiKey) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut cache).insert(key.id, key);
    }

    fn cached(&self) -> Arc<HashMap<KeyId, ApiKey>> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
