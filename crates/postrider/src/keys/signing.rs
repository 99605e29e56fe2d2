//! Our own keys: VAPID key pairs and webhook secrets per tenant, and the key with which endpoints are
//! hashed. Created on first use, rotated with an overlap, cached in memory.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use postrider_channels::webhook::{WebhookSecret, WebhookSecrets};
use postrider_channels::webpush::{VapidKey, VapidKeys};
use postrider_core::ports::store::{DocumentChanges, DocumentVersion, PutResult, Store};
use postrider_core::{Clock, KeyId, TenantId, Timestamp};

use super::stored::{self, SigningKey, SigningKind};
use super::{DEFAULT_TENANT, KeyError, text};
use crate::documents::OwnWrites;

/// The window of [`RotationLimits::per_minute`].
const MINUTE: Duration = Duration::from_secs(60);

/// A replaced key for the hashes of endpoints is kept so long: no dead letter, strike or scheduled message is older.
const HASH_KEYS_KEPT: Duration = Duration::from_secs(400 * 86_400);

/// How often keys may be rotated, and how many there may be; 0 for any number.
#[derive(Debug, Clone, Copy)]
pub struct RotationLimits {
    pub keys_max: u64,
    pub per_minute: u64,
}

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
    /// The newest first.
    hash: Vec<SigningKey>,
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
    creating: tokio::sync::Mutex<OwnWrites>,
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
        for document in keys.store.documents(stored::SIGNING_KEYS).await? {
            keys.read(&document.name, document.json.as_deref())?;
        }
        let mut own = keys.creating.lock().await;
        if keys.hash_key().is_empty() {
            let (no_tenant, secret) = (TenantId::new(""), text::random::<32>()?.to_vec());
            keys.add(&mut own, &no_tenant, SigningKind::Hash, secret, <[_]>::is_empty).await?;
        }
        let tenant = TenantId::new(DEFAULT_TENANT);
        if let Some(given) = vapid_private_key {
            keys.adopt(&mut own, &tenant, given).await?;
        }
        drop(own);
        keys.ensure(&tenant).await?;
        Ok(keys)
    }

    /// The keys with which endpoints are hashed: the one for new endpoints first.
    pub fn hash_keys(&self) -> Vec<Vec<u8>> {
        self.cached().hash.iter().map(|key| key.secret.clone()).collect()
    }

    /// The newest key with which endpoints are hashed.
    pub fn hash_key(&self) -> Vec<u8> {
        self.hash_keys().into_iter().next().unwrap_or_default()
    }

    /// Makes a new key for the hashes of endpoints. Those before are kept for what is known already, for as long as
    /// anything may refer to a hash of theirs.
    pub async fn rotate_hash_key(&self, limits: &RotationLimits) -> Result<(), KeyError> {
        let mut own = self.creating.lock().await;
        let since = self.clock.now() - MINUTE;
        let known: Vec<_> = self.cached().hash.iter().map(|key| key.created_at).collect();
        if let Some(first) = known.iter().filter(|at| **at > since).min()
            && known.len() as u64 > limits.per_minute
        {
            return Err(KeyError::TooOften { wait: first.since(since) });
        }
        let secret = text::random::<32>()?.to_vec();
        self.add(&mut own, &TenantId::new(""), SigningKind::Hash, secret, |_| true).await
    }

    /// Creates a tenant's keys if it has none. Cheap if it has them: reads only the cache.
    pub async fn ensure(&self, tenant: &TenantId) -> Result<(), KeyError> {
        if self.is_complete(tenant) {
            return Ok(());
        }
        let mut own = self.creating.lock().await;
        let lacks = |kind| !self.tenant_keys(tenant).is_some_and(|keys| keys.has(kind));
        if lacks(SigningKind::Vapid) {
            let secret = self.new_vapid()?;
            self.add(&mut own, tenant, SigningKind::Vapid, secret, <[_]>::is_empty).await?;
        }
        if lacks(SigningKind::Webhook) {
            let secret = text::random::<32>()?.to_vec();
            self.add(&mut own, tenant, SigningKind::Webhook, secret, <[_]>::is_empty).await?;
        }
        Ok(())
    }

    /// Creates a new active key. The key before stays usable.
    pub async fn rotate(
        &self,
        tenant: &TenantId,
        kind: SigningKind,
        limits: &RotationLimits,
    ) -> Result<(), KeyError> {
        self.ensure(tenant).await?;
        let mut own = self.creating.lock().await;
        self.check_rotation(tenant, kind, limits)?;
        let secret = match kind {
            SigningKind::Vapid => self.new_vapid()?,
            SigningKind::Webhook | SigningKind::Hash => text::random::<32>()?.to_vec(),
        };
        self.add(&mut own, tenant, kind, secret, |_| true).await
    }

    fn check_rotation(
        &self,
        tenant: &TenantId,
        kind: SigningKind,
        limits: &RotationLimits,
    ) -> Result<(), KeyError> {
        let known = self.list(tenant, kind);
        let since = self.clock.now() - MINUTE;
        let mut recent: Vec<_> =
            known.iter().map(|key| key.created_at).filter(|at| *at > since).collect();
        recent.sort_unstable();
        // The first key was made by nobody's rotation, and may be recent, too.
        if recent.len() as u64 > limits.per_minute {
            let wait = recent.first().map_or(MINUTE, |first| first.since(since));
            return Err(KeyError::TooOften { wait });
        }
        let (found, allowed) = (known.len() as u64, limits.keys_max);
        if allowed > 0 && found >= allowed {
            let quota = match kind {
                SigningKind::Vapid => "limits.vapid_keys_max",
                SigningKind::Webhook | SigningKind::Hash => "limits.webhook_secrets_max",
            };
            return Err(KeyError::TooMany { quota, found, allowed });
        }
        Ok(())
    }

    /// Deletes all keys of a tenant. It gets new ones when it needs them.
    pub async fn forget(&self, tenant: &TenantId) -> Result<(), KeyError> {
        let mut own = self.creating.lock().await;
        for kind in [SigningKind::Vapid, SigningKind::Webhook] {
            let name = stored::signing_keys_name(tenant, kind);
            if let PutResult::Written(version) =
                self.store.put_document(&name, None, None, None).await?
            {
                own.note(&name, version);
            }
        }
        self.cache.write().unwrap_or_else(PoisonError::into_inner).tenants.remove(tenant);
        Ok(())
    }

    /// Applies what other nodes changed. Returns the tenants that have other keys now.
    pub async fn follow(&self, changes: &DocumentChanges) -> Vec<TenantId> {
        let mut own = self.creating.lock().await;
        let known = || self.cached().names().collect();
        let is_key = |name: &str| name.starts_with(stored::SIGNING_KEYS);
        let mut tenants = Vec::new();
        for (name, text) in own.news(changes, is_key, known) {
            match self.read(&name, text) {
                Ok(()) => {
                    tenants.extend(stored::signing_keys_owner(&name).map(|(tenant, _)| tenant));
                }
                Err(error) => {
                    tracing::error!(%error, "the signing keys of another node are not used");
                }
            }
        }
        tenants
    }

    /// The active key first.
    pub fn list(&self, tenant: &TenantId, kind: SigningKind) -> Vec<SigningKeyInfo> {
        let Some(keys) = self.tenant_keys(tenant) else { return Vec::new() };
        let info = |text: String, key: &SigningKey| SigningKeyInfo {
            id: key.id,
            text,
            active: key.is_active(),
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

    async fn adopt(
        &self,
        own: &mut OwnWrites,
        tenant: &TenantId,
        given: &str,
    ) -> Result<(), KeyError> {
        let id = self.store.new_key_id();
        let key = VapidKey::from_raw_private(id, given).map_err(|_| KeyError::BadVapidKey)?;
        let is_given = |known: &SigningKey| {
            let known = VapidKey::from_pkcs8(known.id, &known.secret);
            known.is_ok_and(|known| known.public_key() == key.public_key())
        };
        let is_missing = |keys: &[SigningKey]| !keys.iter().any(|k| k.is_active() && is_given(k));
        let secret = key.to_pkcs8().map_err(|_| KeyError::BadVapidKey)?;
        self.add(own, tenant, SigningKind::Vapid, secret, is_missing).await
    }

    fn new_vapid(&self) -> Result<Vec<u8>, KeyError> {
        let key = VapidKey::generate(self.store.new_key_id()).and_then(|key| key.to_pkcs8());
        key.map_err(|_| KeyError::NoRandomness)
    }

    /// Adds a new active key and retires the one before, if a key is needed beside those that are there. If another
    /// node adds one at the same time, looks again.
    async fn add(
        &self,
        own: &mut OwnWrites,
        tenant: &TenantId,
        kind: SigningKind,
        secret: Vec<u8>,
        is_needed: impl Fn(&[SigningKey]) -> bool,
    ) -> Result<(), KeyError> {
        let name = stored::signing_keys_name(tenant, kind);
        let (mut keys, mut version) = (Vec::new(), DocumentVersion::NONE);
        while is_needed(&keys) {
            let now = self.clock.now();
            // A secret that signs no more is of no use. Subscriptions keep their VAPID key.
            keys.retain(|key| match kind {
                SigningKind::Vapid => true,
                SigningKind::Webhook => self.still_signs(key),
                SigningKind::Hash => key.retired_at.is_none_or(|at| now < at + HASH_KEYS_KEPT),
            });
            for key in keys.iter_mut().filter(|key: &&mut SigningKey| key.is_active()) {
                key.retired_at = Some(now);
            }
            let (id, secret) = (self.store.new_key_id(), secret.clone());
            keys.push(SigningKey { id, secret, created_at: now, retired_at: None });
            let text = stored::signing_keys_text(&name, &keys)?;
            match self.store.put_document(&name, Some(&text), Some(version), None).await? {
                PutResult::Written(version) => {
                    own.note(&name, version);
                    break;
                }
                PutResult::Conflict(present) => {
                    version = present.as_ref().map_or(DocumentVersion::NONE, |found| found.version);
                    let text = present.and_then(|document| document.json);
                    keys =
                        text.map_or(Ok(Vec::new()), |text| stored::signing_keys(&name, &text))?;
                }
            }
        }
        self.cache(tenant, kind, keys)
    }

    /// Caches what a document says; nothing if it is gone.
    fn read(&self, name: &str, text: Option<&str>) -> Result<(), KeyError> {
        let Some((tenant, kind)) = stored::signing_keys_owner(name) else { return Ok(()) };
        let keys = text.map_or(Ok(Vec::new()), |text| stored::signing_keys(name, text))?;
        self.cache(&tenant, kind, keys)
    }

    fn cache(
        &self,
        tenant: &TenantId,
        kind: SigningKind,
        mut keys: Vec<SigningKey>,
    ) -> Result<(), KeyError> {
        keys.sort_unstable_by_key(|key| (!key.is_active(), std::cmp::Reverse(key.id)));
        let known = self.tenant_keys(tenant).unwrap_or_default();
        let parsed = (*known).clone().with(kind, &keys)?;
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        match kind {
            SigningKind::Hash if keys.is_empty() => {}
            SigningKind::Hash => cache.hash = keys,
            _ => drop(cache.tenants.insert(tenant.clone(), Arc::new(parsed))),
        }
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

    /// The same with these keys of one kind. Parses them.
    fn with(mut self, kind: SigningKind, keys: &[SigningKey]) -> Result<Self, KeyError> {
        match kind {
            SigningKind::Vapid => {
                let parse = |key: &SigningKey| VapidKey::from_pkcs8(key.id, &key.secret);
                self.vapid = parsed(keys, parse)?;
            }
            SigningKind::Webhook => {
                let parse = |key: &SigningKey| WebhookSecret::from_raw(&key.secret);
                self.webhook = parsed(keys, parse)?;
            }
            SigningKind::Hash => {}
        }
        Ok(self)
    }
}

fn parsed<T, E>(
    keys: &[SigningKey],
    parse: impl Fn(&SigningKey) -> Result<T, E>,
) -> Result<Vec<(Arc<T>, SigningKey)>, KeyError> {
    let one = |key: &SigningKey| {
        let parsed = parse(key).map_err(|_| KeyError::Unreadable(key.id))?;
        Ok((Arc::new(parsed), key.clone()))
    };
    keys.iter().map(one).collect()
}

impl SigningKeyCache {
    /// The names of the documents of tenants.
    fn names(&self) -> impl Iterator<Item = String> {
        let kinds = [SigningKind::Vapid, SigningKind::Webhook];
        let of = move |(tenant, keys): (&TenantId, &Arc<TenantKeys>)| {
            let (tenant, keys) = (tenant.clone(), keys.clone());
            let has = kinds.into_iter().filter(move |kind| keys.has(*kind));
            has.map(move |kind| stored::signing_keys_name(&tenant, kind))
        };
        self.tenants.iter().flat_map(of)
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
mod tests;
