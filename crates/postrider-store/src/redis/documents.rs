//! Documents. They are in one slot, with the newest version of all.

use std::time::Duration;

use async_trait::async_trait;
use postrider_core::Timestamp;
use postrider_core::ports::store::*;

use super::RedisStore;
use super::failure::{RedisFailure, RedisResult};
use super::link::Patience;
use super::pack::{Packed, bytes, int, list, text};
use super::row::ByteReader;
use super::scripts::{DOCUMENT, DOCUMENT_PRUNE, DOCUMENTS};
use super::shared::RedisShared;
use crate::documents::{DELETION_KEPT, DELETIONS_MAX};

fn version(number: i64) -> DocumentVersion {
    DocumentVersion(u64::try_from(number).unwrap_or(0))
}

/// As it is at this time.
fn document(name: &str, value: &[u8], now: Timestamp) -> RedisResult<Document> {
    let mut from = ByteReader(value);
    let (number, until, exists) = (from.number()?, from.number()?, from.byte()? == 1);
    let is_there = exists && (until == 0 || until > now.0);
    let json =
        String::from_utf8(from.0.to_vec()).map_err(|_| RedisFailure::damaged("a document"))?;
    Ok(Document {
        name: name.to_owned(),
        version: version(number),
        json: Some(json).filter(|_| is_there),
        expires_at: Some(Timestamp(until)).filter(|_| is_there && until > 0),
    })
}

impl RedisShared {
    fn document_keys(&self) -> [String; 5] {
        ["doc", "doc_versions", "doc_names", "doc_deleted", "doc_state"]
            .map(|name| self.names.common(name))
    }

    pub(super) async fn write_document(
        &self,
        name: &str,
        json: Option<&str>,
        expected: Option<DocumentVersion>,
        until: Option<i64>,
    ) -> RedisResult<PutResult> {
        let now = self.clock.now();
        let mut packed = Packed::new();
        packed.list(7).bytes(name).maybe(json.map(str::as_bytes));
        match expected {
            Some(expected) => packed.int(expected.0 as i64),
            None => packed.flag(false),
        };
        match until {
            Some(until) => packed.int(until),
            None => packed.flag(false),
        };
        packed.int(now.0).int(DELETION_KEPT.as_millis() as i64).int(DELETIONS_MAX as i64);
        let keys = self.document_keys();
        let answer = self.link.call_durably(&DOCUMENT, &keys, &[&packed.into_bytes()]).await?;
        let mut answer = list(answer)?.into_iter();
        let said = answer.next().and_then(text).unwrap_or_default();
        let value = answer.next().and_then(bytes).unwrap_or_default();
        if said == "conflict" {
            let present = Some(value).filter(|value| !value.is_empty());
            let present = present.map(|value| document(name, &value, now)).transpose()?;
            return Ok(PutResult::Conflict(present));
        }
        let newest = version(super::pack::text_int(&value)?);
        if said == "written" {
            self.documents.changed(newest);
            // Others look by themselves a moment later.
            let _ = self.tell("document").await;
        }
        Ok(PutResult::Written(newest))
    }

    async fn read_documents(
        &self,
        prefix: &str,
        since: Option<DocumentVersion>,
    ) -> RedisResult<DocumentChanges> {
        let now = self.clock.now();
        let since = since.map(|since| since.0.to_string()).unwrap_or_default();
        let arguments = [prefix.as_bytes(), since.as_bytes()];
        let keys = self.document_keys();
        let answer = self.link.call(Patience::Short, &DOCUMENTS, &keys, &arguments).await?;
        let mut answer = list(answer)?.into_iter();
        let upto = version(answer.next().map_or(Ok(0), |newest| int(&newest))?);
        let complete = answer.next().map_or(Ok(0), |flag| int(&flag))? == 1;
        let mut documents = Vec::new();
        while let (Some(name), Some(value)) = (answer.next(), answer.next()) {
            if let (Some(name), Some(value)) = (text(name), bytes(value)) {
                let document = document(&name, &value, now)?;
                if !complete || document.json.is_some() {
                    documents.push(document);
                }
            }
        }
        documents.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(DocumentChanges { upto, documents, complete })
    }

    /// Deletes what is over, and forgets old deletions.
    pub(super) async fn prune_documents(&self, over_by: Timestamp) -> RedisResult<()> {
        let numbers = [over_by.0, DELETION_KEPT.as_millis() as i64, DELETIONS_MAX as i64];
        let texts = numbers.map(|number| number.to_string());
        let arguments = [texts[0].as_bytes(), texts[1].as_bytes(), texts[2].as_bytes()];
        let keys = self.document_keys();
        self.link.call_durably(&DOCUMENT_PRUNE, &keys, &arguments).await.map(drop)
    }
}

#[async_trait]
impl Documents for RedisStore {
    async fn put_document(
        &self,
        name: &str,
        json: Option<&str>,
        expected: Option<DocumentVersion>,
        ttl: Option<Duration>,
    ) -> StoreResult<PutResult> {
        let until = ttl.map(|ttl| (self.shared.clock.now() + ttl).0);
        Ok(self.shared.write_document(name, json, expected, until).await?)
    }

    async fn documents(&self, prefix: &str) -> StoreResult<Vec<Document>> {
        Ok(self.shared.read_documents(prefix, None).await?.documents)
    }

    async fn changes(
        &self,
        since: DocumentVersion,
        at_most: Duration,
    ) -> StoreResult<DocumentChanges> {
        self.shared.documents.wait(since, at_most).await;
        Ok(self.shared.read_documents("", Some(since)).await?)
    }
}
