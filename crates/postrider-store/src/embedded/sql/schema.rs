//! The tables, and how connections are opened. Any SQLite tool can read them: states are small numbers,
//! everything structured is JSON text.

use std::path::Path;
use std::time::Duration;

use rusqlite::OpenFlags;
use rusqlite::config::DbConfig;

use super::audit::AUDIT;
use super::documents_step::DOCUMENTS;
use super::ended::ENDED_ENTRIES;
use super::entries::ENTRIES;
use super::ledger_order::LEDGER_ORDER;
use super::prelude::*;
use super::rollups::ROLLUPS;
use super::statement::is_local;
use super::tags::TAGS;
use super::upgrade::{LayoutStep, RowChange, bring_up_to_date};

/// Each layout as a step from the previous one. A new store takes all steps, an older one those it lacks.
pub(crate) const STEPS: &[LayoutStep] = &[
    LayoutStep::tables(FIRST),
    LayoutStep::tables(MARKS_AND_SETTINGS),
    LOAD_AND_EXPIRY,
    LayoutStep::tables(STRIKES),
    LayoutStep::tables(KEY_RUNS_AND_PACKING),
    LayoutStep::tables(BOUNDED_GROWTH),
    DOCUMENTS,
    LayoutStep::tables(WAITING_LISTED_LATER),
    TAGS,
    LayoutStep::tables(AUDIT),
    LayoutStep::tables(ENDED_ENTRIES),
    LayoutStep::tables(ROLLUPS),
    LayoutStep::tables(DELETED_ADDRESSES),
    LEDGER_ORDER,
    LayoutStep::tables(ENTRIES),
];

/// The layout that this version writes.
pub(crate) const LAYOUT: u32 = STEPS.len() as u32;

/// An address that was deleted has a mark with the order key below which messages are not sent to it any more.
const DELETED_ADDRESSES: &str = "
ALTER TABLE gone ADD COLUMN deleted_before INTEGER;
CREATE INDEX gone_deleted ON gone (deleted_before) WHERE deleted_before IS NOT NULL;
";

/// A message with a single delivery has its content in that delivery's row (`body`), so that most
/// deliveries end with the write of one row.
const FIRST: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tenant (id INTEGER PRIMARY KEY, name TEXT NOT NULL, counts TEXT NOT NULL);
CREATE TABLE lane (
  id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, channel TEXT NOT NULL, provider TEXT NOT NULL,
  class TEXT NOT NULL);
CREATE TABLE message (
  seq INTEGER PRIMARY KEY, tail INTEGER NOT NULL, tenant TEXT NOT NULL, class TEXT NOT NULL,
  expires INTEGER NOT NULL, ttl_s INTEGER NOT NULL, deliveries INTEGER NOT NULL,
  holds INTEGER NOT NULL, envelope TEXT, content TEXT);
CREATE TABLE delivery (
  seq INTEGER PRIMARY KEY, tail INTEGER NOT NULL, message INTEGER NOT NULL, lane INTEGER NOT NULL,
  state INTEGER NOT NULL, reason INTEGER, due INTEGER, attempts INTEGER NOT NULL,
  tries INTEGER NOT NULL, last_delay_ms INTEGER NOT NULL, expires INTEGER NOT NULL,
  changed INTEGER NOT NULL, hash BLOB NOT NULL, address BLOB, address_since INTEGER,
  recipient TEXT, retry TEXT, log TEXT, target TEXT, body TEXT);
CREATE INDEX pending ON delivery (lane, due) WHERE due IS NOT NULL;
CREATE TABLE dead_letter (seq INTEGER PRIMARY KEY);
CREATE TABLE gone (tenant TEXT NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (tenant, hash))
  WITHOUT ROWID;
CREATE TABLE address (
  seq INTEGER PRIMARY KEY, tail INTEGER NOT NULL, tenant TEXT NOT NULL, recipient TEXT,
  channel TEXT NOT NULL, hash BLOB NOT NULL, target TEXT, status TEXT NOT NULL, gone_at INTEGER);
CREATE UNIQUE INDEX address_hash ON address (tenant, hash);
CREATE INDEX address_recipient ON address (tenant, recipient);
CREATE TABLE api_key (
  id BLOB PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, scope TEXT NOT NULL,
  secret_hash BLOB NOT NULL, created INTEGER NOT NULL, revoked INTEGER) WITHOUT ROWID;
CREATE TABLE signing_key (
  id BLOB PRIMARY KEY, tenant TEXT NOT NULL, kind TEXT NOT NULL, secret BLOB NOT NULL,
  created INTEGER NOT NULL, retired INTEGER) WITHOUT ROWID;
CREATE TABLE dedup_bucket (
  id INTEGER PRIMARY KEY, long INTEGER NOT NULL, latest INTEGER NOT NULL, filter BLOB NOT NULL);
CREATE TABLE dedup_open_short (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL, fingerprint BLOB NOT NULL, message INTEGER NOT NULL,
  tail INTEGER NOT NULL, expires INTEGER NOT NULL);
CREATE TABLE dedup_open_long (
  id INTEGER PRIMARY KEY, key BLOB NOT NULL, fingerprint BLOB NOT NULL, message INTEGER NOT NULL,
  tail INTEGER NOT NULL, expires INTEGER NOT NULL);
";

/// Marks of a few deliveries, and settings.
const MARKS_AND_SETTINGS: &str = "
CREATE TABLE mark (
  seq INTEGER PRIMARY KEY, crashes INTEGER NOT NULL, started INTEGER NOT NULL,
  cancelled INTEGER NOT NULL);
CREATE TABLE setting (name TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;
";

/// Alternatives, pending bytes, and the list of expiries.
const LOAD_AND_EXPIRY: LayoutStep = LayoutStep {
    before: "
ALTER TABLE delivery ADD COLUMN alternatives TEXT;
ALTER TABLE message ADD COLUMN pending INTEGER NOT NULL DEFAULT 0;
CREATE TABLE expiry (
  expires INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (expires, seq)) WITHOUT ROWID;
CREATE TEMP TABLE pending_bytes (tenant TEXT NOT NULL, bytes INTEGER NOT NULL);
",
    rows: &[
        RowChange {
            table: "message",
            change: "UPDATE message SET pending = (SELECT count(*) FROM delivery d \
                     WHERE d.seq > message.seq AND d.seq <= message.seq + message.deliveries \
                     AND d.due IS NOT NULL) WHERE deliveries > 1 AND seq >= ?1 AND seq < ?2",
        },
        RowChange {
            table: "message",
            change: "INSERT INTO temp.pending_bytes SELECT tenant, sum(length(CAST(content AS BLOB))) \
                     FROM message WHERE deliveries > 1 AND pending > 0 AND content IS NOT NULL \
                     AND seq >= ?1 AND seq < ?2 GROUP BY tenant",
        },
        RowChange {
            table: "delivery",
            change: "INSERT INTO temp.pending_bytes SELECT l.tenant, \
                     sum(coalesce(length(CAST(d.target AS BLOB)), 0) \
                     + coalesce(length(CAST(d.body AS BLOB)), 0)) \
                     FROM delivery d JOIN lane l ON l.id = d.lane \
                     WHERE d.due IS NOT NULL AND d.seq >= ?1 AND d.seq < ?2 GROUP BY l.tenant",
        },
        RowChange {
            table: "delivery",
            change: "INSERT INTO expiry SELECT expires, seq FROM delivery \
                     WHERE due IS NOT NULL AND seq >= ?1 AND seq < ?2",
        },
    ],
    convert: None,
    after: "
UPDATE tenant SET counts = json_set(counts, '$.bytes', b.bytes) FROM (
  SELECT tenant, sum(bytes) AS bytes FROM temp.pending_bytes GROUP BY tenant) AS b
  WHERE b.tenant = tenant.name;
DROP TABLE temp.pending_bytes;
INSERT INTO meta (key, value) SELECT 'swept', coalesce(max(seq) + 1, 0) FROM delivery;
",
};

/// Strikes of addresses, registered or not.
const STRIKES: &str = "
CREATE TABLE strike (
  tenant TEXT NOT NULL, hash BLOB NOT NULL, kind INTEGER NOT NULL, count INTEGER NOT NULL,
  first INTEGER NOT NULL, last INTEGER NOT NULL, suspect INTEGER NOT NULL,
  PRIMARY KEY (tenant, hash, kind)) WITHOUT ROWID;
CREATE INDEX strike_last ON strike (last);
";

/// Idempotency keys in pages of 54 bytes each (see `dedup::record`). The tables `dedup_open_…` and
/// `dedup_bucket` are empty since. And the ranges of deliveries that are not packed (see `pack`).
const KEY_RUNS_AND_PACKING: &str = "
CREATE TABLE dedup_new_short (id INTEGER PRIMARY KEY, keys BLOB NOT NULL);
CREATE TABLE dedup_new_long (id INTEGER PRIMARY KEY, keys BLOB NOT NULL);
CREATE TABLE dedup_run (
  id INTEGER PRIMARY KEY, long INTEGER NOT NULL, level INTEGER NOT NULL, keys INTEGER NOT NULL,
  opened INTEGER NOT NULL, closed INTEGER NOT NULL, median INTEGER NOT NULL, latest INTEGER NOT NULL);
CREATE TABLE dedup_page (id INTEGER PRIMARY KEY, keys BLOB NOT NULL);
CREATE TABLE dedup_filter (id INTEGER PRIMARY KEY, part BLOB NOT NULL);
CREATE TABLE unpacked (
  first INTEGER PRIMARY KEY, last INTEGER NOT NULL, final INTEGER NOT NULL, again INTEGER NOT NULL);
CREATE INDEX unpacked_again ON unpacked (again);
";

/// Finished deliveries to be deleted later (see `prune`). Changes of the counts of tenants, one row per
/// transaction (see `counts`); `counted` is the last row that a tenant's counts contain. And `used`, a sequence
/// that no delivery of a lane is beyond (see `lanes`).
const BOUNDED_GROWTH: &str = "
ALTER TABLE tenant ADD COLUMN counted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE lane ADD COLUMN used INTEGER NOT NULL DEFAULT 0;
CREATE TABLE count_change (id INTEGER PRIMARY KEY, changes TEXT NOT NULL);
CREATE TABLE prune_later (
  at INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (at, seq)) WITHOUT ROWID;
";

/// The table `waiting` instead of an index: its entries are written later, many at a time (see `waiting`). `listed` is
/// up to where that was done.
const WAITING_LISTED_LATER: &str = "
CREATE TABLE waiting (
  lane INTEGER NOT NULL, due INTEGER NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY (lane, due, seq)) WITHOUT ROWID;
INSERT INTO waiting SELECT lane, due, seq FROM delivery INDEXED BY pending
  WHERE due IS NOT NULL ORDER BY lane, due, seq;
DROP INDEX pending;
INSERT INTO meta (key, value) SELECT 'listed', coalesce(max(seq) + 1, 0) FROM delivery;
";

/// A connection that may write; makes the tables if the file is new.
pub(crate) fn open_writer(file: &Path, cache_kib: u32) -> StoreResult<Connection> {
    let conn = Connection::open(file).map_err(sql)?;
    conn.pragma_update(None, "page_size", 4096).map_err(sql)?;
    // Works for a new file only. An older one keeps its free pages for itself.
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(sql)?;
    conn.pragma_update(None, "journal_mode", "WAL").map_err(sql)?;
    conn.pragma_update(None, "synchronous", "FULL").map_err(sql)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0).map_err(sql)?;
    // Erased bodies and endpoints must not stay readable in the free space of the file.
    conn.pragma_update(None, "secure_delete", "ON").map_err(sql)?;
    tune(&conn, cache_kib)?;
    bring_up_to_date(&conn)?;
    make_recipient_index(&conn)?;
    make_address_index(&conn)?;
    Ok(conn)
}

/// Recipients are found by this index. Not one of the steps, because it reads all deliveries: with a damaged page
/// the store opens without it, and finds recipients more slowly until it is repaired.
fn make_recipient_index(conn: &Connection) -> StoreResult<()> {
    let create = "CREATE INDEX IF NOT EXISTS delivery_recipient ON delivery (recipient) \
                  WHERE recipient IS NOT NULL";
    make_index(conn, "recipients", ("delivery_recipient", "delivery"), create)
}

/// The addresses of a tenant are listed by this index, in their order. Like that of recipients, no step.
fn make_address_index(conn: &Connection) -> StoreResult<()> {
    let create = "CREATE INDEX IF NOT EXISTS address_tenant ON address (tenant)";
    make_index(conn, "addresses", ("address_tenant", "address"), create)
}

fn make_index(
    conn: &Connection,
    of: &str,
    (name, table): (&str, &str),
    create: &str,
) -> StoreResult<()> {
    let there = format!(
        "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = '{name}') \
         OR NOT EXISTS (SELECT 1 FROM {table})"
    );
    if value::<bool>(conn, &there, []).is_ok_and(|there| there == Some(false)) {
        tracing::info!("the index of {of} is made, once; that can take a while");
    }
    match run(conn, create, []) {
        Err(error) if is_local(&error) => {
            tracing::error!(%error, "the index of {of} cannot be made");
            Ok(())
        }
        done => done.map(drop),
    }
}

/// A connection that only reads.
pub(crate) fn open_reader(file: &Path, cache_kib: u32) -> StoreResult<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file, flags).map_err(sql)?;
    conn.pragma_update(None, "query_only", "ON").map_err(sql)?;
    tune(&conn, cache_kib)?;
    Ok(conn)
}

/// A connection for checkpoints alone. It never waits: while a cut of the journal waits for a reader, it
/// holds the write lock.
pub(crate) fn open_checkpointer(file: &Path) -> StoreResult<Connection> {
    let conn = Connection::open(file).map_err(sql)?;
    conn.pragma_update(None, "synchronous", "FULL").map_err(sql)?;
    tune(&conn, 256)?;
    conn.busy_timeout(Duration::ZERO).map_err(sql)?;
    Ok(conn)
}

fn tune(conn: &Connection, cache_kib: u32) -> StoreResult<()> {
    conn.busy_timeout(Duration::from_secs(10)).map_err(sql)?;
    conn.pragma_update(None, "cache_size", -i64::from(cache_kib)).map_err(sql)?;
    conn.pragma_update(None, "temp_store", "MEMORY").map_err(sql)?;
    // Else SQLite plans some statements anew for every value that is bound.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(sql)?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(())
}

pub(crate) fn version(conn: &Connection) -> StoreResult<i64> {
    conn.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_synced_before_it_returns() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("test.db"), 256).unwrap();
        let synchronous: i64 = conn.pragma_query_value(None, "synchronous", |r| r.get(0)).unwrap();
        let journal: String = conn.pragma_query_value(None, "journal_mode", |r| r.get(0)).unwrap();
        assert_eq!((synchronous, journal.as_str()), (2, "wal"), "2 is FULL");
    }
}
