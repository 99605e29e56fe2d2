//! Idempotency keys, exact and durable. The newest keys are in a map in memory and in a table that only
//! grows. When they are many or old, they become a bucket: a sorted table with a small filter, dropped as
//! a whole once its last key has expired.

mod bucket;
mod filter;

use std::time::Duration;

use postrider_core::ports::store::{DedupKey, StoreResult};
use postrider_core::{Message, Timestamp};
use rusqlite::Connection;

use crate::embedded::index::effects::{DedupEntry, UncommittedKeys};
use crate::embedded::problems::ProblemList;
use bucket::BucketList;

/// Keys with a longer window have buckets of their own, so that they do not keep short ones alive.
const SHORT_WINDOW: Duration = Duration::from_secs(25 * 3600);

pub(crate) struct DedupStore {
    short: BucketList,
    long: BucketList,
}

impl DedupStore {
    /// `bucket_keys` is how many keys make a bucket.
    pub(crate) fn load(
        conn: &Connection,
        bucket_keys: usize,
        now: Timestamp,
        problems: &ProblemList,
    ) -> StoreResult<Self> {
        if let Err(error) = bucket::drop_unfinished(conn) {
            tracing::error!(%error, "an unfinished bucket of idempotency keys stays");
        }
        Ok(Self {
            short: BucketList::load(conn, false, bucket_keys, now.0, problems)?,
            long: BucketList::load(conn, true, bucket_keys, now.0, problems)?,
        })
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

    /// Writes a key within the caller's transaction. It is kept at least as long as its message.
    pub(crate) fn append(
        &self,
        conn: &Connection,
        uncommitted: &mut UncommittedKeys,
        key: &DedupKey,
        message: &Message,
        now: Timestamp,
    ) -> StoreResult<()> {
        let expires = (now + key.window).max(message.expires_at);
        let long = expires.since(now) > SHORT_WINDOW;
        let list = if long { &self.long } else { &self.short };
        let (message, expires) = (message.id, expires.0);
        let seen = DedupEntry { message, fingerprint: key.fingerprint, expires };
        list.append(conn, &key.key, &seen)?;
        uncommitted.insert(key.key, (long, seen));
        Ok(())
    }

    /// The transaction was committed.
    pub(crate) fn committed(&mut self, uncommitted: UncommittedKeys, now: Timestamp) {
        for (key, (long, seen)) in uncommitted {
            let list = if long { &mut self.long } else { &mut self.short };
            list.remember(key, seen, now.0);
        }
    }

    /// Moves some keys into buckets; true if there is more to move. Not within a transaction.
    pub(crate) fn work(&mut self, conn: &Connection, now: Timestamp) -> StoreResult<bool> {
        Ok(self.short.work(conn, now.0)? | self.long.work(conn, now.0)?)
    }

    /// Drops buckets that are over by this time. Not within a transaction.
    pub(crate) fn prune(&mut self, conn: &Connection, over_by: Timestamp) -> StoreResult<()> {
        self.short.prune(conn, over_by.0)?;
        self.long.prune(conn, over_by.0)
    }
}
