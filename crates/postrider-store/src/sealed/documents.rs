//! Documents: our own keys, jobs and event subscriptions are sealed, with the data key of their tenant or of the
//! server.

use std::time::Duration;

use async_trait::async_trait;
use postrider_core::TenantId;
use postrider_core::ports::store::*;

use super::SealedStore;
use super::cipher::{FieldKind, OpenError, SealedName, is_sealed};

/// `key/signing/TENANT/KIND`, with `-` for the server.
const SIGNING_KEYS: &str = "key/signing/";
/// `job/TENANT/ID`, with `*` for all tenants. A job's filter may name a recipient.
const JOBS: &str = "job/";
/// `event-subscription/ID`, with its tenant in the text, or none for the server. Its URL may have a token.
const SUBSCRIPTIONS: &str = "event-subscription/";
/// How the names of the documents that are sealed begin.
const SEALED: [&str; 3] = [SIGNING_KEYS, JOBS, SUBSCRIPTIONS];

/// The server itself, as the owner of a data key.
const SERVER: &str = "";

/// Whose data key seals a document with this text; `None` if it is not sealed.
fn owner(name: &str, json: &str) -> Option<TenantId> {
    let named = |prefix| Some(name.strip_prefix(prefix)?.rsplit_once('/')?.0);
    let tenant = match (named(SIGNING_KEYS), named(JOBS)) {
        (Some("-"), _) | (_, Some("*")) => SERVER.to_owned(),
        (Some(tenant), _) | (_, Some(tenant)) => tenant.to_owned(),
        (None, None) if name.starts_with(SUBSCRIPTIONS) => tenant_in(json),
        (None, None) => return None,
    };
    Some(TenantId::new(tenant.as_str()))
}

fn tenant_in(json: &str) -> String {
    #[derive(serde::Deserialize)]
    struct OwnedDocument {
        tenant: Option<String>,
    }
    let read = serde_json::from_str::<OwnedDocument>(json).ok();
    read.and_then(|document| document.tenant).unwrap_or_else(|| SERVER.to_owned())
}

impl SealedStore {
    /// Seals documents that were written before encryption was turned on, or before they were sealed at all.
    pub(super) async fn seal_old_documents(&self) -> StoreResult<()> {
        for prefix in SEALED {
            for document in self.inner.documents(prefix).await? {
                let Some(json) = document.json.filter(|json| !is_sealed(json)) else { continue };
                let (expected, expires) = (Some(document.version), document.expires_at);
                let ttl = expires.map(|at| at.since(self.inner.clock().now()));
                // Who changed it meanwhile has sealed it.
                self.put_document(&document.name, Some(&json), expected, ttl).await?;
            }
        }
        Ok(())
    }

    /// A document whose key was destroyed is as if it were deleted.
    async fn open_document(&self, mut document: Document) -> StoreResult<Document> {
        let Some(sealed) = document.json.as_deref().and_then(SealedName::parse) else {
            return Ok(document);
        };
        let (named, name) = (TenantId::new(sealed.owner), &document.name);
        let json = document.json.as_deref().unwrap_or_default();
        let opened = self.keys.open(&named, FieldKind::Document, json).await?;
        // A text that was moved to the name of another owner is not opened.
        let opened = opened.and_then(|text| match owner(name, &text) {
            Some(owner) if owner == named => Ok(text.into_owned()),
            _ => Err(OpenError::Damaged),
        });
        document.json = opened
            .inspect_err(|why| {
                tracing::warn!(document = name, ?why, "a document cannot be decrypted");
            })
            .ok();
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
        let sealed = match (json, json.and_then(|json| owner(name, json))) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_with_a_secret_or_a_recipient_has_the_key_of_its_tenant_or_of_the_server() {
        let owner = |name, json| owner(name, json).map(|tenant| tenant.as_str().to_owned());
        for (name, json, expected) in [
            ("key/signing/acme/vapid", "{}", Some("acme")),
            ("key/signing/a/b/webhook", "{}", Some("a/b")),
            ("key/signing/-/hash", "{}", Some(SERVER)),
            ("job/acme/job_1", "{}", Some("acme")),
            ("job/*/job_1", "{}", Some(SERVER)),
            ("event-subscription/evs_1", r#"{"tenant":"acme"}"#, Some("acme")),
            ("event-subscription/evs_1", r#"{"tenant":null}"#, Some(SERVER)),
            ("event-subscription/evs_1", "{}", Some(SERVER)),
            ("template/acme/x", "{}", None),
        ] {
            assert_eq!(owner(name, json).as_deref(), expected, "{name} {json}");
        }
    }
}
