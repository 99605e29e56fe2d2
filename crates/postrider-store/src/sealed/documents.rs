//! Documents: those with our own keys are sealed, with the data key of their tenant or of the server.

use std::time::Duration;

use async_trait::async_trait;
use postrider_core::TenantId;
use postrider_core::ports::store::*;

use super::SealedStore;
use super::cipher::{FieldKind, is_sealed};

/// The names of the documents that are sealed: `key/signing/TENANT/KIND`, with `-` for the server.
const SECRET: &str = "key/signing/";

/// Whose data key seals a document; `None` if it is not sealed.
fn owner(name: &str) -> Option<TenantId> {
    let (tenant, _) = name.strip_prefix(SECRET)?.rsplit_once('/')?;
    Some(TenantId::new(if tenant == "-" { "" } else { tenant }))
}

impl SealedStore {
    /// Seals documents that were written before encryption was turned on.
    pub(super) async fn seal_old_documents(&self) -> StoreResult<()> {
        for document in self.inner.documents(SECRET).await? {
            let Some(json) = document.json.filter(|json| !is_sealed(json)) else { continue };
            let (expected, expires) = (Some(document.version), document.expires_at);
            let ttl = expires.map(|at| at.since(self.inner.clock().now()));
            // Who changed it meanwhile has sealed it.
            self.put_document(&document.name, Some(&json), expected, ttl).await?;
        }
        Ok(())
    }

    /// A document whose key was destroyed is as if it were deleted.
    async fn open_document(&self, mut document: Document) -> StoreResult<Document> {
        let (Some(json), Some(owner)) = (&document.json, owner(&document.name)) else {
            return Ok(document);
        };
        document.json = match self.keys.open(&owner, FieldKind::Document, json).await? {
            Ok(text) => Some(text.into_owned()),
            Err(why) => {
                tracing::warn!(document = document.name, ?why, "a document cannot be decrypted");
                None
            }
        };
        Ok(document)
    }
}

#[async_trait]
impl Documents for SealedStore {
    async fn put_document(
        &self,
        name: &str,
        json: Option<&str>,
        expected: Option<DocumentVersion>,
        ttl: Option<Duration>,
    ) -> StoreResult<PutResult> {
        let sealed = match (json, owner(name)) {
            (Some(json), Some(owner)) => {
                Some(self.keys.seal(&owner, FieldKind::Document, json).await?)
            }
            _ => json.map(str::to_owned),
        };
        match self.inner.put_document(name, sealed.as_deref(), expected, ttl).await? {
            PutResult::Conflict(Some(present)) => {
                Ok(PutResult::Conflict(Some(self.open_document(present).await?)))
            }
            result => Ok(result),
        }
    }

    async fn documents(&self, prefix: &str) -> StoreResult<Vec<Document>> {
        let mut opened = Vec::new();
        for document in self.inner.documents(prefix).await? {
            let document = self.open_document(document).await?;
            opened.extend(Some(document).filter(|document| document.json.is_some()));
        }
        Ok(opened)
    }

    async fn changes(
        &self,
        since: DocumentVersion,
        at_most: Duration,
    ) -> StoreResult<DocumentChanges> {
        let mut changes = self.inner.changes(since, at_most).await?;
        self.keys.follow(&changes);
        let mut opened = Vec::with_capacity(changes.documents.len());
        for document in std::mem::take(&mut changes.documents) {
            opened.push(self.open_document(document).await?);
        }
        Ok(DocumentChanges { documents: opened, ..changes })
    }
}
