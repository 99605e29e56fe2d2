//! Gives back the room of finished deliveries. A delivery that is final loses its address and body, but its
//! row stays on its page, which then is mostly empty. So ranges of deliveries are written anew, densely, once
//! most of them are final: a little between commits, and each range once, as a rule.

use std::time::Duration;

use postrider_core::model::id::order_key_at;

use super::prelude::*;
use super::scan::scan;
use super::statement::is_local;

/// Deliveries of this age are mostly final.
const PACKED_AFTER: Duration = Duration::from_secs(120);
/// Deliveries of one range; commits wait for no more than these.
const RANGE: usize = 500;
/// The pause when there is nothing to do.
const PAUSE: Duration = Duration::from_secs(5);

/// Where packing goes on.
#[derive(Default)]
pub(crate) struct PackingPosition {
    /// Every delivery before this sequence was packed or is in the table `unpacked`; absent until it is read.
    before: Option<u64>,
    /// No work before this time.
    paused_until: i64,
}

/// Deliveries with neighbouring sequences.
#[derive(Debug, Clone, Copy)]
struct PackingRange {
    first: u64,
    last: u64,
    rows: u64,
    is_final: u64,
    /// So many of them were final when the range was last written.
    was_final: u64,
}

impl PackingRange {
    /// Whether writing it anew gives back much.
    fn is_worth_it(&self) -> bool {
        let news = self.is_final.saturating_sub(self.was_final);
        news > 0 && (news * 4 >= self.rows || self.is_done())
    }

    /// Whether what is still pending does not matter.
    fn is_done(&self) -> bool {
        (self.rows - self.is_final) * 10 <= self.rows
    }
}

impl Writer {
    /// One step. True if there is more to do.
    pub(crate) fn pack_some(&mut self) -> StoreResult<bool> {
        let now = self.shared.now();
        if now.0 < self.packing.paused_until {
            return Ok(false);
        }
        let from = match self.packing.before {
            Some(before) => before,
            None => {
                let select = "SELECT value FROM meta WHERE key = 'packed'";
                value::<i64>(&self.conn, select, [])?.unwrap_or(0) as u64
            }
        };
        let end = order_key_at(now - PACKED_AFTER);
        let (range, is_new) = match self.range_between(from, end, 0)? {
            Some(range) => (Some(range), true),
            None => (self.unpacked_range(now)?, false),
        };
        let Some(range) = range else {
            self.packing.before = Some(from);
            self.packing.paused_until = (now + PAUSE).0;
            return Ok(false);
        };
        let before = if is_new { range.last + 1 } else { from };
        self.pack_or_skip(range, before, now)?;
        self.packing.before = Some(before);
        Ok(true)
    }

    /// A range that cannot be read or written stays as it is.
    fn pack_or_skip(
        &mut self,
        range: PackingRange,
        before: u64,
        now: Timestamp,
    ) -> StoreResult<()> {
        match self.transact(|writer| writer.pack(range, before, now)) {
            Err(error) if is_local(&error) => {
                tracing::error!(%error, first = range.first, "finished deliveries cannot be written anew");
                self.transact(|writer| writer.save_packing(range, before, None))
            }
            done => done,
        }
    }

    fn pack(&mut self, range: PackingRange, before: u64, now: Timestamp) -> StoreResult<()> {
        let was_final = if range.is_worth_it() {
            self.write_anew(range)?;
            range.is_final
        } else {
            range.was_final
        };
        // The older it is, the less happens in it.
        let age = now.since(DeliveryId(from_order_key(range.first, 0)).created_at());
        let again = (now + (age / 2).max(PACKED_AFTER), was_final);
        self.save_packing(range, before, Some(again).filter(|_| !range.is_done()))
    }

    fn write_anew(&mut self, range: PackingRange) -> StoreResult<()> {
        let create = "CREATE TEMP TABLE IF NOT EXISTS packing AS SELECT * FROM delivery WHERE 0";
        run(&self.conn, create, [])?;
        let bounds = [range.first as i64, range.last as i64];
        let copy = "INSERT INTO temp.packing SELECT * FROM delivery WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq";
        let copied = run(&self.conn, copy, bounds)?;
        let deleted = run(&self.conn, "DELETE FROM delivery WHERE seq BETWEEN ?1 AND ?2", bounds)?;
        let back = "INSERT INTO delivery SELECT * FROM temp.packing ORDER BY rowid";
        let written = run(&self.conn, back, [])?;
        run(&self.conn, "DELETE FROM temp.packing", [])?;
        if copied != deleted || deleted != written {
            return Err(damaged("a range of finished deliveries"));
        }
        self.effects.rows += written as u64;
        Ok(())
    }

    /// `again` is when to look at the range again, and how many of it are packed.
    fn save_packing(
        &mut self,
        range: PackingRange,
        before: u64,
        again: Option<(Timestamp, u64)>,
    ) -> StoreResult<()> {
        set_meta(&self.conn, "packed", before as i64)?;
        let first = range.first as i64;
        match again {
            None => run(&self.conn, "DELETE FROM unpacked WHERE first = ?1", [first])?,
            Some((at, was_final)) => {
                let insert = "INSERT OR REPLACE INTO unpacked (first, last, final, again) \
                              VALUES (?1, ?2, ?3, ?4)";
                let row = params![first, range.last as i64, was_final as i64, at.0];
                run(&self.conn, insert, row)?
            }
        };
        Ok(())
    }

    /// The next full range; `None` if there are too few deliveries.
    fn range_between(
        &self,
        from: u64,
        end: u64,
        was_final: u64,
    ) -> StoreResult<Option<PackingRange>> {
        let found = self.read_range(from, end, was_final)?;
        Ok(found.filter(|range| range.rows == RANGE as u64))
    }

    /// A range with a page that cannot be read is never worth it.
    fn read_range(&self, from: u64, end: u64, was_final: u64) -> StoreResult<Option<PackingRange>> {
        let select = "SELECT seq, due IS NULL FROM delivery WHERE seq >= ?1 AND seq < ?2 \
                      ORDER BY seq LIMIT ?3";
        let found = scan(&self.conn, select, (from, end), RANGE, |row| {
            Ok(Some((unsigned(row, 0)?, get::<bool>(row, 1)?)))
        })?;
        let (Some((first, _)), Some((last, _))) = (found.rows.first(), found.rows.last()) else {
            return Ok(None);
        };
        let is_final = found.rows.iter().filter(|(_, is_final)| *is_final).count() as u64;
        let was_final = if found.skipped.is_empty() { was_final } else { is_final };
        let (first, last, rows) = (*first, *last, found.rows.len() as u64);
        Ok(Some(PackingRange { first, last, rows, is_final, was_final }))
    }

    /// A range of which much was pending when it was looked at last.
    fn unpacked_range(&mut self, now: Timestamp) -> StoreResult<Option<PackingRange>> {
        let select = "SELECT first, last, final FROM unpacked INDEXED BY unpacked_again \
                      WHERE again <= ?1 ORDER BY again LIMIT 1";
        loop {
            let found = first_row(&self.conn, select, [now.0], |row| {
                Ok((unsigned(row, 0)?, unsigned(row, 1)?, unsigned(row, 2)?))
            })?;
            let Some((first, last, was_final)) = found else { return Ok(None) };
            match self.read_range(first, last + 1, was_final)? {
                // The name of the range stays, also if its first delivery was deleted.
                Some(range) => return Ok(Some(PackingRange { first, ..range })),
                None => {
                    run(&self.conn, "DELETE FROM unpacked WHERE first = ?1", [first as i64])?;
                }
            }
        }
    }
}
