//! Indexes whose pages cannot be read. Such an index stops every write of its table, although all rows are there.
//! It is taken out of the schema, so that it is not used any more. Its pages stay unused, because they cannot be
//! freed unread.

use postrider_core::ports::store::StoreError;

use super::prelude::*;
use super::statement::is_local;

/// After one look at the whole index of recipients, the next one is not before this time is over.
const LOOK_EVERY_MS: i64 = 60_000;

impl Writer {
    /// After a write failed because of damage. True if that was in the index of recipients, which is not used any more
    /// from now on: a recipient's deliveries are found more slowly, and the write can be repeated.
    pub(crate) fn give_up_recipient_index(&mut self) -> bool {
        let now = self.shared.now();
        if now.0 < self.look_at_index {
            return false;
        }
        self.look_at_index = now.0 + LOOK_EVERY_MS;
        let all = "SELECT count(*) FROM delivery INDEXED BY delivery_recipient \
                   WHERE recipient IS NOT NULL";
        let Some(error) = damage(&self.conn, all) else { return false };
        if let Err(error) = forget(&self.conn, "delivery_recipient") {
            tracing::error!(%error, "the damaged index of recipients cannot be taken out");
            return false;
        }
        let what = format!(
            "the index of recipients is damaged ({error}): their deliveries are found more slowly until a restart, \
             which makes it anew"
        );
        self.shared.problems.report("index_damaged", now, what);
        true
    }
}

/// At a start: makes the index of the versions of documents anew if it cannot be read. There are few documents.
pub(super) fn renew_document_index(conn: &Connection) -> StoreResult<()> {
    let all = "SELECT count(*) FROM document INDEXED BY document_version WHERE version >= 0";
    let Some(error) = damage(conn, all) else { return Ok(()) };
    tracing::error!(%error, "the index of documents is damaged; it is made anew");
    forget(conn, "document_version")?;
    run(conn, "CREATE INDEX document_version ON document (version)", []).map(drop)
}

/// Why the index that `all` reads cannot be read. Absent if it can, and also if there is none.
fn damage(conn: &Connection, all: &str) -> Option<StoreError> {
    conn.prepare(all).ok()?;
    value::<i64>(conn, all, []).err().filter(is_local)
}

fn forget(conn: &Connection, index: &str) -> StoreResult<()> {
    let transaction = conn.unchecked_transaction().map_err(sql)?;
    let version: i64 = value(&transaction, "PRAGMA schema_version", [])?.unwrap_or(0);
    // The version tells the other connections.
    let forget = format!(
        "PRAGMA writable_schema = ON; \
         DELETE FROM sqlite_schema WHERE type = 'index' AND name = '{index}'; \
         PRAGMA schema_version = {};",
        version + 1
    );
    let done = transaction
        .execute_batch(&forget)
        .map_err(sql)
        .and_then(|()| transaction.commit().map_err(sql));
    conn.execute_batch("PRAGMA writable_schema = RESET").map_err(sql)?;
    done
}
