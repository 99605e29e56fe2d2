//! The audit log as records for another store. The same for every engine.

use postrider_core::ports::store::{
    AuditFilter, AuditLog, RecordPage, StoreError, StoreRecord, StoreResult,
};

/// Entries behind a position, which is a number.
pub(crate) async fn export(
    store: &dyn AuditLog,
    after: Option<&str>,
    limit: usize,
) -> StoreResult<RecordPage> {
    let damaged = |_| StoreError::Corrupt { what: "a position of a copy".to_owned(), cause: None };
    let after = after.map_or(Ok(0), |text| text.parse().map_err(damaged))?;
    let found = store.audit_records(AuditFilter::behind(after, limit)).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.number.to_string());
    Ok(RecordPage { records: found.into_iter().map(StoreRecord::Audit).collect(), next })
}
