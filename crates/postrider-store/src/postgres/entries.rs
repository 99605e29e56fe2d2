//! Entries. Whoever writes some of a tenant's locks their rows in the order of their keys.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::TenantId;
use postrider_core::ports::store::*;
use tokio_postgres::Row;

use super::PostgresStore;
use super::failure::{PgFailure, PgResult};
use super::session::PgSession;
use super::shared::PgShared;
use super::value::get;
use crate::entry_pages::{next_version, page};

fn entry(row: &Row) -> PgResult<StoredEntry> {
    let kind = u8::try_from(get::<i16>(row, "kind")?).ok().and_then(EntryKind::from_code);
    let key = EntryKey {
        tenant: TenantId(get::<String>(row, "tenant")?.into()),
        kind: kind.ok_or_else(|| PgFailure::damaged("the kind of an entry"))?,
        key: get::<String>(row, "key")?.into(),
    };
    let version = EntryVersion(get::<i64>(row, "version")?.unsigned_abs());
    Ok(StoredEntry { key, version, json: get::<String>(row, "json")?.into() })
}

/// The columns of keys, for `unnest`.
fn columns<'a>(keys: impl Iterator<Item = &'a EntryKey>) -> (Vec<&'a str>, Vec<i16>, Vec<&'a str>) {
    let (mut tenants, mut kinds, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for key in keys {
        tenants.push(key.tenant.as_str());
        kinds.push(i16::from(key.kind.code()));
        names.push(&*key.key);
    }
    (tenants, kinds, names)
}

const PUT: &str = "INSERT INTO entry (tenant, kind, key, version, json) VALUES ($1, $2, $3, $4, $5) \
    ON CONFLICT (tenant, kind, key) DO UPDATE SET version = excluded.version, json = excluded.json";

impl PgShared {
    async fn read_entries(&self, keys: Vec<EntryKey>) -> PgResult<Vec<Option<StoredEntry>>> {
        let select = "SELECT e.*, u.n FROM unnest($1::text[], $2::smallint[], $3::text[]) WITH ORDINALITY \
                      AS u (tenant, kind, key, n) \
                      JOIN entry e ON e.tenant = u.tenant AND e.kind = u.kind AND e.key = u.key";
        let mut found = vec![None; keys.len()];
        if keys.is_empty() {
            return Ok(found);
        }
        let (tenants, kinds, names) = columns(keys.iter());
        let mut session = self.pool.durable().await?;
        for row in session.rows(select, &[&tenants, &kinds, &names]).await? {
            let place = usize::try_from(get::<i64>(&row, "n")? - 1).unwrap_or(usize::MAX);
            if let Some(slot) = found.get_mut(place) {
                *slot = Some(entry(&row)?);
            }
        }
        Ok(found)
    }

    async fn write_entries(&self, writes: &[EntryWrite]) -> PgResult<Vec<EntryResult>> {
        let mut order: Vec<_> = (0..writes.len()).collect();
        // Several nodes may write the same ones: one order for all means that none waits for another in a circle.
        order.sort_by(|a, b| writes[*a].key.cmp(&writes[*b].key));
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        let mut results = vec![EntryResult::Conflict(EntryVersion::NONE); writes.len()];
        for place in order {
            results[place] = self.write_entry(&mut session, &writes[place]).await?;
        }
        session.commit().await?;
        Ok(results)
    }

    async fn write_entry(
        &self,
        session: &mut PgSession,
        write: &EntryWrite,
    ) -> PgResult<EntryResult> {
        let EntryWrite { key: EntryKey { tenant, kind, key }, json, expected } = write;
        let (tenant, kind, key) = (tenant.as_str(), i16::from(kind.code()), &**key);
        // What does not exist cannot be locked as a row.
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended('entry ' || $2::smallint::text || ' ' || $1 || ' ' || $3, 0))";
        session.run(lock, &[&tenant, &kind, &key]).await?;
        let select = "SELECT version FROM entry WHERE tenant = $1 AND kind = $2 AND key = $3";
        let row = session.first(select, &[&tenant, &kind, &key]).await?;
        let found = row.map(|row| get::<i64>(&row, "version")).transpose()?.unwrap_or(0);
        let found = EntryVersion(found.unsigned_abs());
        if expected.is_some_and(|expected| expected != found) {
            return Ok(EntryResult::Conflict(found));
        }
        let Some(json) = json.as_deref() else {
            let delete = "DELETE FROM entry WHERE tenant = $1 AND kind = $2 AND key = $3";
            session.run(delete, &[&tenant, &kind, &key]).await?;
            return Ok(EntryResult::Written(EntryVersion::NONE));
        };
        let version = next_version(found, self.clock.now());
        session.run(PUT, &[&tenant, &kind, &key, &(version.0 as i64), &json]).await?;
        Ok(EntryResult::Written(version))
    }
}

pub(super) async fn import_entry(session: &mut PgSession, record: &EntryRecord) -> PgResult<()> {
    let EntryRecord { tenant, kind, key, version, json } = record;
    let (tenant, kind, key) = (tenant.as_str(), i16::from(kind.code()), &**key);
    session.run(PUT, &[&tenant, &kind, &key, &(version.0 as i64), &&**json]).await.map(drop)
}

#[async_trait]
impl Entries for PostgresStore {
    async fn entries(&self, keys: Vec<EntryKey>) -> StoreResult<Vec<Option<StoredEntry>>> {
        Ok(self.shared.read_entries(keys).await?)
    }

    async fn write_entries(&self, writes: Vec<EntryWrite>) -> StoreResult<Vec<EntryResult>> {
        match writes.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(self.shared.write_entries(&writes).await?),
        }
    }

    async fn entries_behind(
        &self,
        after: Option<EntryKey>,
        limit: usize,
    ) -> StoreResult<Vec<StoredEntry>> {
        let select = "SELECT * FROM entry WHERE (tenant, kind, key) > ($1, $2, $3) \
                      ORDER BY tenant, kind, key LIMIT $4";
        let tenant = after.as_ref().map_or("", |key| key.tenant.as_str());
        let kind = after.as_ref().map_or(-1, |key| i16::from(key.kind.code()));
        let key = after.as_ref().map_or("", |key| &*key.key);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut session = self.shared.pool.durable().await?;
        let rows = session.rows(select, &[&tenant, &kind, &key, &limit]).await?;
        Ok(rows.iter().map(entry).collect::<PgResult<_>>()?)
    }

    async fn list_entries(&self, filter: EntryFilter) -> StoreResult<Page<StoredEntry, Arc<str>>> {
        let select = "SELECT * FROM entry WHERE tenant = $1 AND kind = $2 AND ($3::text IS NULL OR key > $3) \
                      ORDER BY key LIMIT $4";
        let (tenant, kind) = (filter.tenant.as_str(), i16::from(filter.kind.code()));
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
        let mut session = self.shared.pool.durable().await?;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&tenant, &kind, &filter.after.as_deref(), &limit];
        let rows = session.rows(select, &values).await?;
        let found: Vec<_> = rows.iter().map(entry).collect::<PgResult<_>>()?;
        Ok(page(found, filter.limit))
    }
}
