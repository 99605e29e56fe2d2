//! The rows of documents. A deleted one stays for a while without its text, so that those who follow changes learn
//! of it; `expires` is then when it is forgotten.

use postrider_core::ports::store::{Document, DocumentChanges, DocumentVersion, PutResult};

use super::prelude::*;
use crate::documents::{DELETION_KEPT, DELETIONS_MAX};

/// In the table `meta`: the version of the last change.
pub(super) const NEWEST: &str = "document_version";
/// In the table `meta`: no deletion up to this version is remembered for sure.
const FORGOTTEN: &str = "documents_forgotten";
/// Documents that one transaction deletes.
const PRUNED_AT_ONCE: usize = 1_000;

/// A document as it is to be.
pub(crate) struct DocumentWrite {
    pub(crate) name: String,
    pub(crate) json: Option<String>,
    pub(crate) expires: Option<Timestamp>,
}

pub(crate) fn newest(conn: &Connection) -> StoreResult<DocumentVersion> {
    // A repaired database may have lost the number.
    let last: Option<i64> = value(conn, "SELECT max(version) FROM document", [])?.flatten();
    Ok(DocumentVersion(last.unwrap_or(0) as u64).max(noted(conn, NEWEST)?))
}

fn noted(conn: &Connection, key: &str) -> StoreResult<DocumentVersion> {
    let found: Option<i64> = value(conn, "SELECT value FROM meta WHERE key = ?1", [key])?;
    Ok(DocumentVersion(found.unwrap_or(0) as u64))
}

/// Those that are there, by name.
pub(crate) fn present(
    conn: &Connection,
    prefix: &str,
    now: Timestamp,
) -> StoreResult<Vec<Document>> {
    let select = "SELECT name, version, json, expires FROM document WHERE name >= ?1 AND name < ?2 \
                  AND json IS NOT NULL AND (expires IS NULL OR expires > ?3) ORDER BY name";
    let end = format!("{prefix}{}", char::MAX);
    all_rows(conn, select, params![prefix, end, now.0], |row| document(row, now))
}

/// Those that changed after a version; all if deletions since then are forgotten.
pub(crate) fn changes(
    conn: &Connection,
    since: DocumentVersion,
    now: Timestamp,
) -> StoreResult<DocumentChanges> {
    let _one_view = conn.unchecked_transaction().map_err(sql)?;
    let upto = newest(conn)?;
    let complete =
        since < noted(conn, FORGOTTEN)? || since > upto || since == DocumentVersion::NONE;
    let documents = match complete {
        true => present(conn, "", now)?,
        false => {
            let select = "SELECT name, version, json, expires FROM document WHERE version > ?1 \
                          ORDER BY name";
            all_rows(conn, select, [since.0 as i64], |row| document(row, now))?
        }
    };
    Ok(DocumentChanges { upto, documents, complete })
}

/// As it is at this time.
fn document(row: &Row<'_>, now: Timestamp) -> StoreResult<Document> {
    let (json, expires): (Option<String>, Option<i64>) = (get(row, "json")?, get(row, "expires")?);
    let is_there = json.is_some() && expires.is_none_or(|expires| expires > now.0);
    Ok(Document {
        name: get(row, "name")?,
        version: DocumentVersion(unsigned(row, "version")?),
        json: json.filter(|_| is_there),
        expires_at: expires.filter(|_| is_there).map(Timestamp),
    })
}

impl Writer {
    /// Within a transaction.
    pub(crate) fn write_document(
        &mut self,
        new: &DocumentWrite,
        expected: Option<DocumentVersion>,
    ) -> StoreResult<PutResult> {
        let now = self.shared.now();
        let select = "SELECT name, version, json, expires FROM document WHERE name = ?1";
        let found = first_row(&self.conn, select, [&new.name], |row| document(row, now))?;
        let present = found.filter(|document| document.json.is_some());
        let version = present.as_ref().map_or(DocumentVersion::NONE, |document| document.version);
        if expected.is_some_and(|expected| expected != version) {
            return Ok(PutResult::Conflict(present));
        }
        let newest = newest(&self.conn)?;
        if new.json.is_none() && present.is_none() {
            return Ok(PutResult::Written(newest));
        }
        let version = DocumentVersion(newest.0 + 1);
        let until = if new.json.is_some() { new.expires } else { Some(now + DELETION_KEPT) };
        let insert = "INSERT INTO document (name, version, json, expires) VALUES (?1, ?2, ?3, ?4) \
                      ON CONFLICT (name) DO UPDATE SET version = excluded.version, \
                      json = excluded.json, expires = excluded.expires";
        let row = params![new.name, version.0 as i64, new.json, until.map(|until| until.0)];
        run(&self.conn, insert, row)?;
        set_meta(&self.conn, NEWEST, version.0 as i64)?;
        if new.json.is_none() {
            self.forget_most_deletions()?;
        }
        Ok(PutResult::Written(version))
    }

    /// Deletes documents whose time is over, and forgets old deletions. True if there is more to do.
    pub(crate) fn prune_documents(&mut self) -> StoreResult<bool> {
        let (over_by, limit) = (self.shared.earliest().0, PRUNED_AT_ONCE as i64);
        let some = "SELECT name FROM document WHERE expires <= ?1 ORDER BY expires LIMIT ?2";
        if value::<String>(&self.conn, some, params![over_by, 1])?.is_none() {
            return Ok(false);
        }
        let forget = format!(
            "DELETE FROM document WHERE json IS NULL AND name IN ({some}) RETURNING version"
        );
        let end = format!(
            "UPDATE document SET json = NULL, expires = expires + {} \
             WHERE json IS NOT NULL AND name IN ({some})",
            DELETION_KEPT.as_millis()
        );
        let changed = self.transact_surely(|writer| {
            let row = params![over_by, limit];
            let forgotten = all_rows(&writer.conn, &forget, row, |row| unsigned(row, 0))?;
            writer.note_forgotten(forgotten.iter().copied().max())?;
            let ended = run(&writer.conn, &end, params![over_by, limit])?;
            writer.forget_most_deletions()?;
            Ok(forgotten.len() + ended)
        })?;
        Ok(changed >= PRUNED_AT_ONCE)
    }

    /// Forgets the oldest deletions if there are too many.
    fn forget_most_deletions(&mut self) -> StoreResult<()> {
        let select = "SELECT version FROM document WHERE json IS NULL ORDER BY version DESC \
                      LIMIT 1 OFFSET ?1";
        let last: Option<i64> = value(&self.conn, select, [DELETIONS_MAX as i64])?;
        let Some(last) = last else { return Ok(()) };
        run(&self.conn, "DELETE FROM document WHERE json IS NULL AND version <= ?1", [last])?;
        self.note_forgotten(Some(last as u64))
    }

    fn note_forgotten(&self, version: Option<u64>) -> StoreResult<()> {
        let version = DocumentVersion(version.unwrap_or(0));
        if version <= noted(&self.conn, FORGOTTEN)? {
            return Ok(());
        }
        set_meta(&self.conn, FORGOTTEN, version.0 as i64)
    }
}
