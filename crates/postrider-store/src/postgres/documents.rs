//! Documents. One row has the newest version of all; whoever writes a document locks it.

use std::time::Duration;

use async_trait::async_trait;
use postrider_core::Timestamp;
use postrider_core::ports::store::*;
use tokio_postgres::Row;

use super::PostgresStore;
use super::failure::{PgFailure, PgResult};
use super::session::PgSession;
use super::shared::PgShared;
use super::value::get;
use crate::documents::{DELETION_KEPT, DELETIONS_MAX};

fn version(number: i64) -> DocumentVersion {
    DocumentVersion(u64::try_from(number).unwrap_or(0))
}

/// As it is at this time.
fn document(row: &Row, now: Timestamp) -> PgResult<Document> {
    let until: Option<i64> = get(row, "until")?;
    let json: Option<String> = get(row, "json")?;
    let is_there = json.is_some() && until.is_none_or(|until| until > now.0);
    Ok(Document {
        name: get(row, "name")?,
        version: version(get(row, "version")?),
        json: json.filter(|_| is_there),
        expires_at: until.map(Timestamp).filter(|_| is_there),
    })
}

/// A document to write, or to delete if it has no text.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewDocument<'a> {
    pub(super) name: &'a str,
    pub(super) json: Option<&'a str>,
    pub(super) until: Option<i64>,
}

/// Everything that begins with `$1`. Both ends are bounds of the index, so that no other document is read.
const PRESENT: &str = "SELECT * FROM document WHERE name >= $1 AND name < $1 || chr(1114111) AND json IS NOT NULL \
    AND (until IS NULL OR until > $2) ORDER BY name";

/// Forgets deletions that meet a condition.
async fn forget(session: &mut PgSession, versions: &'static str, values: &[i64]) -> PgResult<()> {
    let values: Vec<_> =
        values.iter().map(|value| value as &(dyn tokio_postgres::types::ToSql + Sync)).collect();
    session.run(versions, &values).await.map(drop)
}

const FORGET_MOST: &str = "WITH f AS (DELETE FROM document WHERE json IS NULL AND version <= \
    (SELECT version FROM document WHERE json IS NULL ORDER BY version DESC OFFSET $1 LIMIT 1) RETURNING version) \
    UPDATE document_state SET forgotten = greatest(forgotten, (SELECT max(version) FROM f)) \
    WHERE EXISTS (SELECT 1 FROM f)";

const FORGET_OLD: &str = "WITH f AS (DELETE FROM document WHERE json IS NULL AND until <= $1 RETURNING version) \
    UPDATE document_state SET forgotten = greatest(forgotten, (SELECT max(version) FROM f)) \
    WHERE EXISTS (SELECT 1 FROM f)";

impl PgShared {
    async fn write_document(
        &self,
        new: &NewDocument<'_>,
        expected: Option<DocumentVersion>,
    ) -> PgResult<PutResult> {
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        let (result, is_change) = self.put_in(&mut session, new, expected).await?;
        if !is_change {
            session.roll_back().await?;
            return Ok(result);
        }
        session.commit().await?;
        drop(session);
        if let PutResult::Written(newest) = result {
            self.documents.changed(newest);
        }
        self.tell_of_document().await;
        Ok(result)
    }

    /// Writes a document in an open transaction. Tells whether that changed anything.
    pub(super) async fn put_in(
        &self,
        session: &mut PgSession,
        new: &NewDocument<'_>,
        expected: Option<DocumentVersion>,
    ) -> PgResult<(PutResult, bool)> {
        let NewDocument { name, json, until } = *new;
        let now = self.clock.now();
        let newest = lock_documents(session).await?;
        let select = "SELECT * FROM document WHERE name = $1";
        let row = session.first(select, &[&name]).await?;
        let present = row.map(|row| document(&row, now)).transpose()?;
        let present = present.filter(|document| document.json.is_some());
        let found = present.as_ref().map_or(DocumentVersion::NONE, |document| document.version);
        if expected.is_some_and(|expected| expected != found) {
            return Ok((PutResult::Conflict(present), false));
        }
        if json.is_none() && present.is_none() {
            return Ok((PutResult::Written(version(newest)), false));
        }
        let newest = newest + 1;
        let until = if json.is_some() { until } else { Some((now + DELETION_KEPT).0) };
        let upsert = "INSERT INTO document (name, version, json, until) VALUES ($1, $2, $3, $4) \
                      ON CONFLICT (name) DO UPDATE SET version = excluded.version, json = excluded.json, \
                      until = excluded.until";
        session.run(upsert, &[&name, &newest, &json, &until]).await?;
        session.run("UPDATE document_state SET newest = $1", &[&newest]).await?;
        if json.is_none() {
            forget(session, FORGET_MOST, &[DELETIONS_MAX as i64]).await?;
        }
        Ok((PutResult::Written(version(newest)), true))
    }

    async fn read_changes(&self, since: DocumentVersion) -> PgResult<DocumentChanges> {
        let now = self.clock.now();
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        session.script("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY").await?;
        let row = session.first("SELECT newest, forgotten FROM document_state", &[]).await?;
        let row = row.ok_or_else(|| PgFailure::damaged("the versions of documents"))?;
        let upto = version(get(&row, "newest")?);
        let forgotten = version(get(&row, "forgotten")?);
        let complete = since < forgotten || since > upto || since == DocumentVersion::NONE;
        let rows = match complete {
            true => session.rows(PRESENT, &[&"", &now.0]).await?,
            false => {
                let select = "SELECT * FROM document WHERE version > $1 ORDER BY name";
                session.rows(select, &[&(since.0 as i64)]).await?
            }
        };
        session.commit().await?;
        let documents = rows.iter().map(|row| document(row, now)).collect::<PgResult<_>>()?;
        Ok(DocumentChanges { upto, documents, complete })
    }

    /// Deletes what is over, and forgets old deletions.
    pub(super) async fn prune_documents(&self, over_by: Timestamp) -> PgResult<()> {
        let mut session = self.pool.durable().await?;
        session.begin().await?;
        lock_documents(&mut session).await?;
        let kept = DELETION_KEPT.as_millis() as i64;
        let delete = "UPDATE document SET json = NULL, until = until + $2 \
                      WHERE json IS NOT NULL AND until <= $1";
        session.run(delete, &[&over_by.0, &kept]).await?;
        forget(&mut session, FORGET_OLD, &[over_by.0]).await?;
        forget(&mut session, FORGET_MOST, &[DELETIONS_MAX as i64]).await?;
        session.commit().await
    }
}

/// The newest version. Nobody else writes documents until the end of the transaction.
async fn lock_documents(session: &mut PgSession) -> PgResult<i64> {
    let row = session.first("SELECT newest FROM document_state FOR UPDATE", &[]).await?;
    let row = row.ok_or_else(|| PgFailure::damaged("the versions of documents"))?;
    Ok(get(&row, "newest")?)
}

#[async_trait]
impl Documents for PostgresStore {
    async fn put_document(
        &self,
        name: &str,
        json: Option<&str>,
        expected: Option<DocumentVersion>,
        ttl: Option<Duration>,
    ) -> StoreResult<PutResult> {
        let until = ttl.map(|ttl| (self.shared.clock.now() + ttl).0);
        Ok(self.shared.write_document(&NewDocument { name, json, until }, expected).await?)
    }

    async fn documents(&self, prefix: &str) -> StoreResult<Vec<Document>> {
        let now = self.shared.clock.now();
        let mut session = self.shared.pool.durable().await?;
        let rows = session.rows(PRESENT, &[&prefix, &now.0]).await?;
        Ok(rows.iter().map(|row| document(row, now)).collect::<PgResult<_>>()?)
    }

    async fn changes(
        &self,
        since: DocumentVersion,
        at_most: Duration,
    ) -> StoreResult<DocumentChanges> {
        self.shared.documents.wait(since, at_most).await;
        Ok(self.shared.read_changes(since).await?)
    }
}
