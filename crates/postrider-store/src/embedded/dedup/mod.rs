//! Which keys were seen, exactly and durably. The newest keys are in a map over rows appended in
//! sequence; when there are many of them, or they are old, they become a bucket: a sorted table
//! behind a small filter, dropped whole once its last key has run out.

mod bucket;
mod filter;

use std::collections::HashMap;
use std::time::Duration;

use postrider_core::ports::store::{DedupKey, StoreResult};
use postrider_core::{MessageId, Timestamp};
use rusqlite::Connection;

use bucket::Line;

/// Keys with a longer window rest in buckets of their own, so that they keep no short ones.
const SHORT_WINDOW: Duration = Duration::from_secs(25 * 3600);

/// What is remembered of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) message: MessageId,
    pub(super) fingerprint: [u8; 16],
    pub(super) expires: i64,
}

/// Keys of a transaction that is not committed yet.
#[derive(Default)]
pub(super) struct Fresh {
    keys: HashMap<[u8; 16], (bool, Seen)>,
}

pub(super) struct Dedup {
    short: Line,
    long: Line,
}

impl Dedup {
    /// `bucket_keys` is how many keys make a bucket.
    pub(super) fn load(conn: &Connection, bucket_keys: usize, now: Timestamp) -> StoreResult<Self> {
        bucket::drop_unfinished(conn)?;
        Ok(Self {
            short: Line::load(conn, false, bucket_keys, now.0)?,
            long: Line::load(conn, true, bucket_keys, now.0)?,
        })
    }

    pub(super) fn find(
        &self,
        conn: &Connection,
        fresh: &Fresh,
        key: &[u8; 16],
        now: Timestamp,
    ) -> StoreResult<Option<Seen>> {
        if let Some((_, seen)) = fresh.keys.get(key).filter(|(_, seen)| seen.expires > now.0) {
            return Ok(Some(*seen));
        }
        for line in [&self.short, &self.long] {
            if let Some(seen) = line.find(conn, key, now.0)? {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    /// Writes a key down, within the caller's transaction.
    pub(super) fn append(
        &self,
        conn: &Connection,
        fresh: &mut Fresh,
        key: &DedupKey,
        message: MessageId,
        now: Timestamp,
    ) -> StoreResult<()> {
        let long = key.window > SHORT_WINDOW;
        let line = if long { &self.long } else { &self.short };
        let expires = (now + key.window).0;
        let seen = Seen { message, fingerprint: key.fingerprint, expires };
        line.append(conn, &key.key, &seen)?;
        fresh.keys.insert(key.key, (long, seen));
        Ok(())
    }

    /// The transaction was committed.
    pub(super) fn committed(&mut self, fresh: Fresh, now: Timestamp) {
        for (key, (long, seen)) in fresh.keys {
            let line = if long { &mut self.long } else { &mut self.short };
            line.remember(key, seen, now.0);
        }
    }

    /// Does a little of what is to be done; true if there is more. Outside any transaction.
    pub(super) fn work(&mut self, conn: &Connection, now: Timestamp) -> StoreResult<bool> {
        Ok(self.short.work(conn, now.0)? | self.long.work(conn, now.0)?)
    }

    /// Drops buckets that have run out. Outside any transaction.
    pub(super) fn prune(&mut self, conn: &Connection, now: Timestamp) -> StoreResult<()> {
        self.short.prune(conn, now.0)?;
        self.long.prune(conn, now.0)
    }
}
