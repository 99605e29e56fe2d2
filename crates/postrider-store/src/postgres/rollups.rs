//! Rollups. A crash of the server may lose the last moment of counts: their commit does not wait for the disk.

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{TenantId, Timestamp};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::PostgresStore;
use super::failure::{PgFailure, PgResult};
use super::session::PgSession;
use super::value::get;

fn part(row: &Row) -> PgResult<RollupPart> {
    let damaged = || StoreError::Corrupt { what: "the span of a rollup".to_owned(), cause: None };
    let span = RollupSpan::of_code(get::<i16>(row, "span")?.into());
    let tenant: String = get(row, "tenant")?;
    let name = RollupName {
        span: span.ok_or_else(|| PgFailure::from(damaged()))?,
        at: Timestamp(get(row, "at")?),
        tenant: (!tenant.is_empty()).then(|| TenantId(tenant.into())),
        writer: get::<i64>(row, "writer")? as u64,
    };
    Ok(RollupPart { name, text: get(row, "text")? })
}

/// Writes parts, each as a whole.
pub(super) async fn put_rollups(session: &mut PgSession, parts: &[RollupPart]) -> PgResult<()> {
    let spans: Vec<_> = parts.iter().map(|part| i16::from(part.name.span.code())).collect();
    let times: Vec<_> = parts.iter().map(|part| part.name.at.0).collect();
    let tenant = |part: &'_ RollupPart| {
        part.name.tenant.as_ref().map_or_else(String::new, TenantId::to_string)
    };
    let tenants: Vec<_> = parts.iter().map(tenant).collect();
    let writers: Vec<_> = parts.iter().map(|part| part.name.writer as i64).collect();
    let texts: Vec<_> = parts.iter().map(|part| part.text.as_str()).collect();
    let put = "INSERT INTO rollup (span, at, tenant, writer, text) SELECT * FROM \
               unnest($1::smallint[], $2::bigint[], $3::text[], $4::bigint[], $5::text[]) \
               ON CONFLICT (span, tenant, at, writer) DO UPDATE SET text = excluded.text";
    session.run(put, &[&spans, &times, &tenants, &writers, &texts]).await.map(drop)
}

#[async_trait]
impl Rollups for PostgresStore {
    async fn put_rollups(&self, parts: Vec<RollupPart>) -> StoreResult<()> {
        if parts.is_empty() {
            return Ok(());
        }
        // A count that is lost is written again; an event is not.
        let has_events = parts.iter().any(|part| part.name.span == RollupSpan::Events);
        let mut session = match has_events {
            true => self.shared.pool.durable().await?,
            false => self.shared.pool.relaxed().await?,
        };
        Ok(put_rollups(&mut session, &parts).await?)
    }

    async fn rollups(&self, filter: RollupFilter) -> StoreResult<Vec<RollupPart>> {
        let tenant = match &filter.of {
            RollupOwner::Server => Some(""),
            RollupOwner::Tenant(tenant) => Some(tenant.as_str()),
            RollupOwner::Everybody => None,
        };
        let select = match tenant {
            Some(_) => {
                "SELECT * FROM rollup WHERE span = $1 AND tenant = $4 AND at >= $2 AND at < $3 ORDER BY at"
            }
            None => {
                "SELECT * FROM rollup WHERE span = $1 AND $4::text IS NULL AND at >= $2 AND at < $3 ORDER BY at"
            }
        };
        let span = i16::from(filter.span.code());
        let values: [&(dyn ToSql + Sync); 4] = [&span, &filter.from.0, &filter.until.0, &tenant];
        let mut session = self.shared.pool.relaxed().await?;
        let rows = session.rows(select, &values).await?;
        Ok(rows.iter().map(part).collect::<PgResult<_>>()?)
    }

    async fn rollups_behind(
        &self,
        after: Option<RollupName>,
        limit: usize,
    ) -> StoreResult<Vec<RollupPart>> {
        let select = "SELECT * FROM rollup WHERE (span, at, tenant, writer) > ($1, $2, $3, $4) \
                      ORDER BY span, at, tenant, writer LIMIT $5";
        let span = after.as_ref().map_or(-1, |name| i16::from(name.span.code()));
        let at = after.as_ref().map_or(0, |name| name.at.0);
        let tenant = after.as_ref().and_then(|name| name.tenant.as_ref());
        let tenant = tenant.map_or("", |tenant| tenant.as_str());
        let writer = after.as_ref().map_or(0, |name| name.writer as i64);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let values: [&(dyn ToSql + Sync); 5] = [&span, &at, &tenant, &writer, &limit];
        let mut session = self.shared.pool.relaxed().await?;
        let rows = session.rows(select, &values).await?;
        Ok(rows.iter().map(part).collect::<PgResult<_>>()?)
    }

    async fn prune_rollups(&self, span: RollupSpan, before: Timestamp) -> StoreResult<u64> {
        let delete = "DELETE FROM rollup WHERE span = $1 AND at < $2";
        let mut session = self.shared.pool.relaxed().await?;
        Ok(session.run(delete, &[&i16::from(span.code()), &before.0]).await?)
    }
}
