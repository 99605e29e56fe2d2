//! The list of expiries on disk. `index::expiry` decides what is listed and when.

use std::time::Duration;

use postrider_core::ports::store::StoreError;

use super::prelude::*;
use super::scan::scan;
use super::set_aside::set_aside;
use super::statement::is_local;
use crate::embedded::index::LeaseBatch;
use crate::embedded::index::expiry::{ExpiryIndex, PAUSE_MS, SavedBlock};
use crate::embedded::index::lanes::DueKey;
use crate::holder::HolderNonce;

/// Rows that one step reads.
const STEP: usize = 2_000;
/// Steps before the expired deliveries are leased.
const STEPS: usize = 8;
/// How far the saved `listed_before` may lag behind. So many sequences are read again after a crash.
const UNSAVED: u64 = 300_000 << 15;

const LIST: &str = "INSERT OR IGNORE INTO expiry (expires, seq) VALUES (?1, ?2)";

pub(crate) fn load(conn: &Connection, last_id: u64) -> StoreResult<ExpiryIndex> {
    let blocks: Option<String> =
        value(conn, "DELETE FROM meta WHERE key = 'young' RETURNING value", [])?;
    let blocks: Option<Vec<SavedBlock>> =
        blocks.map(|blocks| parse(&blocks, "the list of recent deliveries")).transpose()?;
    let listed_before =
        value(conn, "SELECT value FROM meta WHERE key = 'swept'", [])?.unwrap_or(0i64);
    match value(conn, "SELECT min(expires) FROM expiry", []) {
        Err(error) if is_local(&error) => {
            tracing::error!(%error, "the list of expiries is damaged; it is made anew");
            let transaction = conn.unchecked_transaction().map_err(sql)?;
            renew_list(&transaction)?;
            transaction.commit().map_err(sql)?;
            Ok(ExpiryIndex::load(0, None, None, last_id))
        }
        next => Ok(ExpiryIndex::load(listed_before as u64, next?.flatten(), blocks, last_id)),
    }
}

fn renew_list(conn: &Connection) -> StoreResult<()> {
    let columns = "(expires INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (expires, seq)) WITHOUT ROWID";
    set_aside(conn, "expiry", columns)?;
    set_meta(conn, "swept", 0)
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
            index.expiry.listed_before.saturating_sub(index.expiry.saved)
        };
        if unsaved > UNSAVED {
            self.transact_surely(|writer| writer.save_listed())?;
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
            self.transact_surely(|writer| {
                for (expires, seq) in &pending {
                    run(&writer.conn, LIST, params![expires, *seq as i64])?;
                }
                writer.save_listed_before(to)
            })?;
        }
        self.shared.index().expiry.mark_listed(to, &pending);
        Ok(true)
    }

    /// The pending deliveries by expiry and sequence, and the sequence up to which they were read. Leaves out
    /// what cannot be read.
    fn pending_between(&self, from: u64, to: u64) -> StoreResult<(Vec<(i64, u64)>, u64)> {
        let select = "SELECT seq, due, expires FROM delivery WHERE seq >= ?1 AND seq < ?2 \
                      ORDER BY seq LIMIT ?3";
        let found = scan(&self.conn, select, (from, to), STEP, |row| {
            let is_pending = get::<Option<i64>>(row, 1)?.is_some();
            Ok(if is_pending { Some((get(row, 2)?, unsigned(row, 0)?)) } else { None })
        })?;
        self.shared.report_skipped("delivery", &found.skipped);
        Ok((found.rows, found.next.unwrap_or(to)))
    }

    pub(crate) fn save_listed_before(&mut self, seq: u64) -> StoreResult<()> {
        set_meta(&self.conn, "swept", seq as i64)?;
        self.effects.listed_before = Some(seq);
        Ok(())
    }

    fn save_listed(&mut self) -> StoreResult<()> {
        let listed_before = self.shared.index().expiry.listed_before;
        self.save_listed_before(listed_before)
    }

    /// At a clean end: the next start need not read the recent deliveries.
    pub(crate) fn save_expiry_blocks(&mut self) -> StoreResult<()> {
        let blocks = self.shared.index().expiry.save_blocks();
        if let Some(blocks) = blocks {
            set_meta(&self.conn, "young", to_json(&blocks)?)?;
        }
        self.save_listed()
    }

    /// Lists a delivery that is pending again, if its neighbours are listed already.
    pub(crate) fn list_if_neighbours_are(&self, seq: u64, expires: i64) -> StoreResult<()> {
        if seq >= self.shared.index().expiry.listed_before {
            return Ok(());
        }
        run(&self.conn, LIST, params![expires, seq as i64]).map(drop)
    }

    /// Leases expired deliveries that wait.
    pub(crate) fn lease_expired(
        &mut self,
        holder: HolderNonce,
        max: usize,
        duration: Duration,
    ) -> StoreResult<LeaseBatch> {
        let now = self.shared.now();
        for _ in 0..STEPS {
            if !self.list_expiries(now)? {
                break;
            }
        }
        let over_by = self.shared.earliest();
        self.shared.index().end_leases(now.0);
        let listed = match self.expired(over_by, 2 * max + 64) {
            Err(error) if is_local(&error) => {
                self.renew_list(&error)?;
                return Ok(LeaseBatch::default());
            }
            listed => listed?,
        };
        let (mut waiting, mut stale, mut read) = (Vec::new(), Vec::new(), 0);
        for &(expires, seq) in &listed {
            if waiting.len() == max {
                break;
            }
            read += 1;
            if self.shared.index().leased_until(seq).is_some() {
                continue;
            }
            match self.waiting_since(expires, seq) {
                Ok(Some(entry)) => waiting.push(entry),
                Ok(None) => stale.push((expires, seq)),
                // It cannot be ended. If it is read again some day, its expiry is checked then.
                Err(error) if is_local(&error) => stale.push((expires, seq)),
                Err(error) => return Err(error),
            }
        }
        self.unlist(&stale)?;
        let next = match listed.get(read) {
            Some((expires, _)) => Some(*expires),
            None => self.next_listed(now, over_by, read > stale.len())?,
        };
        let mut index = self.shared.index();
        index.expiry.next_listed = next;
        let mut batch = LeaseBatch::default();
        if index.holder != holder {
            return Ok(batch);
        }
        for (lane, key) in waiting {
            let lease = index.lease_one(lane, key, (now + duration).0);
            batch.leases.extend(lease.map(|lease| (key.1, lease)));
        }
        Ok(batch)
    }

    /// The list cannot be read: begins a new one.
    fn renew_list(&mut self, error: &StoreError) -> StoreResult<()> {
        tracing::error!(%error, "the list of expiries is damaged; it is made anew");
        self.transact_surely(|writer| renew_list(&writer.conn))?;
        let last_id = self.shared.ids().last();
        self.shared.index().expiry.list_all(last_id);
        Ok(())
    }

    fn expired(&self, over_by: Timestamp, limit: usize) -> StoreResult<Vec<(i64, u64)>> {
        let select = "SELECT expires, seq FROM expiry WHERE expires <= ?1 \
                      ORDER BY expires, seq LIMIT ?2";
        let entry = |row: &Row<'_>| Ok((get(row, 0)?, unsigned(row, 1)?));
        all_rows(&self.conn, select, params![over_by.0, limit as i64], entry)
    }

    /// Lane and key of a delivery, if it is pending and this is still its expiry: a replay changes it.
    fn waiting_since(&self, expires: i64, seq: u64) -> StoreResult<Option<(u32, DueKey)>> {
        let select = "SELECT lane, due FROM delivery \
                      WHERE seq = ?1 AND due IS NOT NULL AND expires = ?2";
        let entry = |row: &Row<'_>| Ok((get(row, 0)?, (get(row, 1)?, seq)));
        first_row(&self.conn, select, params![seq as i64, expires], entry)
    }

    fn unlist(&mut self, stale: &[(i64, u64)]) -> StoreResult<()> {
        if stale.is_empty() {
            return Ok(());
        }
        self.transact_surely(|writer| {
            let delete = "DELETE FROM expiry WHERE expires = ?1 AND seq = ?2";
            for (expires, seq) in stale {
                run(&writer.conn, delete, params![expires, *seq as i64])?;
            }
            Ok(())
        })
    }

    /// When the next listed delivery expires. With expired ones in flight, the next check is soon.
    fn next_listed(
        &self,
        now: Timestamp,
        over_by: Timestamp,
        some_in_flight: bool,
    ) -> StoreResult<Option<i64>> {
        let select = "SELECT min(expires) FROM expiry WHERE expires > ?1";
        let next = value(&self.conn, select, [over_by.0])?.flatten();
        let again = some_in_flight.then_some(now.0 + PAUSE_MS);
        Ok([next, again].into_iter().flatten().min())
    }
}
