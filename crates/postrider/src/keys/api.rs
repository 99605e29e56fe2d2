//! The API keys of callers: stored as hashes, compared in constant time, cached in memory.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use postrider_core::ports::store::{DocumentChanges, DocumentVersion, PutResult, Store};
use postrider_core::{Clock, KeyId, TenantId, Timestamp};
use tokio::sync::watch;

use super::ended::KeyEnd;
use super::scopes::{KeyScope, ScopeSet};
use super::session::{SessionClaim, SessionReach, SessionSigner};
use super::stored::{self, ApiKey};
use super::uses::LastUse;
use super::{KeyError, text};
use crate::api::{CallGate, OpenPermit};
use crate::documents::{OwnWrites, overwrite};
use crate::ip_network::IpNetwork;

/// The tenant of a caller that names none.
pub const DEFAULT_TENANT: &str = "default";

/// Shares its parts with older copies of the cache.
#[derive(Clone)]
struct CachedKey {
    key: Arc<ApiKey>,
    last_use: Arc<LastUse>,
    gate: Arc<CallGate>,
}

type ApiKeyCache = HashMap<KeyId, CachedKey>;

pub struct ApiKeys {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Hash of the admin key from the configuration. The store does not have it.
    configured_admin: Option<[u8; 32]>,
    /// What the configured admin key is doing.
    admin_gate: Arc<CallGate>,
    /// Set before the first call.
    sessions: RwLock<Option<SessionSigner>>,
    cache: RwLock<Arc<ApiKeyCache>>,
    /// Told when a key changes.
    changed: watch::Sender<()>,
    /// Locked during a change: one at a time.
    changing: tokio::sync::Mutex<OwnWrites>,
}

/// The caller of a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Absent for the configured admin key.
    pub key: Option<KeyId>,
    pub tenant: TenantId,
    pub all_tenants: bool,
    pub scopes: ScopeSet,
    /// It called with a session, which stands for its key.
    pub is_session: bool,
    /// What its key is doing.
    pub(crate) gate: Arc<CallGate>,
    /// Its place among the calls of its key; held until the caller is dropped.
    pub(crate) place: Option<Arc<OpenPermit>>,
}

impl Caller {
    pub fn may(&self, scope: KeyScope) -> bool {
        self.scopes.allows(scope)
    }
}

/// Why a key is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRejection {
    Unknown,
    Revoked(Timestamp),
    Expired(Timestamp),
    /// It may not be used from this address.
    OutsideNetworks(Option<IpAddr>),
}

/// What a new key may do.
#[derive(Debug, Clone)]
pub struct KeyRights {
    pub tenant: TenantId,
    pub all_tenants: bool,
    pub scopes: ScopeSet,
    pub networks: Vec<IpNetwork>,
    pub expires_at: Option<Timestamp>,
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
            admin_gate: Arc::default(),
            sessions: RwLock::default(),
            cache: RwLock::default(),
            changed: watch::Sender::new(()),
            changing: tokio::sync::Mutex::default(),
        };
        for document in keys.store.documents(stored::API_KEYS).await? {
            let Some(text) = document.json else { continue };
            keys.cache(stored::api_key(&document.name, &text)?);
        }
        for document in keys.store.documents(stored::KEY_USES).await? {
            keys.read_use(&document.name, document.json.as_deref());
        }
        Ok(keys)
    }

    /// Creates an admin key for all tenants if there is none, and returns its text.
    pub async fn ensure_admin(&self) -> Result<Option<String>, KeyError> {
        let is_admin = |key: &ApiKey| key.all_tenants && key.scopes.allows(KeyScope::Admin);
        let usable = |key: &ApiKey| self.check(key).is_ok();
        let mut known = self.cached().values().map(|cached| cached.key.clone()).collect::<Vec<_>>();
        known.retain(|key| is_admin(key) && usable(key));
        if self.configured_admin.is_some() || !known.is_empty() {
            return Ok(None);
        }
        let rights = KeyRights {
            tenant: TenantId::new(DEFAULT_TENANT),
            all_tenants: true,
            scopes: ScopeSet::ADMIN,
            networks: Vec::new(),
            expires_at: None,
        };
        Ok(Some(self.create("first admin key", rights, 0).await?.text))
    }

    /// Creates a key. If its owner has `keys_max` keys (0 for no limit), those that ended longest ago are deleted for
    /// it; if none ended, it is refused.
    pub async fn create(
        &self,
        name: &str,
        rights: KeyRights,
        keys_max: u64,
    ) -> Result<NewApiKey, KeyError> {
        let secret = text::new_secret()?;
        let KeyRights { tenant, all_tenants, scopes, networks, expires_at } = rights;
        let key = ApiKey {
            id: self.store.new_key_id(),
            tenant,
            all_tenants,
            name: name.into(),
            scopes,
            networks,
            secret_hash: text::hash(&secret),
            created_at: self.clock.now(),
            expires_at,
            revoked_at: None,
        };
        let mut own = self.changing.lock().await;
        self.make_room(&mut own, &key, keys_max).await?;
        let name = stored::api_key_name(key.id);
        let version = overwrite(&*self.store, &name, Some(&stored::api_key_text(&key)?)).await?;
        own.note(&name, version);
        self.cache(key.clone());
        Ok(NewApiKey { text: text::compose(key.id, &secret), key })
    }

    /// How many keys a tenant has, also those that ended; the keys for all tenants without one.
    pub fn count(&self, tenant: Option<&TenantId>) -> u64 {
        let is_own = |key: &ApiKey| owner(key) == tenant;
        self.cached().values().filter(|cached| is_own(&cached.key)).count() as u64
    }

    async fn make_room(
        &self,
        own: &mut OwnWrites,
        new: &ApiKey,
        keys_max: u64,
    ) -> Result<(), KeyError> {
        let found = self.count(owner(new));
        if keys_max == 0 || found < keys_max {
            return Ok(());
        }
        let mut ended: Vec<_> = {
            let cached = self.cached();
            let keys = cached.values().map(|cached| cached.key.clone());
            keys.filter(|key| owner(key) == owner(new) && self.check(key).is_err()).collect()
        };
        ended.sort_unstable_by_key(|key| key.revoked_at.or(key.expires_at));
        let surplus = usize::try_from(found - keys_max + 1).unwrap_or(usize::MAX);
        if ended.len() < surplus {
            return Err(KeyError::TooMany { quota: "limits.keys_max", found, allowed: keys_max });
        }
        for key in ended.into_iter().take(surplus) {
            let name = stored::api_key_name(key.id);
            let version = overwrite(&*self.store, &name, None).await?;
            own.note(&name, version);
            self.change_cache(|cache| drop(cache.remove(&key.id)));
        }
        Ok(())
    }

    /// Revokes a key that `may_revoke` allows. False if there is no such key, or it is revoked already.
    pub async fn revoke(
        &self,
        id: KeyId,
        may_revoke: impl Fn(&ApiKey) -> bool,
    ) -> Result<bool, KeyError> {
        let mut own = self.changing.lock().await;
        let name = stored::api_key_name(id);
        let mut found = self.store.documents(&name).await?.into_iter();
        let mut present = found.find(|document| document.name == name);
        loop {
            let version = present.as_ref().map_or(DocumentVersion::NONE, |found| found.version);
            let Some(text) = present.and_then(|document| document.json) else { return Ok(false) };
            let mut key = stored::api_key(&name, &text)?;
            if !may_revoke(&key) {
                return Ok(false);
            }
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
        for document in &changes.documents {
            self.read_use(&document.name, document.json.as_deref());
        }
        let known = || self.cached().keys().map(|id| stored::api_key_name(*id)).collect();
        let is_key = |name: &str| name.starts_with(stored::API_KEYS);
        for (name, text) in own.news(changes, is_key, known) {
            match text.map(|text| stored::api_key(&name, text)) {
                Some(Ok(key)) => self.cache(key),
                Some(Err(error)) => {
                    tracing::error!(%error, "an API key of another node is not used")
                }
                None => {
                    if let Some(id) = stored::api_key_id(&name) {
                        self.change_cache(|cache| drop(cache.remove(&id)));
                    }
                }
            }
        }
    }

    /// All keys with the times of their last use, newest first.
    pub fn list(&self) -> Vec<(Arc<ApiKey>, Option<Timestamp>)> {
        let cached = self.cached();
        let mut keys: Vec<_> =
            cached.values().map(|cached| (cached.key.clone(), cached.last_use.at())).collect();
        keys.sort_unstable_by_key(|(key, _)| std::cmp::Reverse(key.id));
        keys
    }

    pub fn authenticate(&self, bearer: &str, from: Option<IpAddr>) -> Result<Caller, KeyRejection> {
        if let Some(admin) = &self.configured_admin
            && text::same(admin, &text::hash(bearer))
        {
            return Ok(self.configured_caller());
        }
        let cache = self.cached();
        let session = self.signer().as_ref().and_then(|sessions| sessions.read(bearer));
        let reach = session.as_ref().and_then(|claim| claim.reach.clone());
        let id = match &session {
            Some(claim) if claim.until <= self.clock.now() => {
                return Err(KeyRejection::Expired(claim.until));
            }
            Some(SessionClaim { key: None, .. }) if self.configured_admin.is_some() => {
                let caller = Caller { is_session: true, ..self.configured_caller() };
                return confined(caller, reach);
            }
            Some(claim) => claim.key.ok_or(KeyRejection::Unknown)?,
            None => identified(&cache, bearer).ok_or(KeyRejection::Unknown)?,
        };
        let CachedKey { key, last_use, gate } = cache.get(&id).ok_or(KeyRejection::Unknown)?;
        let now = self.check(key)?;
        let is_inside = |from| key.networks.iter().any(|network| network.contains(from));
        if !key.networks.is_empty() && !from.is_some_and(is_inside) {
            return Err(KeyRejection::OutsideNetworks(from));
        }
        last_use.note(now);
        let (tenant, all_tenants) = (key.tenant.clone(), key.all_tenants);
        let (scopes, gate) = (key.scopes, gate.clone());
        let is_session = session.is_some();
        let key = Some(id);
        let caller = Caller { key, tenant, all_tenants, scopes, is_session, gate, place: None };
        confined(caller, reach)
    }

    fn configured_caller(&self) -> Caller {
        Caller {
            key: None,
            tenant: TenantId::new(DEFAULT_TENANT),
            all_tenants: true,
            scopes: ScopeSet::ADMIN,
            is_session: false,
            gate: self.admin_gate.clone(),
            place: None,
        }
    }

    /// Sessions are signed with this secret, the same on all nodes.
    pub(crate) fn sign_sessions_with(&self, secret: &[u8]) {
        let signer = SessionSigner::new(secret);
        *self.sessions.write().unwrap_or_else(PoisonError::into_inner) = Some(signer);
    }

    fn signer(&self) -> RwLockReadGuard<'_, Option<SessionSigner>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session that stands for a key until then; `None` before the secret is known.
    pub(crate) fn session(&self, key: Option<KeyId>, until: Timestamp) -> Option<String> {
        self.session_with(&SessionClaim { key, until, reach: None })
    }

    /// The same for one that may be confined to a tenant.
    pub(crate) fn session_with(&self, claim: &SessionClaim) -> Option<String> {
        Some(self.signer().as_ref()?.session(claim))
    }

    /// An admin key for all tenants that works; `None` stands for the configured one.
    pub fn first_admin(&self) -> Option<KeyId> {
        if self.configured_admin.is_some() {
            return None;
        }
        let cached = self.cached();
        let is_admin = |key: &ApiKey| key.all_tenants && key.scopes.allows(KeyScope::Admin);
        let mut keys = cached.values().map(|cached| &cached.key);
        keys.find(|key| is_admin(key) && self.check(key).is_ok()).map(|key| key.id)
    }

    /// Tells when the caller's key stops working.
    pub fn end_of(&self, caller: &Caller) -> KeyEnd {
        KeyEnd::new(caller.key, self.changed.subscribe())
    }

    /// How long a key works yet; `None` if it has no end.
    pub(super) fn time_left(&self, id: KeyId) -> Result<Option<Duration>, KeyRejection> {
        let cache = self.cached();
        let cached = cache.get(&id).ok_or(KeyRejection::Unknown)?;
        let now = self.check(&cached.key)?;
        Ok(cached.key.expires_at.map(|at| at.since(now)))
    }

    /// Writes the last uses that are newer than the written ones by so much. Returns how many.
    pub async fn write_uses(&self, older_by: Duration) -> Result<usize, KeyError> {
        let cached = self.cached();
        let mut written = 0;
        for (id, CachedKey { last_use, .. }) in cached.iter() {
            let Some(at) = last_use.unwritten(older_by) else { continue };
            let text = stored::key_use_text(at);
            overwrite(&*self.store, &stored::key_use_name(*id), Some(&text)).await?;
            last_use.note_written(at);
            written += 1;
        }
        Ok(written)
    }

    /// Returns the present time if the key is in force.
    fn check(&self, key: &ApiKey) -> Result<Timestamp, KeyRejection> {
        let now = self.clock.now();
        match (key.revoked_at, key.expires_at) {
            (Some(at), _) => Err(KeyRejection::Revoked(at)),
            (None, Some(at)) if at <= now => Err(KeyRejection::Expired(at)),
            _ => Ok(now),
        }
    }

    fn read_use(&self, name: &str, text: Option<&str>) {
        let Some((id, at)) = text.and_then(|text| stored::key_use(name, text)) else { return };
        if let Some(cached) = self.cached().get(&id) {
            cached.last_use.note_written(at);
        }
    }

    fn cache(&self, key: ApiKey) {
        self.change_cache(|cache| {
            let known = cache.get(&key.id);
            let known = known.map(|known| (known.last_use.clone(), known.gate.clone()));
            let (last_use, gate) = known.unwrap_or_default();
            cache.insert(key.id, CachedKey { key: Arc::new(key), last_use, gate });
        });
    }

    fn change_cache(&self, change: impl FnOnce(&mut ApiKeyCache)) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut cache));
        drop(cache);
        self.changed.send_replace(());
    }

    fn cached(&self) -> Arc<ApiKeyCache> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The caller of a session that is for one tenant: never more than its key may.
fn confined(caller: Caller, reach: Option<SessionReach>) -> Result<Caller, KeyRejection> {
    let Some(SessionReach { tenant, scopes }) = reach else { return Ok(caller) };
    if !caller.all_tenants && caller.tenant != tenant {
        return Err(KeyRejection::Unknown);
    }
    let scopes = caller.scopes.and(scopes).ok_or(KeyRejection::Unknown)?;
    Ok(Caller { tenant, scopes, all_tenants: false, ..caller })
}

/// The id of a key whose secret is right.
fn identified(cache: &ApiKeyCache, bearer: &str) -> Option<KeyId> {
    let (id, secret) = text::parse(bearer)?;
    let known = cache.get(&id)?;
    text::same(&known.key.secret_hash, &text::hash(secret)).then_some(id)
}

/// The tenant of a key; `None` if it is for all.
pub(crate) fn owner(key: &ApiKey) -> Option<&TenantId> {
    Some(&key.tenant).filter(|_| !key.all_tenants)
}
