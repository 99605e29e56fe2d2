//! Documents.

use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::*;

use super::EmbeddedStore;
use super::sql::documents::{self, DocumentWrite};

#[async_trait]
impl Documents for EmbeddedStore {
    async fn put_document(
        &self,
        name: &str,
        json: Option<&str>,
        expected: Option<DocumentVersion>,
        ttl: Option<Duration>,
    ) -> StoreResult<PutResult> {
        let write = DocumentWrite {
            name: name.to_owned(),
            json: json.map(str::to_owned),
            expires: ttl.map(|ttl| self.shared.now() + ttl),
        };
        self.run_task(move |writer| {
            let result =
                writer.transact_surely(|writer| writer.write_document(&write, expected))?;
            if let PutResult::Written(version) = result {
                writer.shared.documents.changed(version);
            }
            Ok(result)
        })
        .await
    }

    async fn documents(&self, prefix: &str) -> StoreResult<Vec<Document>> {
        let prefix = prefix.to_owned();
        self.shared.read(move |conn, shared| documents::present(conn, &prefix, shared.now())).await
    }

    async fn changes(
        &self,
        since: DocumentVersion,
        at_most: Duration,
    ) -> StoreResult<DocumentChanges> {
        self.shared.documents.wait(since, at_most).await;
        self.shared.check_alive()?;
        self.shared.read(move |conn, shared| documents::changes(conn, since, shared.now())).await
    }
}
