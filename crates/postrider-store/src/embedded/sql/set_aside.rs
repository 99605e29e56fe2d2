//! Tables that can be made anew from others, or whose rows can be done without. If a page of one cannot be read, the
//! table is kept aside under another name, because its pages cannot be freed unread, and an empty one takes its place.

use super::prelude::*;

/// Within the caller's transaction. `columns` is what follows the name in `CREATE TABLE`.
pub(super) fn set_aside(conn: &Connection, table: &str, columns: &str) -> StoreResult<()> {
    let select = format!("SELECT count(*) FROM sqlite_master WHERE name GLOB '{table}_damaged_*'");
    let number: i64 = value(conn, &select, [])?.unwrap_or(0);
    conn.execute_batch(&format!(
        "ALTER TABLE {table} RENAME TO {table}_damaged_{number}; CREATE TABLE {table} {columns}"
    ))
    .map_err(sql)
}
