//! The rows of the audit log.

use postrider_core::ports::store::{AuditFilter, AuditRecord};

use super::prelude::*;

/// The table. An entry without a tenant concerns the whole server.
pub(super) const AUDIT: &str = "
CREATE TABLE audit (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, tenant TEXT, text TEXT NOT NULL);
CREATE INDEX audit_tenant ON audit (tenant, number);
";

/// Entries that one transaction deletes.
const PRUNED_AT_ONCE: i64 = 1_000;

const INSERT: &str = "INSERT INTO audit (number, at, tenant, text) VALUES (?1, ?2, ?3, ?4)";

fn record(row: &Row<'_>) -> StoreResult<AuditRecord> {
    Ok(AuditRecord {
        number: unsigned(row, "number")?,
        at: Timestamp(get(row, "at")?),
        tenant: get::<Option<String>>(row, "tenant")?.map(|name| TenantId(name.into())),
        text: get(row, "text")?,
    })
}

pub(crate) fn records(conn: &Connection, filter: &AuditFilter) -> StoreResult<Vec<AuditRecord>> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let which = match filter.tenant.is_some() {
        true => "tenant = ?4",
        false => "?4 IS NULL",
    };
    let order = if filter.newest_first { "DESC" } else { "ASC" };
    let select = format!(
        "SELECT * FROM audit WHERE {which} AND number > ?1 AND number < ?2 ORDER BY number {order} LIMIT ?3"
    );
    let values = params![
        number(filter.after),
        number(filter.before.unwrap_or(u64::MAX)),
        number(filter.limit as u64),
        filter.tenant.as_ref().map(|tenant| tenant.as_str()),
    ];
    all_rows(conn, &select, values, record)
}

impl Writer {
    /// Within a transaction.
    pub(crate) fn append_audit(&mut self, records: &[AuditRecord]) -> StoreResult<bool> {
        let Some(first) = records.first() else { return Ok(true) };
        let last: Option<i64> = value(&self.conn, "SELECT max(number) FROM audit", [])?.flatten();
        if first.number != last.unwrap_or(0) as u64 + 1 {
            let select = "SELECT * FROM audit WHERE number = ?1";
            let found = first_row(&self.conn, select, [first.number as i64], record)?;
            return Ok(found.as_ref() == Some(first));
        }
        records.iter().try_for_each(|record| self.import_audit(record))?;
        Ok(true)
    }

    /// Writes an entry as it is, within a transaction.
    pub(crate) fn import_audit(&mut self, new: &AuditRecord) -> StoreResult<()> {
        let tenant = new.tenant.as_ref().map(|tenant| tenant.as_str());
        run(&self.conn, INSERT, params![new.number as i64, new.at.0, tenant, new.text])?;
        Ok(())
    }

    /// One step, within a transaction. Answers how many are deleted.
    pub(crate) fn prune_audit(&mut self, upto: u64) -> StoreResult<u64> {
        let delete = "DELETE FROM audit WHERE number IN (SELECT number FROM audit WHERE number <= ?1 \
                      AND number < (SELECT max(number) FROM audit) ORDER BY number LIMIT ?2)";
        let upto = i64::try_from(upto).unwrap_or(i64::MAX);
        let deleted = run(&self.conn, delete, params![upto, PRUNED_AT_ONCE])? as u64;
        Ok(deleted)
    }
}
