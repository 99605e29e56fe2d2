//! Finds messages by their tags and their campaign (see `Envelope::marks`). A message without any costs nothing.

use postrider_core::model::message::Envelope;

use super::prelude::*;
use super::rows::parse;
use super::scan::scan;
use super::statement::is_local;
use super::upgrade::LayoutStep;

/// Messages that are read at once to list their tags.
const PART: usize = 10_000;

/// By message, for those that are deleted; and by tenant and tag, for those who search.
pub(crate) const TAGS: LayoutStep = LayoutStep {
    before: "
CREATE TABLE message_tag (
  message INTEGER NOT NULL, tag TEXT NOT NULL, tenant INTEGER NOT NULL,
  PRIMARY KEY (message, tag)) WITHOUT ROWID;
CREATE UNIQUE INDEX message_tag_found ON message_tag (tenant, tag, message);
",
    rows: &[],
    convert: Some(list_all_tags),
    after: "",
};

/// Lists the tags of all messages. Those of messages that cannot be read are left out.
pub(crate) fn list_all_tags(conn: &Connection) -> StoreResult<()> {
    let select = "SELECT m.seq, t.id, m.envelope FROM message m JOIN tenant t ON t.name = m.tenant \
                  WHERE m.seq >= ?1 AND m.seq < ?2 ORDER BY m.seq LIMIT ?3";
    let mut from = Some(0);
    while let Some(first) = from {
        let found = scan(conn, select, (first, i64::MAX as u64), PART, |row| {
            let Some(envelope) = get::<Option<String>>(row, 2)? else { return Ok(None) };
            let tags = envelope_marks(&envelope)?;
            Ok(Some((unsigned(row, 0)?, get::<u32>(row, 1)?, tags)))
        })?;
        for (message, tenant, tags) in &found.rows {
            insert_tags(conn, *message, *tenant, tags)?;
        }
        for skipped in &found.skipped {
            let (from, to, error) = (skipped.from, skipped.to, &skipped.error);
            tracing::error!(from, to, %error, "the tags of messages cannot be read");
        }
        from = found.next;
    }
    Ok(())
}

fn envelope_marks(envelope: &str) -> StoreResult<Vec<Box<str>>> {
    // Most envelopes have none, and need not be read.
    match envelope.contains("\"tags\"") || envelope.contains("\"campaign\"") {
        true => Ok(parse::<Envelope>(envelope, "a message's envelope")?.marks()),
        false => Ok(Vec::new()),
    }
}

/// A tag that is written twice counts once.
fn insert_tags(conn: &Connection, message: u64, tenant: u32, tags: &[Box<str>]) -> StoreResult<()> {
    let insert = "INSERT OR IGNORE INTO message_tag (message, tag, tenant) VALUES (?1, ?2, ?3)";
    for tag in tags {
        run(conn, insert, params![message as i64, &**tag, tenant])?;
    }
    Ok(())
}

impl Writer {
    pub(crate) fn list_tags(
        &mut self,
        message: u64,
        tenant: u32,
        tags: &[Box<str>],
    ) -> StoreResult<()> {
        if tags.is_empty() || self.tags_unreadable {
            return Ok(());
        }
        let done = insert_tags(&self.conn, message, tenant, tags);
        self.note_unreadable_tags(done)
    }

    /// Of a message that came from another store.
    pub(crate) fn list_tags_of(
        &mut self,
        message: u64,
        tenant: u32,
        envelope: &str,
    ) -> StoreResult<()> {
        self.list_tags(message, tenant, &envelope_marks(envelope)?)
    }

    /// Of messages that are deleted: from one up to and including another.
    pub(crate) fn delete_tags(&mut self, first: u64, last: u64) -> StoreResult<()> {
        if self.tags_unreadable {
            return Ok(());
        }
        let delete = "DELETE FROM message_tag WHERE message BETWEEN ?1 AND ?2";
        let done = run(&self.conn, delete, [first as i64, last as i64]).map(drop);
        self.note_unreadable_tags(done)
    }

    /// The list only helps to search: no message is refused or kept for it. A transaction that met damage cannot go on
    /// (SQLite forbids it). When it is repeated, and from then on, it leaves the list alone.
    fn note_unreadable_tags(&mut self, done: StoreResult<()>) -> StoreResult<()> {
        if let Err(error) = &done
            && is_local(error)
        {
            self.tags_unreadable = true;
            let what = format!(
                "the list of tags cannot be read ({error}): new messages are not found by their tags until \
                 `postrider fsck --repair` has made it anew"
            );
            self.shared.problems.report("tags_unreadable", self.shared.now(), what);
        }
        done
    }
}

/// Whether a message has all of these marks.
pub(crate) fn has_marks(conn: &Connection, message: u64, marks: &[Box<str>]) -> StoreResult<bool> {
    let select = "SELECT 1 FROM message_tag WHERE message = ?1 AND tag = ?2";
    for mark in marks {
        if value::<i64>(conn, select, params![message as i64, &**mark])?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
