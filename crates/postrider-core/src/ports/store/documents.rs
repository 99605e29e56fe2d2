//! Documents: small JSON texts with names and versions, such as settings, orders of operators, templates and keys.
//! Every node can follow their changes. Knows nothing of what they say.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::StoreResult;
use crate::model::time::Timestamp;

/// Grows with every change of any document of the store, and never repeats.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentVersion(pub u64);

impl DocumentVersion {
    /// Before every change. Also the version of a document that does not exist.
    pub const NONE: Self = Self(0);
}

#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    pub name: String,
    /// The version of its last change.
    pub version: DocumentVersion,
    /// Absent if it was deleted.
    pub json: Option<String>,
    /// From then on it is gone, by the store's clock.
    pub expires_at: Option<Timestamp>,
}

/// Without the text, which may have a secret.
impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Document")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("deleted", &self.json.is_none())
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

/// The answer to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutResult {
    /// The new version; the newest of the store if there was nothing to delete.
    Written(DocumentVersion),
    /// The document has another version than the expected one. Nothing is written. This is the present document, if
    /// there is one.
    Conflict(Option<Document>),
}

/// Documents that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentChanges {
    /// All changes up to here are known now.
    pub upto: DocumentVersion,
    /// The present state of each, by name.
    pub documents: Vec<Document>,
    /// All documents are listed: one that is not was deleted. Some deletions are not known any more, or everything was
    /// asked for.
    pub complete: bool,
}

#[async_trait]
pub trait Documents: Send + Sync {
    /// Writes a document, or deletes it if `json` is absent. Durable on return. With `expected`, only if the document
    /// has that version; [`DocumentVersion::NONE`] means that it must not exist. After `ttl` it is gone.
    async fn put_document(
        &self,
        name: &str,
        json: Option<&str>,
        expected: Option<DocumentVersion>,
        ttl: Option<Duration>,
    ) -> StoreResult<PutResult>;

    /// Those whose names begin with `prefix`, by name.
    async fn documents(&self, prefix: &str) -> StoreResult<Vec<Document>>;

    /// Changes after `since`. Waits for one, at most for so long.
    async fn changes(
        &self,
        since: DocumentVersion,
        at_most: Duration,
    ) -> StoreResult<DocumentChanges>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_document_is_not_shown() {
        let document = Document {
            name: "key/signing/acme/webhook".to_owned(),
            version: DocumentVersion(1),
            json: Some(r#"{"secret":"hidden"}"#.to_owned()),
            expires_at: None,
        };
        assert!(!format!("{document:?}").contains("hidden"));
    }
}
