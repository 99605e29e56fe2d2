//! A list of buckets: an open one in memory, at most one that is being closed, and closed ones.

use std::collections::HashMap;

use super::filter::BloomFilter;
use crate::embedded::index::effects::DedupEntry;
use crate::embedded::problems::ProblemList;
use crate::embedded::shared::REPAIR;
use crate::embedded::sql::prelude::*;
use crate::embedded::sql::scan::{SkippedKeys, scan};
use crate::embedded::sql::statement::is_local;

/// An open bucket is closed at this age, so that it can be dropped in time.
const OPEN_FOR_MS: i64 = 3_600_000;
/// Rows moved at once; commits wait for no more than these.
const CHUNK: usize = 8_192;
/// The range of all row numbers.
const ALL: (u64, u64) = (0, i64::MAX as u64);

type DedupHash = [u8; 16];

pub(crate) struct BucketList {
    long: bool,
    /// The growing table.
    table: &'static str,
    /// Appends a key to the growing table.
    insert: String,
    bucket_keys: usize,
    open: HashMap<DedupHash, DedupEntry>,
    opened: i64,
    closing: Option<ClosingBucket>,
    closed: Vec<ClosedBucket>,
}

struct ClosedBucket {
    id: i64,
    latest: i64,
    filter: BloomFilter,
}

/// A bucket that is being moved from the growing table to its own.
struct ClosingBucket {
    id: i64,
    keys: Vec<(DedupHash, DedupEntry)>,
    written: usize,
    /// Once everything is moved: the range of rows to delete from the growing table.
    rows: Option<(i64, i64)>,
    last_row: i64,
}

/// Removes buckets that a crash left incomplete. Their keys are still in the growing table.
pub(crate) fn drop_unfinished(conn: &Connection) -> StoreResult<()> {
    let select = "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB \
                  'dedup_bucket_*' AND CAST(substr(name, 14) AS INTEGER) \
                  NOT IN (SELECT id FROM dedup_bucket)";
    for name in all_rows(conn, select, [], |row| get::<String>(row, 0))? {
        conn.execute_batch(&format!("DROP TABLE {name}")).map_err(sql)?;
    }
    Ok(())
}

impl BucketList {
    pub(crate) fn load(
        conn: &Connection,
        long: bool,
        bucket_keys: usize,
        now: i64,
        problems: &ProblemList,
    ) -> StoreResult<Self> {
        let table = if long { "dedup_open_long" } else { "dedup_open_short" };
        let columns = "key, fingerprint, message, tail, expires";
        let mut list = Self {
            long,
            table,
            insert: format!("INSERT INTO {table} ({columns}) VALUES (?1, ?2, ?3, ?4, ?5)"),
            bucket_keys,
            open: HashMap::new(),
            opened: now,
            closing: None,
            closed: Vec::new(),
        };
        let query = format!(
            "SELECT id, {columns} FROM {table} WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3"
        );
        let keys =
            scan(conn, &query, ALL, usize::MAX, |row| Ok(Some((get(row, 1)?, seen(row, 2)?))))?;
        report(problems, now, &keys.skipped);
        list.open = keys.rows.into_iter().collect();
        let select = format!(
            "SELECT id, latest, filter FROM dedup_bucket WHERE id >= ?1 AND id < ?2 \
             AND long = {} ORDER BY id LIMIT ?3",
            i32::from(long)
        );
        let closed = scan(conn, &select, ALL, usize::MAX, |row| {
            let filter = BloomFilter::from_bytes(&get::<Vec<u8>>(row, 2)?)
                .ok_or_else(|| damaged("the filter of a bucket of idempotency keys"))?;
            Ok(Some(ClosedBucket { id: get(row, 0)?, latest: get(row, 1)?, filter }))
        })?;
        report(problems, now, &closed.skipped);
        list.closed = closed.rows;
        Ok(list)
    }

    pub(crate) fn find(
        &self,
        conn: &Connection,
        key: &DedupHash,
        now: i64,
    ) -> StoreResult<Option<DedupEntry>> {
        let live = |seen: &&DedupEntry| seen.expires > now;
        if let Some(seen) = self.open.get(key).filter(live) {
            return Ok(Some(*seen));
        }
        if let Some(closing) = &self.closing
            && let Ok(at) = closing.keys.binary_search_by_key(key, |(key, _)| *key)
            && let Some((_, seen)) = closing.keys.get(at).filter(|(_, seen)| seen.expires > now)
        {
            return Ok(Some(*seen));
        }
        for bucket in self.closed.iter().rev() {
            if bucket.latest > now && bucket.filter.may_contain(key) {
                let query = format!(
                    "SELECT fingerprint, message, tail, expires FROM dedup_bucket_{} WHERE key = ?1",
                    bucket.id
                );
                let found = first_row(conn, &query, [key], |row| seen(row, 0))?;
                if let Some(seen) = found.filter(|seen| seen.expires > now) {
                    return Ok(Some(seen));
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn append(
        &self,
        conn: &Connection,
        key: &DedupHash,
        seen: &DedupEntry,
    ) -> StoreResult<()> {
        let (message, tail) = split(seen.message);
        let row = params![key, seen.fingerprint, message, tail, seen.expires];
        run(conn, &self.insert, row).map(drop)
    }

    pub(crate) fn remember(&mut self, key: DedupHash, seen: DedupEntry, now: i64) {
        if self.open.is_empty() {
            self.opened = now;
        }
        self.open.insert(key, seen);
    }

    pub(crate) fn work(&mut self, conn: &Connection, now: i64) -> StoreResult<bool> {
        let old = !self.open.is_empty() && self.opened.saturating_add(OPEN_FOR_MS) <= now;
        if self.closing.is_none() && (self.open.len() >= self.bucket_keys || old) {
            self.start_closing(conn)?;
        }
        let table = self.table;
        let Some(closing) = &mut self.closing else { return Ok(false) };
        match closing.rows {
            None if closing.written < closing.keys.len() => closing.write_chunk(conn)?,
            None => {
                let closed = closing.finish(conn, self.long)?;
                let from = smallest_row(conn, table)?;
                closing.rows = Some((from, closing.last_row));
                self.closed.push(closed);
            }
            Some((from, to)) if from <= to => {
                let end = from.saturating_add(CHUNK as i64).min(to.saturating_add(1));
                let delete = format!("DELETE FROM {table} WHERE id >= ?1 AND id < ?2");
                match conn.execute(&delete, [from, end]).map_err(sql) {
                    // They are in the bucket. The next start reads them once more, which does no harm.
                    Err(error) if is_local(&error) => {
                        tracing::error!(%error, "some idempotency keys cannot be deleted");
                    }
                    done => drop(done?),
                }
                closing.rows = Some((end, to));
            }
            Some(_) => self.closing = None,
        }
        Ok(self.closing.is_some())
    }

    fn start_closing(&mut self, conn: &Connection) -> StoreResult<()> {
        let last = value(conn, &format!("SELECT max(id) FROM {}", self.table), [])?.flatten();
        let select = "SELECT coalesce(max(n), 0) + 1 FROM (SELECT max(id) AS n FROM dedup_bucket \
                      UNION ALL SELECT max(CAST(substr(name, 14) AS INTEGER)) FROM sqlite_master \
                      WHERE name GLOB 'dedup_bucket_*')";
        let id: i64 = value(conn, select, [])?.unwrap_or(1);
        conn.execute_batch(&format!(
            "CREATE TABLE dedup_bucket_{id} (key BLOB PRIMARY KEY, fingerprint BLOB NOT NULL, \
             message INTEGER NOT NULL, tail INTEGER NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID"
        ))
        .map_err(sql)?;
        let mut keys: Vec<_> = std::mem::take(&mut self.open).into_iter().collect();
        keys.sort_unstable_by_key(|(key, _)| *key);
        let last_row = last.unwrap_or(0);
        self.closing = Some(ClosingBucket { id, keys, written: 0, rows: None, last_row });
        Ok(())
    }

    pub(crate) fn prune(&mut self, conn: &Connection, now: i64) -> StoreResult<()> {
        while let Some(at) = self.closed.iter().position(|bucket| bucket.latest <= now) {
            let id = self.closed[at].id;
            conn.execute_batch(&format!(
                "BEGIN IMMEDIATE; DROP TABLE dedup_bucket_{id}; \
                 DELETE FROM dedup_bucket WHERE id = {id}; COMMIT"
            ))
            .map_err(|error| {
                let _ = conn.execute_batch("ROLLBACK");
                sql(error)
            })?;
            self.closed.remove(at);
        }
        Ok(())
    }
}

impl ClosingBucket {
    fn write_chunk(&mut self, conn: &Connection) -> StoreResult<()> {
        let end = (self.written + CHUNK).min(self.keys.len());
        let transaction = conn.unchecked_transaction().map_err(sql)?;
        {
            let insert =
                format!("INSERT INTO dedup_bucket_{} VALUES (?1, ?2, ?3, ?4, ?5)", self.id);
            let mut statement = transaction.prepare(&insert).map_err(sql)?;
            for (key, seen) in &self.keys[self.written..end] {
                let (message, tail) = split(seen.message);
                statement
                    .execute(params![key, seen.fingerprint, message, tail, seen.expires])
                    .map_err(sql)?;
            }
        }
        transaction.commit().map_err(sql)?;
        self.written = end;
        Ok(())
    }

    fn finish(&self, conn: &Connection, long: bool) -> StoreResult<ClosedBucket> {
        let mut filter = BloomFilter::sized_for(self.keys.len());
        self.keys.iter().for_each(|(key, _)| filter.insert(key));
        let latest = self.keys.iter().map(|(_, seen)| seen.expires).max().unwrap_or(0);
        run(
            conn,
            "INSERT INTO dedup_bucket (id, long, latest, filter) VALUES (?1, ?2, ?3, ?4)",
            params![self.id, long, latest, filter.to_bytes()],
        )?;
        Ok(ClosedBucket { id: self.id, latest, filter })
    }
}

fn report(problems: &ProblemList, now: i64, skipped: &[SkippedKeys]) {
    for SkippedKeys { from, to, error } in skipped {
        let what = format!(
            "idempotency keys {from} to {to} cannot be read ({error}): a repeat under one of them is taken \
             for new; {REPAIR}"
        );
        problems.report_about("rows_unreadable", *from, Timestamp(now), what);
    }
}

fn smallest_row(conn: &Connection, table: &str) -> StoreResult<i64> {
    let first = value(conn, &format!("SELECT min(id) FROM {table}"), [])?.flatten();
    Ok(first.unwrap_or(i64::MAX))
}

fn split(message: MessageId) -> (i64, i64) {
    (order_key(message.0) as i64, random_tail(message.0) as i64)
}

fn seen(row: &Row<'_>, first: usize) -> StoreResult<DedupEntry> {
    let (seq, tail) = (unsigned(row, first + 1)?, unsigned(row, first + 2)?);
    let (fingerprint, expires) = (get(row, first)?, get(row, first + 3)?);
    Ok(DedupEntry { message: MessageId(from_order_key(seq, tail)), fingerprint, expires })
}
