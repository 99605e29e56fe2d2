//! What every engine does the same with entries: versions, pages, and records for another store.

use std::sync::Arc;

use postrider_core::ports::store::{
    Entries, EntryKey, EntryKind, EntryRecord, EntryVersion, Page, RecordPage, StoreError,
    StoreRecord, StoreResult, StoredEntry,
};
use postrider_core::{TenantId, Timestamp};

/// The version of a change. An entry that was deleted and made again does not get an old one, unless within the same
/// millisecond.
pub(crate) fn next_version(found: EntryVersion, now: Timestamp) -> EntryVersion {
    EntryVersion((found.0 + 1).max(u64::try_from(now.0).unwrap_or(0)))
}

/// What was found with this limit, and where it goes on.
pub(crate) fn page(items: Vec<StoredEntry>, limit: usize) -> Page<StoredEntry, Arc<str>> {
    let next = items.last().filter(|_| items.len() >= limit).map(|last| last.key.key.clone());
    Page { items, next }
}

/// Entries behind a position, which is the key of an entry.
pub(crate) async fn export(
    store: &dyn Entries,
    after: Option<&str>,
    limit: usize,
) -> StoreResult<RecordPage> {
    let damaged = || StoreError::Corrupt { what: "a position of a copy".to_owned(), cause: None };
    let after = after.map(|text| position(text).ok_or_else(damaged)).transpose()?;
    let found = store.entries_behind(after, limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| text(&last.key));
    let record = |entry| StoreRecord::Entry(Box::new(EntryRecord::from(entry)));
    Ok(RecordPage { records: found.into_iter().map(record).collect(), next })
}

/// The length of the tenant's name comes first: name and key may have any character.
fn text(key: &EntryKey) -> String {
    let tenant = key.tenant.as_str();
    format!("{}:{}:{tenant}{}", tenant.len(), key.kind.code(), key.key)
}

fn position(text: &str) -> Option<EntryKey> {
    let mut parts = text.splitn(3, ':');
    let len = parts.next()?.parse().ok()?;
    let kind = EntryKind::from_code(parts.next()?.parse().ok()?)?;
    let (tenant, key) = parts.next()?.split_at_checked(len)?;
    Some(EntryKey::new(&TenantId::new(tenant), kind, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        for (tenant, key) in [("a", "b"), ("", ""), ("a:b", "1:2:3"), ("ü", "ß")] {
            let key = EntryKey::new(&TenantId::new(tenant), EntryKind::Alias, key);
            assert_eq!(position(&text(&key)), Some(key));
        }
        assert_eq!(position("9:0:short"), None);
        assert_eq!(position("text"), None);
    }
}
