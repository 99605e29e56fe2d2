//! Entries: their texts are sealed, and so are keys that name a person.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::*;

use super::SealedStore;
use super::cipher::FieldKind;

/// Other keys are hashes.
fn names_a_person(kind: EntryKind) -> bool {
    matches!(kind, EntryKind::Recipient | EntryKind::Alias)
}

impl SealedStore {
    async fn seal_key(&self, key: EntryKey) -> StoreResult<EntryKey> {
        if !names_a_person(key.kind) {
            return Ok(key);
        }
        let sealed = self.keys.seal_recipient(&key.tenant, Some(&key.key)).await?;
        Ok(EntryKey { key: sealed.unwrap_or(key.key), ..key })
    }

    /// What cannot be read any more is absent.
    async fn open_entry(&self, mut entry: StoredEntry) -> StoreResult<Option<StoredEntry>> {
        let tenant = entry.key.tenant.clone();
        if names_a_person(entry.key.kind) {
            let name = self.keys.open_recipient(&tenant, Some(entry.key.key)).await?;
            let Some(name) = name else { return Ok(None) };
            entry.key.key = name;
        }
        let opened = self.keys.open(&tenant, FieldKind::Entry, &entry.json).await?;
        Ok(opened.ok().map(|json| json.into()).map(|json| StoredEntry { json, ..entry }))
    }

    async fn open_entries(&self, found: Vec<StoredEntry>) -> StoreResult<Vec<StoredEntry>> {
        let mut opened = Vec::with_capacity(found.len());
        for entry in found {
            opened.extend(self.open_entry(entry).await?);
        }
        Ok(opened)
    }
}

#[async_trait]
impl Entries for SealedStore {
    async fn entries(&self, keys: Vec<EntryKey>) -> StoreResult<Vec<Option<StoredEntry>>> {
        let mut sealed = Vec::with_capacity(keys.len());
        for key in keys {
            sealed.push(self.seal_key(key).await?);
        }
        let mut opened = Vec::with_capacity(sealed.len());
        for found in self.inner.entries(sealed).await? {
            opened.push(match found {
                Some(entry) => self.open_entry(entry).await?,
                None => None,
            });
        }
        Ok(opened)
    }

    async fn write_entries(&self, writes: Vec<EntryWrite>) -> StoreResult<Vec<EntryResult>> {
        let mut sealed = Vec::with_capacity(writes.len());
        for EntryWrite { key, json, expected } in writes {
            let json = match json {
                Some(text) => {
                    Some(self.keys.seal(&key.tenant, FieldKind::Entry, &text).await?.into())
                }
                None => None,
            };
            sealed.push(EntryWrite { key: self.seal_key(key).await?, json, expected });
        }
        self.inner.write_entries(sealed).await
    }

    async fn entries_behind(
        &self,
        after: Option<EntryKey>,
        limit: usize,
    ) -> StoreResult<Vec<StoredEntry>> {
        let after = match after {
            Some(key) => Some(self.seal_key(key).await?),
            None => None,
        };
        let found = self.inner.entries_behind(after, limit).await?;
        self.open_entries(found).await
    }

    async fn list_entries(
        &self,
        mut filter: EntryFilter,
    ) -> StoreResult<Page<StoredEntry, Arc<str>>> {
        let (tenant, kind) = (filter.tenant.clone(), filter.kind);
        if let Some(after) = filter.after.take() {
            let key = EntryKey { tenant: tenant.clone(), kind, key: after };
            filter.after = Some(self.seal_key(key).await?.key);
        }
        let page = self.inner.list_entries(filter).await?;
        let next = match page.next {
            Some(next) if names_a_person(kind) => {
                self.keys.open_recipient(&tenant, Some(next)).await?
            }
            next => next,
        };
        Ok(Page { items: self.open_entries(page.items).await?, next })
    }
}
