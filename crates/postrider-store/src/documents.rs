//! What both stores share about documents: how long deletions are remembered, and how followers are woken.

use std::time::Duration;

use postrider_core::ports::store::DocumentVersion;
use tokio::sync::watch;

/// So long a deletion is remembered, for those who follow changes.
pub(crate) const DELETION_KEPT: Duration = Duration::from_secs(3600);
/// So many deletions are remembered.
pub(crate) const DELETIONS_MAX: usize = 1_000;

/// Wakes those who wait for a change.
pub(crate) struct DocumentSignal {
    newest: watch::Sender<DocumentVersion>,
}

impl DocumentSignal {
    pub(crate) fn new(newest: DocumentVersion) -> Self {
        Self { newest: watch::Sender::new(newest) }
    }

    pub(crate) fn changed(&self, version: DocumentVersion) {
        self.newest.send_if_modified(|newest| {
            let is_newer = version > *newest;
            *newest = version.max(*newest);
            is_newer
        });
    }

    /// Returns when the newest version is another one than `since`, or after `at_most`.
    pub(crate) async fn wait(&self, since: DocumentVersion, at_most: Duration) {
        let mut newest = self.newest.subscribe();
        let changed = newest.wait_for(|newest| *newest != since);
        // The sender lives as long as this store.
        let _ = tokio::time::timeout(at_most, changed).await;
    }
}
