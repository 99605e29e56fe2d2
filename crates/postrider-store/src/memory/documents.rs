//! The model's documents.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::Timestamp;
use postrider_core::ports::store::*;

use super::MemoryStore;
use crate::documents::{DELETION_KEPT, DELETIONS_MAX};

#[derive(Default)]
pub(super) struct MemoryDocuments {
    all: BTreeMap<String, MemoryDocument>,
    newest: DocumentVersion,
    /// No deletion up to here is remembered for sure.
    forgotten: DocumentVersion,
}

struct MemoryDocument {
    version: DocumentVersion,
    json: Option<String>,
    /// When it expires; when its deletion is forgotten, if it is deleted.
    until: Option<Timestamp>,
}

#[async_trait]
impl Documents for MemoryStore {
    async fn put_document(
        &self,
        name: &str,
        json: Option<&str>,
        expected: Option<DocumentVersion>,
        ttl: Option<Duration>,
    ) -> StoreResult<PutResult> {
        let now = self.clock.now();
        let result = self.rows().documents.put(name, json, expected, ttl, now);
        if let PutResult::Written(version) = result {
            self.documents.changed(version);
        }
        Ok(result)
    }

    async fn documents(&self, prefix: &str) -> StoreResult<Vec<Document>> {
        Ok(self.rows().documents.present(prefix, self.clock.now()))
    }

    async fn changes(
        &self,
        since: DocumentVersion,
        at_most: Duration,
    ) -> StoreResult<DocumentChanges> {
        self.documents.wait(since, at_most).await;
        Ok(self.rows().documents.changes(since, self.clock.now()))
    }
}

impl MemoryDocuments {
    fn put(
        &mut self,
        name: &str,
        json: Option<&str>,
        expected: Option<DocumentVersion>,
        ttl: Option<Duration>,
        now: Timestamp,
    ) -> PutResult {
        let present = self.all.get(name).map(|stored| stored.view(name, now));
        let present = present.filter(|document| document.json.is_some());
        let version = present.as_ref().map_or(DocumentVersion::NONE, |document| document.version);
        if expected.is_some_and(|expected| expected != version) {
            return PutResult::Conflict(present);
        }
        if json.is_none() && present.is_none() {
            return PutResult::Written(self.newest);
        }
        self.newest = DocumentVersion(self.newest.0 + 1);
        let until = if json.is_some() { ttl } else { Some(DELETION_KEPT) };
        let stored = MemoryDocument {
            version: self.newest,
            json: json.map(str::to_owned),
            until: until.map(|after| now + after),
        };
        self.all.insert(name.to_owned(), stored);
        if json.is_none() {
            self.forget_most();
        }
        PutResult::Written(self.newest)
    }

    fn present(&self, prefix: &str, now: Timestamp) -> Vec<Document> {
        let from = self.all.range(prefix.to_owned()..);
        from.take_while(|(name, _)| name.starts_with(prefix))
            .map(|(name, stored)| stored.view(name, now))
            .filter(|document| document.json.is_some())
            .collect()
    }

    fn changes(&self, since: DocumentVersion, now: Timestamp) -> DocumentChanges {
        let complete =
            since < self.forgotten || since > self.newest || since == DocumentVersion::NONE;
        let documents = match complete {
            true => self.present("", now),
            false => {
                let new = self.all.iter().filter(|(_, stored)| stored.version > since);
                new.map(|(name, stored)| stored.view(name, now)).collect()
            }
        };
        DocumentChanges { upto: self.newest, documents, complete }
    }

    /// Deletes what is over, and forgets old deletions.
    pub(super) fn prune(&mut self, over_by: Timestamp) {
        let is_over = |stored: &MemoryDocument| stored.until.is_some_and(|until| until <= over_by);
        for stored in self.all.values_mut().filter(|stored| stored.json.is_some()) {
            if is_over(stored) {
                stored.json = None;
                stored.until = stored.until.map(|until| until + DELETION_KEPT);
            }
        }
        self.forget(|stored| is_over(stored));
        self.forget_most();
    }

    /// Forgets the oldest deletions if there are too many.
    fn forget_most(&mut self) {
        let deleted = self.all.values().filter(|stored| stored.json.is_none());
        let mut versions: Vec<_> = deleted.map(|stored| stored.version).collect();
        versions.sort_unstable_by(|a, b| b.cmp(a));
        if let Some(&last) = versions.get(DELETIONS_MAX) {
            self.forget(|stored| stored.version <= last);
        }
    }

    fn forget(&mut self, which: impl Fn(&MemoryDocument) -> bool) {
        let forgotten = &mut self.forgotten;
        self.all.retain(|_, stored| {
            let goes = stored.json.is_none() && which(stored);
            if goes {
                *forgotten = stored.version.max(*forgotten);
            }
            !goes
        });
    }
}

impl MemoryDocument {
    /// As it is at this time.
    fn view(&self, name: &str, now: Timestamp) -> Document {
        let is_there = self.json.is_some() && self.until.is_none_or(|until| until > now);
        Document {
            name: name.to_owned(),
            version: self.version,
            json: self.json.clone().filter(|_| is_there),
            expires_at: self.until.filter(|_| is_there),
        }
    }
}
