//! The audit log: numbered texts that are only appended, and deleted from the old end. Knows nothing of what they say.

use async_trait::async_trait;

use super::StoreResult;
use crate::model::message::TenantId;
use crate::model::time::Timestamp;

/// One entry. Numbers begin at 1 and have no gap.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AuditRecord {
    pub number: u64,
    pub at: Timestamp,
    /// Whose entry it is; absent for what concerns the whole server.
    pub tenant: Option<TenantId>,
    pub text: String,
}

/// Which entries to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only those of one tenant.
    pub tenant: Option<TenantId>,
    /// Only those behind this number.
    pub after: u64,
    /// Only those before this number.
    pub before: Option<u64>,
    /// Newest first; else oldest first.
    pub newest_first: bool,
    pub limit: usize,
}

impl AuditFilter {
    /// The newest entry of all.
    pub fn last() -> Self {
        Self { tenant: None, after: 0, before: None, newest_first: true, limit: 1 }
    }

    /// Entries of all tenants behind a number, oldest first.
    pub fn behind(number: u64, limit: usize) -> Self {
        Self { tenant: None, after: number, before: None, newest_first: false, limit }
    }
}

#[async_trait]
pub trait AuditLog: Send + Sync {
    /// Appends records, all or none, durable on return. The number of the first must follow the last one of the log;
    /// else nothing is written, and the answer is false. So all writers have one order. Records that are there
    /// already as they are given, because an answer was lost, count as written.
    async fn append_audit(&self, records: Vec<AuditRecord>) -> StoreResult<bool>;

    /// Costs what is shown, however many entries others have.
    async fn audit_records(&self, filter: AuditFilter) -> StoreResult<Vec<AuditRecord>>;

    /// Deletes the entries up to this number, but never the last one of the log. Answers how many.
    async fn prune_audit(&self, upto: u64) -> StoreResult<u64>;
}
