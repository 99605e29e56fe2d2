//! The way in: callers prepare rows, and the writer writes them in shared transactions.

use async_trait::async_trait;
use postrider_core::TenantId;
use postrider_core::ports::store::*;

use super::EmbeddedStore;
use super::requests::WriterRequest;
use super::reserve::DiskReserve;
use super::sql::accept::NewMessageRows;

#[async_trait]
impl Intake for EmbeddedStore {
    async fn accept(&self, messages: Vec<NewMessage>) -> Vec<StoreResult<Admission>> {
        let rows = messages.into_iter().map(NewMessageRows::prepare);
        self.writer.write(rows, WriterRequest::Accept).await
    }

    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>> {
        self.run_task(move |writer| keys.iter().map(|key| writer.repeat(key)).collect()).await
    }

    fn takes_work(&self) -> StoreResult<()> {
        if let Some(cause) = self.shared.failure.cause() {
            return Err(StoreError::Io { what: cause, cause: None });
        }
        if self.is_accepting() { Ok(()) } else { Err(DiskReserve::refusal()) }
    }

    fn load(&self, tenant: Option<&TenantId>) -> Load {
        self.shared.index().tenants.load(tenant)
    }
}
