//! The model's entries.

use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::Timestamp;
use postrider_core::ports::store::*;

use super::MemoryStore;
use super::rows::MemoryTables;
use crate::entry_pages::next_version;

#[async_trait]
impl Entries for MemoryStore {
    async fn entries(&self, keys: Vec<EntryKey>) -> StoreResult<Vec<Option<StoredEntry>>> {
        let rows = self.rows();
        let read = |key: EntryKey| {
            let (version, json) = rows.entries.get(&key)?.clone();
            Some(StoredEntry { key, version, json })
        };
        Ok(keys.into_iter().map(read).collect())
    }

    async fn write_entries(&self, writes: Vec<EntryWrite>) -> StoreResult<Vec<EntryResult>> {
        let now = self.clock.now();
        let mut rows = self.rows();
        Ok(writes.into_iter().map(|write| rows.write_entry(write, now)).collect())
    }

    async fn entries_behind(
        &self,
        after: Option<EntryKey>,
        limit: usize,
    ) -> StoreResult<Vec<StoredEntry>> {
        let rows = self.rows();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = rows.entries.range((from, Bound::Unbounded)).take(limit);
        Ok(behind.map(|(key, (version, json))| entry(key, *version, json)).collect())
    }

    async fn list_entries(&self, filter: EntryFilter) -> StoreResult<Page<StoredEntry, Arc<str>>> {
        let EntryFilter { tenant, kind, after, limit } = filter;
        let from = EntryKey::new(&tenant, kind, after.as_deref().unwrap_or(""));
        let from = if after.is_some() { Bound::Excluded(from) } else { Bound::Included(from) };
        let rows = self.rows();
        let own = rows.entries.range((from, Bound::Unbounded));
        let own = own.take_while(|(key, _)| key.tenant == tenant && key.kind == kind);
        let items = own.take(limit).map(|(key, (version, json))| entry(key, *version, json));
        Ok(crate::entry_pages::page(items.collect(), limit))
    }
}

fn entry(key: &EntryKey, version: EntryVersion, json: &Arc<str>) -> StoredEntry {
    StoredEntry { key: key.clone(), version, json: json.clone() }
}

impl MemoryTables {
    fn write_entry(&mut self, write: EntryWrite, now: Timestamp) -> EntryResult {
        let EntryWrite { key, json, expected } = write;
        let found = self.entries.get(&key).map_or(EntryVersion::NONE, |(version, _)| *version);
        if expected.is_some_and(|expected| expected != found) {
            return EntryResult::Conflict(found);
        }
        let Some(json) = json else {
            self.entries.remove(&key);
            return EntryResult::Written(EntryVersion::NONE);
        };
        let version = next_version(found, now);
        self.entries.insert(key, (version, json));
        EntryResult::Written(version)
    }
}
