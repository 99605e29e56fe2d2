//! The index of pending deliveries that layouts before 8 had. An upgrade reads it, so it is made anew first if it is
//! damaged.

use super::prelude::*;
use super::statement::is_local;

/// The layouts with this index.
pub(crate) const WITH_INDEX: std::ops::Range<u32> = 1..8;

pub(crate) fn mend_if_damaged(conn: &Connection) -> StoreResult<()> {
    let read =
        "SELECT count(*) FROM delivery INDEXED BY pending WHERE due IS NOT NULL AND lane >= 0";
    match value::<i64>(conn, read, []) {
        Err(error) if is_local(&error) => {
            tracing::error!(%error, "the index of pending deliveries is damaged; it is made anew");
            make_anew(conn)
        }
        read => read.map(drop),
    }
}

/// A new index takes the name of the damaged one, whose pages are lost: they cannot be freed unread.
fn make_anew(conn: &Connection) -> StoreResult<()> {
    let script = "PRAGMA writable_schema = ON; BEGIN IMMEDIATE; \
                  CREATE INDEX pending_new ON delivery (lane, due) WHERE due IS NOT NULL; \
                  DELETE FROM sqlite_schema WHERE type = 'index' AND name = 'pending'; \
                  UPDATE sqlite_schema SET name = 'pending', \
                  sql = replace(sql, 'pending_new', 'pending') WHERE name = 'pending_new'; COMMIT";
    let done = conn.execute_batch(script).map_err(sql);
    if done.is_err() && !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK").map_err(sql)?;
    }
    conn.execute_batch("PRAGMA writable_schema = RESET").map_err(sql)?;
    done
}
