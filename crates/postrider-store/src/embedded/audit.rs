//! The audit log: one table, written by tasks of the writer.

use async_trait::async_trait;
use postrider_core::ports::store::*;

use super::EmbeddedStore;
use super::sql::audit;

#[async_trait]
impl AuditLog for EmbeddedStore {
    async fn append_audit(&self, records: Vec<AuditRecord>) -> StoreResult<bool> {
        self.run_task(move |writer| writer.transact_surely(|writer| writer.append_audit(&records)))
            .await
    }

    async fn audit_records(&self, filter: AuditFilter) -> StoreResult<Vec<AuditRecord>> {
        self.shared.read(move |conn, _| audit::records(conn, &filter)).await
    }

    async fn prune_audit(&self, upto: u64) -> StoreResult<u64> {
        let mut deleted = 0;
        loop {
            let step = self
                .run_task(move |writer| writer.transact_surely(|writer| writer.prune_audit(upto)));
            match step.await? {
                0 => return Ok(deleted),
                some => deleted += some,
            }
        }
    }
}
