//! Rollups as records for another store. The same for every engine.

use postrider_core::ports::store::{
    RecordPage, RollupName, RollupSpan, Rollups, StoreError, StoreRecord, StoreResult,
};
use postrider_core::{TenantId, Timestamp};

/// Parts behind a position, which is the name of a part.
pub(crate) async fn export(
    store: &dyn Rollups,
    after: Option<&str>,
    limit: usize,
) -> StoreResult<RecordPage> {
    let damaged = || StoreError::Corrupt { what: "a position of a copy".to_owned(), cause: None };
    let after = after.map(|text| position(text).ok_or_else(damaged)).transpose()?;
    let found = store.rollups_behind(after, limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| text(&last.name));
    Ok(RecordPage { records: found.into_iter().map(StoreRecord::Rollup).collect(), next })
}

/// Span, time, writer and tenant. The name of a tenant comes last, because it may have a colon.
fn text(name: &RollupName) -> String {
    let tenant = name.tenant.as_ref().map_or("", |tenant| tenant.as_str());
    format!("{}:{}:{}:{tenant}", name.span.code(), name.at.0, name.writer)
}

fn position(text: &str) -> Option<RollupName> {
    let mut parts = text.splitn(4, ':');
    let span = RollupSpan::of_code(parts.next()?.parse().ok()?)?;
    let at = Timestamp(parts.next()?.parse().ok()?);
    let writer = parts.next()?.parse().ok()?;
    let tenant = Some(parts.next()?).filter(|name| !name.is_empty()).map(TenantId::new);
    Some(RollupName { span, at, tenant, writer })
}
