//! Idempotency keys, exact and durable. The newest keys are in a map in memory and in a table that only
//! grows. When they are many or old, they become a run: sorted pages with a small filter in memory. Runs are
//! merged by levels, so that a lookup asks few filters and mostly reads one page, and are dropped once their
//! last key has expired. All of it in small steps between commits.

#[cfg(test)]
mod cost;
mod export;
pub(crate) mod filter;
mod legacy;
mod levels;
mod list;
mod record;
mod run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::ports::store::{DedupKey, StoreResult};
use postrider_core::{Message, Timestamp};
use rusqlite::Connection;

use crate::embedded::index::effects::{DedupEntry, UncommittedKeys};
use crate::embedded::problems::ProblemList;
use crate::embedded::sql::statement::{is_local, value};
use list::DedupKeyList;
use record::KeyRecord;
use run::RunPlace;

/// Keys with a longer window have runs of their own, so that they do not keep short ones alive.
const SHORT_WINDOW: Duration = Duration::from_secs(25 * 3600);
/// Numbers of runs that are left out if the last one cannot be found.
const NUMBERS_LEFT_OUT: i64 = 1_000_000;

pub(crate) struct DedupStore {
    short: DedupKeyList,
    long: DedupKeyList,
    /// The number of the next run.
    next_run: i64,
}

impl DedupStore {
    /// `run_keys` is how many new keys make a run.
    pub(crate) fn load(
        conn: &Connection,
        run_keys: usize,
        now: Timestamp,
        problems: &ProblemList,
    ) -> StoreResult<Self> {
        if let Err(error) = legacy::drop_unfinished(conn) {
            tracing::error!(%error, "an unfinished bucket of idempotency keys stays");
        }
        let mut store = Self {
            short: DedupKeyList::load(conn, false, run_keys, now.0, problems)?,
            long: DedupKeyList::load(conn, true, run_keys, now.0, problems)?,
            next_run: 1,
        };
        match store.find_unlisted(conn) {
            Err(error) if is_local(&error) => {
                // They stay until the repair. New runs get numbers that no run can have.
                tracing::error!(%error, "unfinished runs of idempotency keys cannot be found");
                store.next_run += NUMBERS_LEFT_OUT;
            }
            found => found?,
        }
        Ok(store)
    }

    /// Finds the rows of runs that a crash left unfinished or half deleted.
    fn find_unlisted(&mut self, conn: &Connection) -> StoreResult<()> {
        let last: Option<Option<i64>> = value(conn, "SELECT max(id) FROM dedup_run", [])?;
        self.next_run = self.next_run.max(last.flatten().unwrap_or(0) + 1);
        let listed = "SELECT EXISTS (SELECT 1 FROM dedup_run WHERE id = ?1)";
        for select in [
            "SELECT id >> 32 FROM dedup_page WHERE id >= ?1 << 32 ORDER BY id LIMIT 1",
            "SELECT id >> 32 FROM dedup_filter WHERE id >= ?1 << 32 ORDER BY id LIMIT 1",
        ] {
            let mut from: i64 = 0;
            while let Some(run) = value::<i64>(conn, select, [from])? {
                if value(conn, listed, [run])? != Some(true) {
                    self.short.drop_later(RunPlace::Pages(run));
                }
                from = run + 1;
                self.next_run = self.next_run.max(from);
            }
        }
        Ok(())
    }

    /// The entry of a key, unless it is over by this time.
    pub(crate) fn find(
        &self,
        conn: &Connection,
        uncommitted: &UncommittedKeys,
        key: &[u8; 16],
        over_by: Timestamp,
    ) -> StoreResult<Option<DedupEntry>> {
        if let Some((_, seen)) = uncommitted.get(key).filter(|(_, seen)| seen.expires > over_by.0) {
            return Ok(Some(*seen));
        }
        for list in [&self.short, &self.long] {
            if let Some(seen) = list.find(conn, key, over_by.0)? {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    /// Keys in order, from the first one at or above `from`, each once. For another store.
    pub(crate) fn export(
        &self,
        conn: &Connection,
        from: [u8; 16],
        limit: usize,
        over_by: Timestamp,
    ) -> StoreResult<Vec<([u8; 16], DedupEntry)>> {
        let mut all = BTreeMap::new();
        for list in [&self.short, &self.long] {
            list.collect(conn, from, limit, over_by.0, &mut all)?;
        }
        Ok(all.into_iter().take(limit).collect())
    }

    /// Notes a key that another store had.
    pub(crate) fn note_imported(
        uncommitted: &mut UncommittedKeys,
        key: [u8; 16],
        entry: DedupEntry,
        now: Timestamp,
    ) {
        let long = Timestamp(entry.expires).since(now) > SHORT_WINDOW;
        uncommitted.insert(key, (long, entry));
    }

    /// Notes a key of the current transaction. It is kept at least as long as its message.
    pub(crate) fn note(
        uncommitted: &mut UncommittedKeys,
        key: &DedupKey,
        message: &Message,
        now: Timestamp,
    ) {
        let expires = (now + key.window).max(message.expires_at);
        let long = expires.since(now) > SHORT_WINDOW;
        let (message, expires) = (message.id, expires.0);
        let seen = DedupEntry { message, fingerprint: key.fingerprint, expires };
        uncommitted.insert(key.key, (long, seen));
    }

    /// Writes the keys of the current transaction, many in one row.
    pub(crate) fn append(
        &self,
        conn: &Connection,
        uncommitted: &UncommittedKeys,
    ) -> StoreResult<()> {
        let (mut short, mut long) = (Vec::new(), Vec::new());
        for (key, (is_long, seen)) in uncommitted {
            let keys = if *is_long { &mut long } else { &mut short };
            keys.push(KeyRecord::new(key, seen));
        }
        self.short.append(conn, &short)?;
        self.long.append(conn, &long)
    }

    /// The transaction was committed.
    pub(crate) fn committed(&mut self, uncommitted: UncommittedKeys, now: Timestamp) {
        for (key, (long, seen)) in uncommitted {
            let list = if long { &mut self.long } else { &mut self.short };
            list.remember(key, seen, now.0);
        }
    }

    /// Whether `work` has something to do.
    pub(crate) fn has_work(&self, now: Timestamp) -> bool {
        self.short.has_work(now.0) || self.long.has_work(now.0)
    }

    /// Moves, merges or deletes some keys; true if there is more to do. Not within a transaction.
    pub(crate) fn work(&mut self, conn: &Connection, now: Timestamp) -> StoreResult<bool> {
        let next = &mut self.next_run;
        Ok(self.short.work(conn, now.0, next)? || self.long.work(conn, now.0, next)?)
    }

    /// Forgets what is over by this time; `work` deletes it. Not within a transaction.
    pub(crate) fn prune(&mut self, conn: &Connection, over_by: Timestamp) -> StoreResult<()> {
        self.short.prune(conn, over_by.0)?;
        self.long.prune(conn, over_by.0)
    }
}
