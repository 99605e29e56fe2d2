//! Whom to reach: the rules of tenants in force, and what the store knows of people. Asked when a message comes in, and
//! again just before it is sent. A tenant without rules costs one look into a map.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use postrider_core::model::recipient::{AddressFacts, RecipientProfile};
use postrider_core::policy::audience::{
    AudienceRules, IntendedSend, KnownPerson, SendVerdict, Suppression, assess,
};
use postrider_core::ports::store::{
    EntryKey, EntryKind, EntryVersion, EntryWrite, Store, StoreError, StoreResult, StoredEntry,
};
use postrider_core::{AddressHash, TenantId};
use serde::de::DeserializeOwned;

/// Entries that are read at once.
const READ_AT_ONCE: usize = 500;

/// An entry to read: for which person, of which kind, by which key.
type AskedEntry = (usize, EntryKind, Arc<str>);

/// A person at one of their addresses: who it is, where that is known, and the hash of the address.
#[derive(Debug, Clone)]
pub struct ReachedPerson {
    pub recipient: Option<Arc<str>>,
    pub hash: AddressHash,
}

/// What the store knows of a person and of one of their addresses.
#[derive(Debug, Clone, Default)]
pub struct PersonRecord {
    pub suppression: Option<Suppression>,
    pub profile: Option<RecipientProfile>,
    pub facts: Option<AddressFacts>,
}

impl PersonRecord {
    pub fn assess(&self, rules: &AudienceRules, send: IntendedSend<'_>) -> SendVerdict {
        let person = KnownPerson {
            suppression: self.suppression.as_ref(),
            profile: self.profile.as_ref(),
            facts: self.facts.as_ref(),
        };
        assess(rules, person, send)
    }
}

/// The rules of tenants, and where people are looked up.
#[derive(Default)]
pub struct AudienceBook {
    rules: RwLock<HashMap<TenantId, Arc<AudienceRules>>>,
    store: OnceLock<Arc<dyn Store>>,
}

impl std::fmt::Debug for AudienceBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AudienceBook").finish_non_exhaustive()
    }
}

impl AudienceBook {
    /// People are looked up there. The first call counts.
    pub fn use_store(&self, store: Arc<dyn Store>) {
        let _ = self.store.set(store);
    }

    /// The rules of a tenant, if it has any.
    pub fn rules(&self, tenant: &TenantId) -> Option<Arc<AudienceRules>> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }

    /// The rules of a tenant from now on.
    pub fn adopt(&self, tenant: &TenantId, rules: Option<AudienceRules>) {
        let mut all = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        match rules {
            Some(rules) => all.insert(tenant.clone(), Arc::new(rules)),
            None => all.remove(tenant),
        };
    }

    /// The tenants that have rules.
    pub fn tenants(&self) -> Vec<TenantId> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// What is known of people, in their order. Asks for no kind of entries that the tenant does not have.
    pub async fn look_up(
        &self,
        tenant: &TenantId,
        rules: &AudienceRules,
        people: &[ReachedPerson],
    ) -> StoreResult<Vec<PersonRecord>> {
        let mut found = vec![PersonRecord::default(); people.len()];
        let mut asked: Vec<AskedEntry> = Vec::new();
        for (place, person) in people.iter().enumerate() {
            let hash: Arc<str> = person.hash.to_string().into();
            if rules.has_suppressions {
                asked.push((place, EntryKind::Suppression, hash.clone()));
            }
            if rules.has_address_facts {
                asked.push((place, EntryKind::AddressFacts, hash));
            }
            let recipient = person.recipient.clone().filter(|_| rules.has_recipients);
            asked.extend(recipient.map(|recipient| (place, EntryKind::Recipient, recipient)));
        }
        self.read_into(tenant, asked, &mut found).await?;
        // A message may have been accepted for somebody who was merged into another one since.
        let unknown =
            people.iter().enumerate().filter(|(place, _)| found[*place].profile.is_none());
        let unknown =
            unknown.filter_map(|(place, person)| Some((place, person.recipient.clone()?)));
        let unknown: Vec<_> = unknown.filter(|_| rules.has_recipients).collect();
        let merged = self.merged(tenant, unknown).await?;
        self.read_into(tenant, merged, &mut found).await?;
        Ok(found)
    }

    async fn read_into(
        &self,
        tenant: &TenantId,
        asked: Vec<AskedEntry>,
        found: &mut [PersonRecord],
    ) -> StoreResult<()> {
        for some in asked.chunks(READ_AT_ONCE) {
            let key = |(_, kind, key): &AskedEntry| EntryKey {
                tenant: tenant.clone(),
                kind: *kind,
                key: key.clone(),
            };
            let entries = self.store()?.entries(some.iter().map(key).collect()).await?;
            for ((place, kind, _), entry) in some.iter().zip(entries) {
                let (Some(entry), Some(record)) = (entry, found.get_mut(*place)) else { continue };
                let json = &entry.json;
                match kind {
                    EntryKind::Suppression => record.suppression = Some(read(json)?),
                    EntryKind::AddressFacts => record.facts = Some(read(json)?),
                    EntryKind::Recipient => record.profile = Some(read(json)?),
                    EntryKind::Alias => {}
                }
            }
        }
        Ok(())
    }

    /// The recipients that ids without a profile stand for, if they are aliases.
    async fn merged(
        &self,
        tenant: &TenantId,
        unknown: Vec<(usize, Arc<str>)>,
    ) -> StoreResult<Vec<AskedEntry>> {
        let mut asked = Vec::new();
        for some in unknown.chunks(READ_AT_ONCE) {
            let key = |(_, id): &(usize, Arc<str>)| EntryKey {
                tenant: tenant.clone(),
                kind: EntryKind::Alias,
                key: id.clone(),
            };
            let entries = self.store()?.entries(some.iter().map(key).collect()).await?;
            for ((place, _), entry) in some.iter().zip(entries) {
                if let Some(entry) = entry {
                    asked.push((*place, EntryKind::Recipient, read(&entry.json)?));
                }
            }
        }
        Ok(asked)
    }

    /// The recipient that an id stands for: itself, or the one that it is an alias of.
    pub async fn canonical(&self, tenant: &TenantId, id: &str) -> StoreResult<Arc<str>> {
        let has_some = self.rules(tenant).is_some_and(|rules| rules.has_recipients);
        if !has_some {
            return Ok(id.into());
        }
        let key = EntryKey::new(tenant, EntryKind::Alias, id);
        let found = self.store()?.entries(vec![key]).await?.pop().flatten();
        found.map_or_else(|| Ok(id.into()), |entry| read(&entry.json))
    }

    /// The first of these hashes under which something is suppressed. For endpoints whose hash was made with an older
    /// key.
    pub(crate) async fn suppressed_hash(
        &self,
        tenant: &TenantId,
        hashes: &[AddressHash],
    ) -> StoreResult<Option<AddressHash>> {
        if !self.rules(tenant).is_some_and(|rules| rules.has_suppressions) {
            return Ok(None);
        }
        let key =
            |hash: &AddressHash| EntryKey::new(tenant, EntryKind::Suppression, &hash.to_string());
        let found = self.store()?.entries(hashes.iter().map(key).collect()).await?;
        let mut known = hashes.iter().zip(found).filter(|(_, entry)| entry.is_some());
        Ok(known.next().map(|(hash, _)| *hash))
    }

    /// Copies suppression and facts of an address to another hash of it. What is there stays.
    pub(crate) async fn copy_facts(
        &self,
        tenant: &TenantId,
        from: AddressHash,
        to: AddressHash,
    ) -> StoreResult<()> {
        let keys = self.fact_keys(tenant, from);
        if keys.is_empty() {
            return Ok(());
        }
        let found = self.store()?.entries(keys).await?.into_iter().flatten();
        let write = |entry: StoredEntry| EntryWrite {
            key: EntryKey::new(tenant, entry.key.kind, &to.to_string()),
            json: Some(entry.json),
            expected: Some(EntryVersion::NONE),
        };
        self.store()?.write_entries(found.map(write).collect()).await.map(drop)
    }

    /// Deletes suppression and facts under a hash that nothing has any more.
    pub(crate) async fn forget_facts(
        &self,
        tenant: &TenantId,
        hash: AddressHash,
    ) -> StoreResult<()> {
        let keys = self.fact_keys(tenant, hash);
        if keys.is_empty() {
            return Ok(());
        }
        let delete = |key| EntryWrite { key, json: None, expected: None };
        self.store()?.write_entries(keys.into_iter().map(delete).collect()).await.map(drop)
    }

    fn fact_keys(&self, tenant: &TenantId, hash: AddressHash) -> Vec<EntryKey> {
        let Some(rules) = self.rules(tenant) else { return Vec::new() };
        let kinds = [
            (EntryKind::Suppression, rules.has_suppressions),
            (EntryKind::AddressFacts, rules.has_address_facts),
        ];
        let there = kinds.into_iter().filter(|(_, is_there)| *is_there);
        there.map(|(kind, _)| EntryKey::new(tenant, kind, &hash.to_string())).collect()
    }

    fn store(&self) -> StoreResult<&Arc<dyn Store>> {
        let missing = || StoreError::Unusable { what: "no store to look people up in".to_owned() };
        self.store.get().ok_or_else(missing)
    }
}

fn read<T: DeserializeOwned>(json: &str) -> StoreResult<T> {
    serde_json::from_str(json).map_err(|error| StoreError::Corrupt {
        what: format!("an entry about a person: {error}"),
        cause: None,
    })
}
