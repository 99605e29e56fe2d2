//! The rows of entries.

use postrider_core::ports::store::{
    EntryFilter, EntryKey, EntryKind, EntryRecord, EntryResult, EntryVersion, EntryWrite,
    StoredEntry,
};

use super::prelude::*;
use crate::entry_pages::next_version;

/// The table.
pub(super) const ENTRIES: &str = "
CREATE TABLE entry (
  tenant TEXT NOT NULL, kind INTEGER NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, json TEXT NOT NULL,
  PRIMARY KEY (tenant, kind, key)) WITHOUT ROWID;
";

fn entry(row: &Row<'_>) -> StoreResult<StoredEntry> {
    let kind = EntryKind::from_code(get(row, "kind")?);
    let key = EntryKey {
        tenant: TenantId(get::<String>(row, "tenant")?.into()),
        kind: kind.ok_or_else(|| damaged("the kind of an entry"))?,
        key: get::<String>(row, "key")?.into(),
    };
    let version = EntryVersion(unsigned(row, "version")?);
    Ok(StoredEntry { key, version, json: get::<String>(row, "json")?.into() })
}

pub(crate) fn read(
    conn: &Connection,
    keys: Vec<EntryKey>,
) -> StoreResult<Vec<Option<StoredEntry>>> {
    let select = "SELECT version, json FROM entry WHERE tenant = ?1 AND kind = ?2 AND key = ?3";
    let one = |key: EntryKey| {
        let values = params![key.tenant.as_str(), key.kind.code(), key.key];
        let found = first_row(conn, select, values, |row| {
            Ok((EntryVersion(unsigned(row, 0)?), get::<String>(row, 1)?))
        })?;
        Ok(found.map(|(version, json)| StoredEntry { key, version, json: json.into() }))
    };
    keys.into_iter().map(one).collect()
}

pub(crate) fn list(conn: &Connection, filter: &EntryFilter) -> StoreResult<Vec<StoredEntry>> {
    let select = "SELECT * FROM entry WHERE tenant = ?1 AND kind = ?2 AND (?3 IS NULL OR key > ?3) \
                  ORDER BY key LIMIT ?4";
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let values = params![filter.tenant.as_str(), filter.kind.code(), filter.after, limit];
    all_rows(conn, select, values, entry)
}

pub(crate) fn behind(
    conn: &Connection,
    after: Option<&EntryKey>,
    limit: usize,
) -> StoreResult<Vec<StoredEntry>> {
    let select = "SELECT * FROM entry WHERE (tenant, kind, key) > (?1, ?2, ?3) \
                  ORDER BY tenant, kind, key LIMIT ?4";
    let values = params![
        after.map_or("", |key| key.tenant.as_str()),
        after.map_or(-1, |key| i64::from(key.kind.code())),
        after.map_or("", |key| &*key.key),
        i64::try_from(limit).unwrap_or(i64::MAX),
    ];
    all_rows(conn, select, values, entry)
}

impl Writer {
    /// Within a transaction.
    pub(crate) fn write_entry(&mut self, write: &EntryWrite) -> StoreResult<EntryResult> {
        let EntryWrite { key, json, expected } = write;
        let (tenant, kind) = (key.tenant.as_str(), key.kind.code());
        let select = "SELECT version FROM entry WHERE tenant = ?1 AND kind = ?2 AND key = ?3";
        let found: Option<i64> = value(&self.conn, select, params![tenant, kind, key.key])?;
        let found = EntryVersion(found.unwrap_or(0).unsigned_abs());
        if expected.is_some_and(|expected| expected != found) {
            return Ok(EntryResult::Conflict(found));
        }
        let Some(json) = json else {
            let delete = "DELETE FROM entry WHERE tenant = ?1 AND kind = ?2 AND key = ?3";
            run(&self.conn, delete, params![tenant, kind, key.key])?;
            return Ok(EntryResult::Written(EntryVersion::NONE));
        };
        let version = next_version(found, self.shared.now());
        self.put_entry(key, version, json)?;
        Ok(EntryResult::Written(version))
    }

    fn put_entry(&self, key: &EntryKey, version: EntryVersion, json: &str) -> StoreResult<()> {
        let put = "INSERT INTO entry (tenant, kind, key, version, json) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (tenant, kind, key) DO UPDATE SET version = excluded.version, \
                   json = excluded.json";
        let (tenant, kind) = (key.tenant.as_str(), key.kind.code());
        run(&self.conn, put, params![tenant, kind, key.key, version.0 as i64, json]).map(drop)
    }

    /// Within a transaction.
    pub(crate) fn import_entry(&self, record: &EntryRecord) -> StoreResult<()> {
        let EntryRecord { tenant, kind, key, version, json } = record;
        let key = EntryKey { tenant: tenant.clone(), kind: *kind, key: key.clone() };
        self.put_entry(&key, *version, json)
    }
}
