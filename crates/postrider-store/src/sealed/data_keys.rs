//! The data keys of tenants: made on first use, stored as documents that only a master key can unwrap, kept in memory.
//! Rotating the master key wraps them anew; destroying one makes everything that it sealed unreadable.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_core::TenantId;
use postrider_core::ports::store::*;
use serde::{Deserialize, Serialize};

use super::cipher::{KEY_BYTES, TenantDataKey, random};
use super::master_key::{MasterKey, failed};

/// The names of all documents with data keys begin so.
const DOCUMENTS: &str = "encryption/";
/// The data key of the server itself.
const SERVER: &str = "encryption/server";
/// So often another server may change the same document at the same time.
const TRIES: usize = 20;

/// A data key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredDataKey {
    /// Grows when a key is destroyed and another one is made.
    generation: u32,
    /// The name of the master key. Absent if the data key was destroyed, as is `wrapped`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    master: Option<String>,
    /// In base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wrapped: Option<String>,
}

#[derive(Clone)]
enum KnownDataKey {
    Usable(Arc<TenantDataKey>),
    /// Up to this generation.
    Destroyed(u32),
}

/// Which master keys are in use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SealingStatus {
    /// The name of the master key that wraps new data keys.
    pub master: String,
    /// How many data keys each master key wraps.
    pub data_keys: BTreeMap<String, u64>,
    /// How many data keys were destroyed and not replaced.
    pub destroyed: u64,
}

/// The data keys of all tenants.
pub struct DataKeys {
    inner: Arc<dyn Store>,
    /// At least one; the first one wraps.
    masters: RwLock<Arc<Vec<MasterKey>>>,
    known: RwLock<HashMap<TenantId, KnownDataKey>>,
}

pub(super) async fn are_there(store: &dyn Store) -> StoreResult<bool> {
    Ok(!store.documents(DOCUMENTS).await?.is_empty())
}

fn name_of(tenant: &TenantId) -> String {
    match tenant.as_str() {
        "" => SERVER.to_owned(),
        name => format!("{DOCUMENTS}key/{name}"),
    }
}

fn owner_of(name: &str) -> Option<TenantId> {
    if name == SERVER {
        return Some(TenantId::new(""));
    }
    name.strip_prefix(DOCUMENTS)?.strip_prefix("key/").map(TenantId::new)
}

fn about(name: &str, generation: u32) -> String {
    format!("{name} {generation}")
}

impl DataKeys {
    pub(super) fn new(inner: Arc<dyn Store>, masters: Vec<MasterKey>) -> Self {
        Self { inner, masters: RwLock::new(Arc::new(masters)), known: RwLock::default() }
    }

    /// An error if a data key cannot be unwrapped.
    pub(super) async fn check(&self) -> StoreResult<()> {
        let masters = self.masters();
        if masters.is_empty() {
            return Err(failed("there is no master key"));
        }
        self.check_with(&masters).await
    }

    async fn check_with(&self, masters: &[MasterKey]) -> StoreResult<()> {
        for document in self.inner.documents(DOCUMENTS).await? {
            let stored = read(&document)?;
            if stored.wrapped.is_some() && unwrapped(masters, &document.name, &stored).is_none() {
                let given: Vec<_> = masters.iter().map(MasterKey::name).collect();
                return Err(StoreError::Unusable {
                    what: format!(
                        "the data key {} is wrapped by the master key {}, and the configuration has only {}; \
                         add the missing one to encryption.previous_keys",
                        document.name,
                        stored.master.as_deref().unwrap_or("?"),
                        given.join(", ")
                    ),
                });
            }
        }
        Ok(())
    }

    fn masters(&self) -> Arc<Vec<MasterKey>> {
        self.masters.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The present key of a tenant; a new one if it has none.
    pub(super) async fn key(&self, tenant: &TenantId) -> StoreResult<Arc<TenantDataKey>> {
        if let Some(KnownDataKey::Usable(key)) = self.known(tenant) {
            return Ok(key);
        }
        for _ in 0..TRIES {
            let found = self.document(tenant).await?;
            let version = found.as_ref().map_or(DocumentVersion::NONE, |document| document.version);
            let stored = found.as_ref().map(read).transpose()?;
            if let Some(key) = self.usable(tenant, stored.as_ref())? {
                return Ok(key);
            }
            let generation = stored.map_or(1, |stored| stored.generation + 1);
            let (secret, name) = (random::<KEY_BYTES>()?, name_of(tenant));
            let text = self.wrapped(&name, generation, &secret)?;
            let put = self.inner.put_document(&name, Some(&text), Some(version), None).await?;
            if matches!(put, PutResult::Written(_)) {
                tracing::info!(generation, "a new data key was made");
                let key = Arc::new(TenantDataKey::new(generation, &secret)?);
                self.remember(tenant, KnownDataKey::Usable(key.clone()));
                return Ok(key);
            }
        }
        Err(failed("the data key of a tenant changes again and again"))
    }

    /// The key with which something was sealed; `None` if it was destroyed.
    pub(super) async fn key_of_generation(
        &self,
        tenant: &TenantId,
        generation: u32,
    ) -> StoreResult<Option<Arc<TenantDataKey>>> {
        match self.known(tenant) {
            Some(KnownDataKey::Usable(key)) if key.generation == generation => {
                return Ok(Some(key));
            }
            Some(KnownDataKey::Usable(key)) if key.generation > generation => return Ok(None),
            Some(KnownDataKey::Destroyed(upto)) if upto >= generation => return Ok(None),
            _ => {}
        }
        let stored = self.document(tenant).await?.as_ref().map(read).transpose()?;
        let key = self.usable(tenant, stored.as_ref())?;
        Ok(key.filter(|key| key.generation == generation))
    }

    /// Tenants that have a key.
    pub(super) async fn tenants(&self) -> StoreResult<Vec<TenantId>> {
        let documents = self.inner.documents(DOCUMENTS).await?;
        let owners = documents.iter().filter_map(|document| owner_of(&document.name));
        Ok(owners.filter(|owner| !owner.as_str().is_empty()).collect())
    }

    /// Follows changes of other servers: forgets keys that were destroyed or replaced.
    pub(super) fn follow(&self, changes: &DocumentChanges) {
        for document in &changes.documents {
            let Some(owner) = owner_of(&document.name) else { continue };
            let Some(known) = self.known(&owner) else { continue };
            let stored = read(document).ok().filter(|stored| stored.wrapped.is_some());
            let is_same = match &known {
                KnownDataKey::Usable(key) => {
                    stored.is_some_and(|stored| stored.generation == key.generation)
                }
                KnownDataKey::Destroyed(_) => stored.is_none(),
            };
            if !is_same {
                self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&owner);
            }
        }
    }

    /// Uses other master keys from now on, the first one to wrap. An error changes nothing.
    pub async fn use_masters(&self, masters: Vec<MasterKey>) -> StoreResult<()> {
        if masters.is_empty() {
            return Err(failed("there is no master key"));
        }
        self.check_with(&masters).await?;
        *self.masters.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(masters);
        Ok(())
    }

    /// Wraps every data key by the first master key, one after the other, each durable. Can be interrupted and
    /// repeated. Answers how many were wrapped anew.
    pub async fn rewrap(&self) -> StoreResult<u64> {
        let masters = self.masters();
        let mut count = 0;
        for document in self.inner.documents(DOCUMENTS).await? {
            count += u64::from(self.rewrap_one(&masters, document).await?);
        }
        Ok(count)
    }

    async fn rewrap_one(&self, masters: &[MasterKey], document: Document) -> StoreResult<bool> {
        let mut present = Some(document);
        for _ in 0..TRIES {
            let Some(document) = present.take() else { return Ok(false) };
            let stored = read(&document)?;
            let is_new = stored.master.as_deref() == masters.first().map(MasterKey::name);
            if is_new || stored.wrapped.is_none() {
                return Ok(false);
            }
            let secret = unwrapped(masters, &document.name, &stored)
                .ok_or_else(|| failed("a data key is wrapped by an unknown master key"))?;
            let text = self.wrapped(&document.name, stored.generation, &secret)?;
            let expected = Some(document.version);
            match self.inner.put_document(&document.name, Some(&text), expected, None).await? {
                PutResult::Written(_) => return Ok(true),
                PutResult::Conflict(other) => present = other,
            }
        }
        Err(failed("a data key changes again and again"))
    }

    /// Destroys the key of a tenant. What it sealed cannot be read any more, not even by us. False if there is none.
    pub async fn destroy(&self, tenant: &TenantId) -> StoreResult<bool> {
        for _ in 0..TRIES {
            let Some(document) = self.document(tenant).await? else { return Ok(false) };
            let stored = read(&document)?;
            if stored.wrapped.is_none() {
                return Ok(false);
            }
            let generation = stored.generation;
            let destroyed = StoredDataKey { generation, master: None, wrapped: None };
            let (text, expected) = (to_text(&destroyed)?, Some(document.version));
            let put = self.inner.put_document(&document.name, Some(&text), expected, None).await?;
            if matches!(put, PutResult::Written(_)) {
                self.remember(tenant, KnownDataKey::Destroyed(generation));
                return Ok(true);
            }
        }
        Err(failed("the data key of a tenant changes again and again"))
    }

    pub async fn status(&self) -> StoreResult<SealingStatus> {
        let master = self.masters().first().map(|master| master.name().to_owned());
        let mut status = SealingStatus {
            master: master.unwrap_or_default(),
            data_keys: BTreeMap::new(),
            destroyed: 0,
        };
        for document in self.inner.documents(DOCUMENTS).await? {
            match read(&document)?.master {
                Some(master) => *status.data_keys.entry(master).or_default() += 1,
                None => status.destroyed += 1,
            }
        }
        Ok(status)
    }

    fn known(&self, tenant: &TenantId) -> Option<KnownDataKey> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }

    fn remember(&self, tenant: &TenantId, key: KnownDataKey) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(tenant.clone(), key);
    }

    /// Unwraps and remembers a stored key; `None` if there is none or it was destroyed.
    fn usable(
        &self,
        tenant: &TenantId,
        stored: Option<&StoredDataKey>,
    ) -> StoreResult<Option<Arc<TenantDataKey>>> {
        let Some(stored) = stored else { return Ok(None) };
        if stored.wrapped.is_none() {
            self.remember(tenant, KnownDataKey::Destroyed(stored.generation));
            return Ok(None);
        }
        let secret = unwrapped(&self.masters(), &name_of(tenant), stored)
            .ok_or_else(|| failed("a data key is wrapped by an unknown master key"))?;
        let key = Arc::new(TenantDataKey::new(stored.generation, &secret)?);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Another task may have been faster; all seal with one key, whose nonces are counted.
        match known.get(tenant) {
            Some(KnownDataKey::Usable(first)) if first.generation == key.generation => {
                Ok(Some(first.clone()))
            }
            _ => {
                known.insert(tenant.clone(), KnownDataKey::Usable(key.clone()));
                Ok(Some(key))
            }
        }
    }

    async fn document(&self, tenant: &TenantId) -> StoreResult<Option<Document>> {
        let name = name_of(tenant);
        let found = self.inner.documents(&name).await?;
        Ok(found.into_iter().find(|document| document.name == name))
    }

    fn wrapped(
        &self,
        name: &str,
        generation: u32,
        secret: &[u8; KEY_BYTES],
    ) -> StoreResult<String> {
        let masters = self.masters();
        let master = masters.first().ok_or_else(|| failed("there is no master key"))?;
        let wrapped = master.wrap(secret, &about(name, generation))?;
        to_text(&StoredDataKey {
            generation,
            master: Some(master.name().to_owned()),
            wrapped: Some(STANDARD.encode(wrapped)),
        })
    }
}

fn unwrapped(masters: &[MasterKey], name: &str, stored: &StoredDataKey) -> Option<[u8; KEY_BYTES]> {
    let wrapped = STANDARD.decode(stored.wrapped.as_deref()?).ok()?;
    let about = about(name, stored.generation);
    masters.iter().find_map(|master| master.unwrap_key(&wrapped, &about))
}

fn read(document: &Document) -> StoreResult<StoredDataKey> {
    let damaged =
        || StoreError::Corrupt { what: format!("the document {}", document.name), cause: None };
    let json = document.json.as_deref().ok_or_else(damaged)?;
    serde_json::from_str(json).map_err(|_| damaged())
}

fn to_text(stored: &StoredDataKey) -> StoreResult<String> {
    serde_json::to_string(stored).map_err(|error| StoreError::io("cannot write JSON", error))
}
