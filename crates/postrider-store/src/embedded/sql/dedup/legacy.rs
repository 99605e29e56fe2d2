//! Keys as earlier versions stored them: a table per 114 688 keys, and a row per new key. They are moved into
//! runs little by little, and are found where they are until then.

use super::filter::BloomFilter;
use super::record::{DedupHash, KeyRecord, RECORD};
use super::run::{KeyRun, RunPlace};
use crate::embedded::index::effects::DedupEntry;
use crate::embedded::sql::prelude::*;
use crate::embedded::sql::scan::{SkippedKeys, scan};
use crate::embedded::sql::statement::is_local;

const COLUMNS: &str = "key, fingerprint, message, tail, expires";
/// Keys that are read at once.
const READ: usize = 1_000;
const DAY_MS: i64 = 86_400_000;
/// The range of all row numbers.
const ALL: (u64, u64) = (0, i64::MAX as u64);

/// Removes tables that a crash left incomplete. Their keys are still among the new ones.
pub(super) fn drop_unfinished(conn: &Connection) -> StoreResult<()> {
    let select = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB \
                  'dedup_bucket_*' AND CAST(substr(name, 14) AS INTEGER) \
                  NOT IN (SELECT id FROM dedup_bucket)";
    for name in all_rows(conn, select, [], |row| get::<String>(row, 0))? {
        conn.execute_batch(&format!("DROP TABLE {name}")).map_err(sql)?;
    }
    Ok(())
}

pub(super) fn load(conn: &Connection, long: bool) -> StoreResult<(Vec<KeyRun>, Vec<SkippedKeys>)> {
    let select = format!(
        "SELECT id, latest, filter FROM dedup_bucket WHERE id >= ?1 AND id < ?2 \
         AND long = {} ORDER BY id LIMIT ?3",
        i32::from(long)
    );
    let found = scan(conn, &select, ALL, usize::MAX, |row| {
        let bytes = get::<Vec<u8>>(row, 2)?;
        let filter = BloomFilter::from_bytes(&bytes)
            .ok_or_else(|| damaged("the filter of a bucket of idempotency keys"))?;
        let latest: i64 = get(row, 1)?;
        let closed = latest.saturating_sub(DAY_MS);
        let keys = bytes.len() as u64 / 2;
        let (place, opened) = (RunPlace::Table(get(row, 0)?), closed);
        Ok(Some(KeyRun { place, level: 0, keys, opened, closed, median: latest, latest, filter }))
    })?;
    Ok((found.rows, found.skipped))
}

pub(super) fn find(conn: &Connection, id: i64, key: &DedupHash) -> StoreResult<Option<DedupEntry>> {
    let select = format!("SELECT {COLUMNS} FROM dedup_bucket_{id} WHERE key = ?1");
    first_row(conn, &select, [key], |row| Ok(record(row, 0)?.entry()))
}

/// The next keys in order. Those behind a page that cannot be read are forgotten.
pub(super) fn keys_after(
    conn: &Connection,
    id: i64,
    last: Option<&[u8; RECORD]>,
) -> StoreResult<Vec<[u8; RECORD]>> {
    let after = last.map_or(&[][..], |record| &record[..16]);
    let select =
        format!("SELECT {COLUMNS} FROM dedup_bucket_{id} WHERE key > ?1 ORDER BY key LIMIT {READ}");
    match all_rows(conn, &select, [after], |row| Ok(record(row, 0)?.0)) {
        Err(error) if is_local(&error) => {
            tracing::error!(%error, "some idempotency keys cannot be read; they are forgotten");
            Ok(Vec::new())
        }
        read => read,
    }
}

pub(super) fn drop_table(conn: &Connection, id: i64) -> StoreResult<()> {
    conn.execute_batch(&format!("DROP TABLE IF EXISTS dedup_bucket_{id}")).map_err(sql)
}

pub(super) fn unlist(conn: &Connection, id: i64) -> StoreResult<()> {
    run(conn, "DELETE FROM dedup_bucket WHERE id = ?1", [id]).map(drop)
}

/// Reads the rows of new keys.
pub(super) fn read_new(
    conn: &Connection,
    long: bool,
) -> StoreResult<(Vec<KeyRecord>, Vec<SkippedKeys>)> {
    let table = table_of_new(long);
    let select = format!(
        "SELECT id, {COLUMNS} FROM {table} WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3"
    );
    let found = scan(conn, &select, ALL, usize::MAX, |row| record(row, 1).map(Some))?;
    Ok((found.rows, found.skipped))
}

/// Deletes the rows of new keys once they are written elsewhere. If some stay, the next start takes them once more,
/// which does no harm.
pub(super) fn delete_new(conn: &Connection, long: bool) -> StoreResult<()> {
    match run(conn, &format!("DELETE FROM {}", table_of_new(long)), []) {
        Err(error) if is_local(&error) => {
            tracing::error!(%error, "some idempotency keys cannot be deleted");
            Ok(())
        }
        done => done.map(drop),
    }
}

fn table_of_new(long: bool) -> &'static str {
    if long { "dedup_open_long" } else { "dedup_open_short" }
}

fn record(row: &Row<'_>, first: usize) -> StoreResult<KeyRecord> {
    let (key, fingerprint): (DedupHash, _) = (get(row, first)?, get(row, first + 1)?);
    let (seq, tail) = (unsigned(row, first + 2)?, unsigned(row, first + 3)?);
    let message = MessageId(from_order_key(seq, tail));
    let expires = get(row, first + 4)?;
    Ok(KeyRecord::new(&key, &DedupEntry { message, fingerprint, expires }))
}
