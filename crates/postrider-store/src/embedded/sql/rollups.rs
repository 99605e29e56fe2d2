//! The rows of rollups.

use postrider_core::ports::store::{
    RollupFilter, RollupName, RollupOwner, RollupPart, RollupSpan, StoreError,
};

use super::prelude::*;

/// The table. The tenant is empty for the counts of all tenants together.
pub(super) const ROLLUPS: &str = "
CREATE TABLE rollup (
  id INTEGER PRIMARY KEY, span INTEGER NOT NULL, at INTEGER NOT NULL, tenant TEXT NOT NULL, writer INTEGER NOT NULL,
  text TEXT NOT NULL);
CREATE UNIQUE INDEX rollup_name ON rollup (span, tenant, at, writer);
CREATE INDEX rollup_at ON rollup (span, at);
";

/// Parts that one transaction deletes.
const PRUNED_AT_ONCE: i64 = 200;

fn part(row: &Row<'_>) -> StoreResult<RollupPart> {
    let span = RollupSpan::of_code(get(row, "span")?);
    let damaged = || StoreError::Corrupt { what: "the span of a rollup".to_owned(), cause: None };
    let tenant: String = get(row, "tenant")?;
    let name = RollupName {
        span: span.ok_or_else(damaged)?,
        at: Timestamp(get(row, "at")?),
        tenant: (!tenant.is_empty()).then(|| TenantId(tenant.into())),
        writer: unsigned(row, "writer")?,
    };
    Ok(RollupPart { name, text: get(row, "text")? })
}

pub(crate) fn parts(conn: &Connection, filter: &RollupFilter) -> StoreResult<Vec<RollupPart>> {
    let (which, tenant) = match &filter.of {
        RollupOwner::Server => ("tenant = ?4", Some("")),
        RollupOwner::Tenant(tenant) => ("tenant = ?4", Some(tenant.as_str())),
        RollupOwner::Everybody => ("?4 IS NULL", None),
    };
    let select = format!(
        "SELECT * FROM rollup WHERE span = ?1 AND {which} AND at >= ?2 AND at < ?3 ORDER BY at"
    );
    let values = params![filter.span.code(), filter.from.0, filter.until.0, tenant];
    all_rows(conn, &select, values, part)
}

pub(crate) fn parts_behind(
    conn: &Connection,
    after: Option<&RollupName>,
    limit: usize,
) -> StoreResult<Vec<RollupPart>> {
    let select = "SELECT * FROM rollup WHERE (span, at, tenant, writer) > (?1, ?2, ?3, ?4) \
                  ORDER BY span, at, tenant, writer LIMIT ?5";
    let values = params![
        after.map_or(-1, |name| i64::from(name.span.code())),
        after.map_or(0, |name| name.at.0),
        after.and_then(|name| name.tenant.as_ref()).map_or("", |tenant| tenant.as_str()),
        after.map_or(0, |name| name.writer as i64),
        i64::try_from(limit).unwrap_or(i64::MAX),
    ];
    all_rows(conn, select, values, part)
}

impl Writer {
    /// Within a transaction.
    pub(crate) fn put_rollup(&mut self, new: &RollupPart) -> StoreResult<()> {
        let put = "INSERT INTO rollup (span, at, tenant, writer, text) VALUES (?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT (span, tenant, at, writer) DO UPDATE SET text = excluded.text";
        let name = &new.name;
        let tenant = name.tenant.as_ref().map_or("", |tenant| tenant.as_str());
        let values = params![name.span.code(), name.at.0, tenant, name.writer as i64, new.text];
        run(&self.conn, put, values)?;
        Ok(())
    }

    /// One step, within a transaction. Answers how many are deleted.
    pub(crate) fn prune_rollups(
        &mut self,
        span: RollupSpan,
        before: Timestamp,
    ) -> StoreResult<u64> {
        let delete = "DELETE FROM rollup WHERE id IN \
                      (SELECT id FROM rollup WHERE span = ?1 AND at < ?2 ORDER BY at LIMIT ?3)";
        let values = params![span.code(), before.0, PRUNED_AT_ONCE];
        let deleted = run(&self.conn, delete, values)? as u64;
        Ok(deleted)
    }
}
