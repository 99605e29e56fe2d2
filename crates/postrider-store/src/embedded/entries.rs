//! Entries: one table, written by tasks of the writer.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::*;

use super::EmbeddedStore;
use super::sql::entries;
use crate::entry_pages::page;

/// So few entries are read on the caller's thread.
const READ_HERE: usize = 64;

#[async_trait]
impl Entries for EmbeddedStore {
    async fn entries(&self, keys: Vec<EntryKey>) -> StoreResult<Vec<Option<StoredEntry>>> {
        self.shared.check_alive()?;
        if keys.len() <= READ_HERE {
            return self.shared.read_here(move |conn, _| entries::read(conn, keys));
        }
        self.shared.read(move |conn, _| entries::read(conn, keys)).await
    }

    async fn write_entries(&self, writes: Vec<EntryWrite>) -> StoreResult<Vec<EntryResult>> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        self.run_task(move |writer| {
            writer.transact(|writer| writes.iter().map(|write| writer.write_entry(write)).collect())
        })
        .await
    }

    async fn entries_behind(
        &self,
        after: Option<EntryKey>,
        limit: usize,
    ) -> StoreResult<Vec<StoredEntry>> {
        self.shared.read(move |conn, _| entries::behind(conn, after.as_ref(), limit)).await
    }

    async fn list_entries(&self, filter: EntryFilter) -> StoreResult<Page<StoredEntry, Arc<str>>> {
        let limit = filter.limit;
        let found = self.shared.read(move |conn, _| entries::list(conn, &filter)).await?;
        Ok(page(found, limit))
    }
}
