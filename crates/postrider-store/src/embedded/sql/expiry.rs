//! The list of expiries on disk. `index::expiry` decides what is listed and when.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::ports::store::StoreResult;
use rusqlite::{Connection, OptionalExtension, params};

use super::error::sql;
use super::rows::{parse, to_json};
use crate::embedded::index::expiry::{ExpiryIndex, PAUSE_MS, SavedBlock};
use crate::embedded::index::lanes::DueKey;
use crate::embedded::index::{LeaseBatch, end_of};
use crate::embedded::writer::Writer;

/// Rows that one step reads.
const STEP: usize = 2_000;
/// Steps before the expired deliveries are leased.
const STEPS: usize = 8;
/// How far the saved `listed_before` may lag behind. So many sequences are read again after a crash.
const UNSAVED: u64 = 300_000 << 15;

pub(crate) fn load(conn: &Connection, last_id: u64) -> StoreResult<ExpiryIndex> {
    let blocks: Option<String> = conn
        .query_row("DELETE FROM meta WHERE key = 'young' RETURNING value", [], |row| row.get(0))
        .optional()
        .map_err(sql)?;
    let blocks: Option<Vec<SavedBlock>> =
        blocks.map(|blocks| parse(&blocks, "the list of recent deliveries")).transpose()?;
    let listed_before: Option<i64> = conn
        .query_row("SELECT value FROM meta WHERE key = 'swept'", [], |row| row.get(0))
        .optional()
        .map_err(sql)?;
    let next_listed = conn.query_row("SELECT min(expires) FROM expiry", [], |row| row.get(0));
    let listed_before = listed_before.unwrap_or(0) as u64;
    Ok(ExpiryIndex::load(listed_before, next_listed.map_err(sql)?, blocks, last_id))
}

impl Writer {
    /// Between other work: lists some of what is pending for long. True if there is more.
    pub(crate) fn list_some_expiries(&mut self) -> StoreResult<bool> {
        let now = self.shared.now();
        if now.0 < self.list_expiries_at {
            return Ok(false);
        }
        if self.list_expiries(now)? {
            return Ok(true);
        }
        self.list_expiries_at = now.0 + PAUSE_MS;
        let last_id = self.shared.ids().last();
        let unsaved = {
            let mut index = self.shared.index();
            index.expiry.advance(last_id);
            index.expiry.listed_before - index.expiry.saved
        };
        if unsaved > UNSAVED {
            self.transact_surely(|writer, _| writer.save_listed())?;
        }
        Ok(false)
    }

    /// Lists some of what is to be listed now. False if there was nothing.
    fn list_expiries(&mut self, now: Timestamp) -> StoreResult<bool> {
        let last_id = self.shared.ids().last();
        let Some((from, to)) = self.shared.index().expiry.range_to_list(now.0, last_id) else {
            return Ok(false);
        };
        let (pending, to) = self.pending_between(from, to)?;
        if !pending.is_empty() {
            self.transact_surely(|writer, effects| {
                effects.rows += pending.len() as u64;
                let insert = "INSERT OR IGNORE INTO expiry (expires, seq) VALUES (?1, ?2)";
                let mut insert = writer.conn.prepare_cached(insert).map_err(sql)?;
                for (expires, seq) in &pending {
                    insert.execute(params![expires, *seq as i64]).map_err(sql)?;
                }
                writer.save_listed_before(to)
            })?;
        }
        self.shared.index().expiry.mark_listed(to, &pending);
        Ok(true)
    }

    /// The pending deliveries by expiry and sequence, and the sequence up to which they were read.
    fn pending_between(&self, from: u64, to: u64) -> StoreResult<(Vec<(i64, u64)>, u64)> {
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT seq, due, expires FROM delivery WHERE seq >= ?1 AND seq < ?2 \
                 ORDER BY seq LIMIT ?3",
            )
            .map_err(sql)?;
        let mut rows = select.query(params![from as i64, to as i64, STEP as i64]).map_err(sql)?;
        let (mut pending, mut read, mut last) = (Vec::new(), 0, 0);
        while let Some(row) = rows.next().map_err(sql)? {
            read += 1;
            last = row.get::<_, i64>(0).map_err(sql)? as u64;
            if row.get::<_, Option<i64>>(1).map_err(sql)?.is_some() {
                pending.push((row.get(2).map_err(sql)?, last));
            }
        }
        Ok((pending, if read == STEP { last + 1 } else { to }))
    }

    fn save_listed_before(&self, seq: u64) -> StoreResult<()> {
        self.conn
            .prepare_cached(
                "INSERT INTO meta (key, value) VALUES ('swept', ?1) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )
            .and_then(|mut insert| insert.execute([seq as i64]))
            .map_err(sql)?;
        self.shared.index().expiry.saved = seq;
        Ok(())
    }

    fn save_listed(&self) -> StoreResult<()> {
        let listed_before = self.shared.index().expiry.listed_before;
        self.save_listed_before(listed_before)
    }

    /// At a clean end: the next start need not read the recent deliveries.
    pub(crate) fn save_expiry_blocks(&self) -> StoreResult<()> {
        let blocks = self.shared.index().expiry.save_blocks();
        if let Some(blocks) = blocks {
            self.conn
                .execute(
                    "INSERT OR REPLACE INTO meta (key, value) VALUES ('young', ?1)",
                    [to_json(&blocks)?],
                )
                .map_err(sql)?;
        }
        self.save_listed()
    }

    /// Lists a delivery that is pending again, if its neighbours are listed already.
    pub(crate) fn list_if_neighbours_are(&self, seq: u64, expires: i64) -> StoreResult<()> {
        if seq >= self.shared.index().expiry.listed_before {
            return Ok(());
        }
        let insert = "INSERT OR IGNORE INTO expiry (expires, seq) VALUES (?1, ?2)";
        let done = self.conn.prepare_cached(insert);
        done.and_then(|mut insert| insert.execute(params![expires, seq as i64]))
            .map(drop)
            .map_err(sql)
    }

    /// Leases expired deliveries that wait.
    pub(crate) fn lease_expired(
        &mut self,
        max: usize,
        duration: Duration,
    ) -> StoreResult<LeaseBatch> {
        let now = self.shared.now();
        for _ in 0..STEPS {
            if !self.list_expiries(now)? {
                break;
            }
        }
        self.shared.index().end_leases(now.0);
        let listed = self.expired(now, 2 * max + 64)?;
        let (mut waiting, mut stale, mut read) = (Vec::new(), Vec::new(), 0);
        for &(expires, seq) in &listed {
            if waiting.len() == max {
                break;
            }
            read += 1;
            if self.shared.index().leased_until(seq).is_some() {
                continue;
            }
            match self.waiting_since(expires, seq)? {
                Some(entry) => waiting.push(entry),
                None => stale.push((expires, seq)),
            }
        }
        self.unlist(&stale)?;
        let next = match listed.get(read) {
            Some((expires, _)) => Some(*expires),
            None => self.next_listed(now, read > stale.len())?,
        };
        let mut index = self.shared.index();
        index.expiry.next_listed = next;
        let mut batch = LeaseBatch::default();
        for (lane, key) in waiting {
            let lease = index.lease_one(lane, key, end_of(now, duration));
            batch.leases.extend(lease.map(|lease| (key.1, lease)));
        }
        Ok(batch)
    }

    fn expired(&self, now: Timestamp, limit: usize) -> StoreResult<Vec<(i64, u64)>> {
        let mut select = self
            .conn
            .prepare_cached(
                "SELECT expires, seq FROM expiry WHERE expires <= ?1 \
                 ORDER BY expires, seq LIMIT ?2",
            )
            .map_err(sql)?;
        let entry = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64));
        let rows = select.query_map(params![now.0, limit as i64], entry).map_err(sql)?;
        rows.collect::<Result<_, _>>().map_err(sql)
    }

    /// Lane and key of a delivery, if it is pending and this is still its expiry: a replay changes it.
    fn waiting_since(&self, expires: i64, seq: u64) -> StoreResult<Option<(u32, DueKey)>> {
        self.conn
            .prepare_cached(
                "SELECT lane, due FROM delivery \
                 WHERE seq = ?1 AND due IS NOT NULL AND expires = ?2",
            )
            .and_then(|mut select| {
                let entry = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, (row.get(1)?, seq)));
                select.query_row(params![seq as i64, expires], entry).optional()
            })
            .map_err(sql)
    }

    fn unlist(&mut self, stale: &[(i64, u64)]) -> StoreResult<()> {
        if stale.is_empty() {
            return Ok(());
        }
        self.transact_surely(|writer, effects| {
            effects.rows += stale.len() as u64;
            let delete = "DELETE FROM expiry WHERE expires = ?1 AND seq = ?2";
            let mut delete = writer.conn.prepare_cached(delete).map_err(sql)?;
            for (expires, seq) in stale {
                delete.execute(params![expires, *seq as i64]).map_err(sql)?;
            }
            Ok(())
        })
    }

    /// When the next listed delivery expires. With expired ones in flight, the next check is soon.
    fn next_listed(&self, now: Timestamp, some_in_flight: bool) -> StoreResult<Option<i64>> {
        let next: Option<i64> = self
            .conn
            .prepare_cached("SELECT min(expires) FROM expiry WHERE expires > ?1")
            .and_then(|mut select| select.query_row([now.0], |row| row.get(0)))
            .map_err(sql)?;
        let again = some_in_flight.then_some(now.0 + PAUSE_MS);
        Ok([next, again].into_iter().flatten().min())
    }
}
