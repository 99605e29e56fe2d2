//! What settlements say about addresses: strikes, learned targets, gone marks.

use postrider_core::policy::strikes::NewStrike;
use postrider_core::{AddressHash, Decision, Strike, StrikeKind, TenantId, Timestamp};
use tokio_postgres::Row;

use super::failure::{PgFailure, PgResult};
use super::rows::StoredRow;
use super::session::PgSession;
use super::shared::PgShared;
use super::value::get;
use crate::sharded::SettleItem;

pub(super) fn strike(row: &Row) -> PgResult<Strike> {
    let kind = u8::try_from(get::<i16>(row, "kind")?).ok().and_then(StrikeKind::from_code);
    Ok(Strike {
        kind: kind.ok_or_else(|| PgFailure::damaged("the kind of a strike"))?,
        count: get::<i32>(row, "count")? as u32,
        first_at: Timestamp(get(row, "first_at")?),
        last_at: Timestamp(get(row, "last_at")?),
        suspect: get(row, "suspect")?,
    })
}

impl PgShared {
    /// Writes what a settlement says about the address that it was sent to.
    pub(super) async fn learn(
        &self,
        session: &mut PgSession,
        item: &SettleItem,
        stored: &StoredRow,
        decision: &Decision,
        now: Timestamp,
    ) -> PgResult<()> {
        let (tenant, hash) = (&stored.tenant, stored.hash);
        if *decision == Decision::Done {
            forgive(session, tenant, hash).await?;
        }
        if let Some(new) = item.learned.strike {
            add_strike(session, tenant, hash, new, now).await?;
        }
        if let Some(target) = &item.learned.target {
            let update = "UPDATE address SET target = $3 WHERE tenant = $1 AND hash = $2 \
                          AND target IS NOT NULL";
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&tenant.as_str(), &hash.0.as_slice(), &target.as_json()];
            session.run(update, &values).await?;
        }
        match *decision == Decision::MarkGone {
            true => mark_gone(session, tenant, hash, now).await,
            false => Ok(()),
        }
    }
}

async fn add_strike(
    session: &mut PgSession,
    tenant: &TenantId,
    hash: AddressHash,
    new: NewStrike,
    now: Timestamp,
) -> PgResult<()> {
    let upsert = "INSERT INTO strike AS s (hash, tenant, kind, count, first_at, last_at, suspect) \
                  VALUES ($1, $2, $3, 1, $4, $4, $5) ON CONFLICT (hash, tenant, kind) DO UPDATE SET \
                  count = s.count + 1, last_at = greatest(s.last_at, excluded.last_at), \
                  suspect = s.suspect OR excluded.suspect";
    let kind = i16::from(new.kind.code());
    let (hash, tenant) = (hash.0.as_slice(), tenant.as_str());
    session.run(upsert, &[&hash, &tenant, &kind, &now.0, &new.suspect]).await?;
    if new.suspect {
        let update = "UPDATE address SET status = 'suspect' WHERE tenant = $1 AND hash = $2 \
                      AND status = 'active'";
        session.run(update, &[&tenant, &hash]).await?;
    }
    Ok(())
}

async fn mark_gone(
    session: &mut PgSession,
    tenant: &TenantId,
    hash: AddressHash,
    now: Timestamp,
) -> PgResult<()> {
    let (hash, tenant) = (hash.0.as_slice(), tenant.as_str());
    let insert = "INSERT INTO gone (hash, tenant) VALUES ($1, $2) \
                  ON CONFLICT (hash, tenant) DO UPDATE SET deleted_before = NULL";
    session.run(insert, &[&hash, &tenant]).await?;
    let update = "UPDATE address SET status = 'gone', gone_at = $3, target = NULL \
                  WHERE tenant = $1 AND hash = $2 AND status <> 'gone'";
    session.run(update, &[&tenant, &hash, &now.0]).await.map(drop)
}

/// Whether there was anything to forgive.
pub(super) async fn forgive(
    session: &mut PgSession,
    tenant: &TenantId,
    hash: AddressHash,
) -> PgResult<bool> {
    let (hash, tenant) = (hash.0.as_slice(), tenant.as_str());
    let delete = "DELETE FROM strike WHERE hash = $1 AND tenant = $2";
    let struck = session.run(delete, &[&hash, &tenant]).await? > 0;
    let update = "UPDATE address SET status = 'active' WHERE tenant = $1 AND hash = $2 \
                  AND status = 'suspect'";
    session.run(update, &[&tenant, &hash]).await?;
    Ok(struck)
}
