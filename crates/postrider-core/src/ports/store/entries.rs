//! Entries: what a tenant keeps about people and their addresses, each a small JSON text under a kind and a key. Read
//! by key or in pages, never all at once: there may be millions. Knows nothing of what they say.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Page, StoreResult};
use crate::model::message::TenantId;

/// What an entry is about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// By the recipient's id.
    Recipient,
    /// Whom an alias stands for; by the alias.
    Alias,
    /// What is not sent to an address; by the address' hash.
    Suppression,
    /// What is known about an address besides where it is; by its hash.
    AddressFacts,
}

impl EntryKind {
    pub const ALL: &'static [Self] =
        &[Self::Recipient, Self::Alias, Self::Suppression, Self::AddressFacts];

    /// A small stable number for stores.
    pub fn code(self) -> u8 {
        self as u8
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey {
    pub tenant: TenantId,
    pub kind: EntryKind,
    pub key: Arc<str>,
}

impl EntryKey {
    pub fn new(tenant: &TenantId, kind: EntryKind, key: &str) -> Self {
        Self { tenant: tenant.clone(), kind, key: key.into() }
    }
}

/// Without the key, which may name a person.
impl fmt::Debug for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntryKey({}, {:?})", self.tenant, self.kind)
    }
}

/// Grows with every change of an entry.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct EntryVersion(pub u64);

impl EntryVersion {
    /// Of an entry that does not exist.
    pub const NONE: Self = Self(0);
}

#[derive(Clone, PartialEq, Eq)]
pub struct StoredEntry {
    pub key: EntryKey,
    pub version: EntryVersion,
    pub json: Arc<str>,
}

/// Without the text, which may be about a person.
impl fmt::Debug for StoredEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredEntry")
            .field("key", &self.key)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// An entry as it is to be.
#[derive(Debug, Clone)]
pub struct EntryWrite {
    pub key: EntryKey,
    /// Absent to delete it: then nothing of it stays.
    pub json: Option<Arc<str>>,
    /// Written only if the entry has this version; [`EntryVersion::NONE`] means that it must not exist.
    pub expected: Option<EntryVersion>,
}

/// The answer to one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryResult {
    /// Its new version; [`EntryVersion::NONE`] if it is deleted.
    Written(EntryVersion),
    /// It has this version, which is not the expected one. Nothing is written.
    Conflict(EntryVersion),
}

/// Which entries to show, in order of their keys.
#[derive(Debug, Clone)]
pub struct EntryFilter {
    pub tenant: TenantId,
    pub kind: EntryKind,
    /// The last key of the page before.
    pub after: Option<Arc<str>>,
    pub limit: usize,
}

#[async_trait]
pub trait Entries: Send + Sync {
    /// One answer for each key, in order; `None` where there is nothing.
    async fn entries(&self, keys: Vec<EntryKey>) -> StoreResult<Vec<Option<StoredEntry>>>;

    /// Writes entries, one after the other, each by itself; durable on return. One answer each, in order.
    async fn write_entries(&self, writes: Vec<EntryWrite>) -> StoreResult<Vec<EntryResult>>;

    /// Of all tenants and kinds behind a key, in order; at most `limit`.
    async fn entries_behind(
        &self,
        after: Option<EntryKey>,
        limit: usize,
    ) -> StoreResult<Vec<StoredEntry>>;

    /// In order of their keys as the store has them.
    async fn list_entries(&self, filter: EntryFilter) -> StoreResult<Page<StoredEntry, Arc<str>>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_nothing_personal_is_shown() {
        for &kind in EntryKind::ALL {
            assert_eq!(EntryKind::from_code(kind.code()), Some(kind));
        }
        let key = EntryKey::new(&TenantId::new("acme"), EntryKind::Recipient, "jane@example.org");
        let entry = StoredEntry { key, version: EntryVersion(1), json: "\"hidden\"".into() };
        let shown = format!("{entry:?}");
        assert!(!shown.contains("hidden") && !shown.contains("jane"), "{shown}");
    }
}
