//! Follows the documents of the store: settings, orders, templates and keys that another node writes take effect here
//! within a second. Writes nothing.

use std::collections::HashMap;
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::ports::store::{Document, DocumentChanges, DocumentVersion, StoreResult};

use crate::api::SharedState;

/// A wait for changes ends by itself after this time.
const WAIT: Duration = Duration::from_secs(30);
/// The pause after a failure of the store.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct DocumentFollower {
    app: SharedState,
    /// Everything up to here is applied.
    since: DocumentVersion,
    ends: DocumentEnds,
    /// The last try failed, which was reported.
    failing: bool,
}

impl DocumentFollower {
    pub(super) fn new(app: SharedState, since: DocumentVersion) -> Self {
        Self { app, since, ends: DocumentEnds::default(), failing: false }
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self) {
        loop {
            match self.follow().await {
                Ok(()) if self.failing => {
                    self.failing = false;
                    tracing::info!("changes of settings and keys are followed again");
                }
                Ok(()) => {}
                Err(error) => {
                    if !self.failing {
                        self.failing = true;
                        tracing::error!(%error, "changes of settings and keys cannot be read; will try again");
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits for changes and applies them.
    async fn follow(&mut self) -> StoreResult<()> {
        let next = self.ends.next().map(|at| at.since(self.app.clock.now()));
        let at_most = next.map_or(WAIT, |next| next.min(WAIT));
        let mut changes = self.app.store.changes(self.since, at_most).await?;
        self.ends.note(&mut changes, self.app.clock.now());
        if changes.complete || !changes.documents.is_empty() {
            apply(&self.app, &changes).await;
        }
        self.since = changes.upto;
        Ok(())
    }
}

async fn apply(app: &SharedState, changes: &DocumentChanges) {
    app.keys.follow(changes).await;
    let renewed = app.signing.follow(changes).await;
    if renewed.iter().any(|tenant| tenant.as_str().is_empty()) {
        app.use_hash_keys();
    }
    for tenant in renewed {
        app.lanes.credential_renewed(&tenant);
    }
    app.operator.follow(changes).await;
    app.templates.follow(changes).await;
    app.audience.follow(changes).await;
    app.notes.follow(changes).await;
    app.live.follow(changes).await;
    app.events.subscriptions.follow(changes).await;
    super::teamwork::follow(&app.lanes, changes);
}

/// Documents with an end. The store tells of no change when it comes.
#[derive(Default)]
struct DocumentEnds(HashMap<String, Document>);

impl DocumentEnds {
    fn next(&self) -> Option<Timestamp> {
        self.0.values().filter_map(|document| document.expires_at).min()
    }

    /// Notes new ends, and adds a deletion of each document whose end has come.
    fn note(&mut self, changes: &mut DocumentChanges, now: Timestamp) {
        if changes.complete {
            self.0.clear();
        }
        for document in &changes.documents {
            match document.expires_at {
                Some(_) => self.0.insert(document.name.clone(), document.clone()),
                None => self.0.remove(&document.name),
            };
        }
        let is_over = |document: &Document| document.expires_at.is_some_and(|at| at <= now);
        let over = self.0.extract_if(|_, document| is_over(document));
        let over: Vec<_> = over.map(|(_, document)| document).collect();
        for mut document in over {
            (document.json, document.expires_at) = (None, None);
            changes.documents.retain(|listed| listed.name != document.name);
            changes.documents.push(document);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_gone_when_its_time_comes() {
        let document = |name: &str, json: &str, expires_at: Option<i64>| Document {
            name: name.to_owned(),
            version: DocumentVersion(1),
            json: Some(json.to_owned()),
            expires_at: expires_at.map(Timestamp),
        };
        let changes =
            |documents| DocumentChanges { upto: DocumentVersion(9), documents, complete: false };
        let mut ends = DocumentEnds::default();
        let all = vec![
            document("a", "1", Some(50)),
            document("b", "1", Some(70)),
            document("c", "1", Some(60)),
        ];
        let mut seen = changes(all.clone());
        ends.note(&mut seen, Timestamp(10));
        assert_eq!((seen.documents, ends.next()), (all, Some(Timestamp(50))));
        // It gets another text and has no end any more.
        ends.note(&mut changes(vec![document("c", "2", None)]), Timestamp(20));
        let mut seen = changes(Vec::new());
        ends.note(&mut seen, Timestamp(60));
        let gone: Vec<_> = seen.documents.iter().map(|d| (&*d.name, d.json.is_none())).collect();
        assert_eq!(gone, [("a", true)]);
        assert_eq!(ends.next(), Some(Timestamp(70)));
        let mut complete = DocumentChanges { complete: true, ..changes(Vec::new()) };
        ends.note(&mut complete, Timestamp(60));
        assert_eq!(ends.next(), None);
    }
}
