//! The audit log. Whoever appends locks the table against other writers, not against readers.

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{TenantId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::PostgresStore;
use super::failure::PgResult;
use super::session::PgSession;
use super::value::get;

fn record(row: &Row) -> PgResult<AuditRecord> {
    Ok(AuditRecord {
        number: get::<i64>(row, "number")? as u64,
        at: Timestamp(get(row, "at")?),
        tenant: get::<Option<String>>(row, "tenant")?.map(|name| TenantId(name.into())),
        text: get(row, "text")?,
    })
}

/// Writes entries as they are, in an open transaction.
pub(super) async fn insert_audit(session: &mut PgSession, records: &[AuditRecord]) -> PgResult<()> {
    let numbers: Vec<_> = records.iter().map(|record| record.number as i64).collect();
    let times: Vec<_> = records.iter().map(|record| record.at.0).collect();
    let tenants: Vec<_> =
        records.iter().map(|record| record.tenant.as_ref().map(|t| t.as_str())).collect();
    let texts: Vec<_> = records.iter().map(|record| record.text.as_str()).collect();
    let insert = "INSERT INTO audit (number, at, tenant, text) \
                  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[])";
    session.run(insert, &[&numbers, &times, &tenants, &texts]).await.map(drop)
}

impl PostgresStore {
    async fn append_in(
        session: &mut PgSession,
        first: &AuditRecord,
        records: &[AuditRecord],
    ) -> PgResult<bool> {
        session.script("LOCK TABLE audit IN EXCLUSIVE MODE").await?;
        let last = session.first("SELECT max(number) AS number FROM audit", &[]).await?;
        let last = last.map(|row| get::<Option<i64>>(&row, "number")).transpose()?.flatten();
        if first.number != last.unwrap_or(0) as u64 + 1 {
            let select = "SELECT * FROM audit WHERE number = $1";
            let found = session.first(select, &[&(first.number as i64)]).await?;
            let found = found.map(|row| record(&row)).transpose()?;
            return Ok(found.as_ref() == Some(first));
        }
        insert_audit(session, records).await?;
        Ok(true)
    }
}

#[async_trait]
impl AuditLog for PostgresStore {
    async fn append_audit(&self, records: Vec<AuditRecord>) -> StoreResult<bool> {
        let Some(first) = records.first() else { return Ok(true) };
        let mut session = self.shared.pool.durable().await?;
        session.begin().await?;
        let written = Self::append_in(&mut session, first, &records).await?;
        session.commit().await?;
        Ok(written)
    }

    async fn audit_records(&self, filter: AuditFilter) -> StoreResult<Vec<AuditRecord>> {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let select = match (filter.tenant.is_some(), filter.newest_first) {
            (true, true) => {
                "SELECT * FROM audit WHERE tenant = $4 AND number > $1 AND number < $2 \
                 ORDER BY number DESC LIMIT $3"
            }
            (true, false) => {
                "SELECT * FROM audit WHERE tenant = $4 AND number > $1 AND number < $2 \
                 ORDER BY number LIMIT $3"
            }
            (false, true) => {
                "SELECT * FROM audit WHERE $4::text IS NULL AND number > $1 AND number < $2 \
                 ORDER BY number DESC LIMIT $3"
            }
            (false, false) => {
                "SELECT * FROM audit WHERE $4::text IS NULL AND number > $1 AND number < $2 \
                 ORDER BY number LIMIT $3"
            }
        };
        let tenant = filter.tenant.as_ref().map(|tenant| tenant.as_str());
        let (after, before) = (number(filter.after), number(filter.before.unwrap_or(u64::MAX)));
        let limit = number(filter.limit as u64);
        let values: [&(dyn ToSql + Sync); 4] = [&after, &before, &limit, &tenant];
        let mut session = self.shared.pool.durable().await?;
        let rows = session.rows(select, &values).await?;
        Ok(rows.iter().map(record).collect::<PgResult<_>>()?)
    }

    async fn prune_audit(&self, upto: u64) -> StoreResult<u64> {
        let upto = i64::try_from(upto).unwrap_or(i64::MAX);
        let delete =
            "DELETE FROM audit WHERE number <= $1 AND number < (SELECT max(number) FROM audit)";
        let mut session = self.shared.pool.durable().await?;
        Ok(session.run(delete, &[&upto]).await?)
    }
}
