//! Gives back the room of finished deliveries. A delivery that is final loses its address and body, but its
//! row stays on its page, which then is mostly empty. So does a message whose content its deliveries share.
//! Ranges of deliveries are therefore written anew, densely, once most of them are final: a little between
//! commits, and each range once, as a rule.

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
    /// The message of the first delivery.
    first_message: u64,
    /// Deliveries, and messages whose content is shared.
    rows: u64,
    is_final: u64,
    shared: u64,
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
        self.write_rows_anew("delivery", (range.first, range.last))?;
        if range.shared > 0 {
            self.write_rows_anew("message", (range.first_message, range.last))?;
        }
        Ok(())
    }

    fn write_rows_anew(&mut self, table: &str, (first, last): (u64, u64)) -> StoreResult<()> {
        let create = format!(
            "CREATE TEMP TABLE IF NOT EXISTS packing_{table} AS SELECT * FROM {table} WHERE 0"
        );
        run(&self.conn, &create, [])?;
        let bounds = [first as i64, last as i64];
        let copy = format!(
            "INSERT INTO temp.packing_{table} SELECT * FROM {table} WHERE seq BETWEEN ?1 AND ?2 \
             ORDER BY seq"
        );
        let copied = run(&self.conn, &copy, bounds)?;
        let delete = format!("DELETE FROM {table} WHERE seq BETWEEN ?1 AND ?2");
        let deleted = run(&self.conn, &delete, bounds)?;
        let back = format!("INSERT INTO {table} SELECT * FROM temp.packing_{table} ORDER BY rowid");
        let written = run(&self.conn, &back, [])?;
        run(&self.conn, &format!("DELETE FROM temp.packing_{table}"), [])?;
        if copied != deleted || deleted != written {
            return Err(damaged("a range of finished deliveries"));
        }
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
        Ok(found.filter(|range| range.rows - range.shared == RANGE as u64))
    }

    /// A range with a page that cannot be read is never worth it.
    fn read_range(&self, from: u64, end: u64, was_final: u64) -> StoreResult<Option<PackingRange>> {
        let select = "SELECT seq, due IS NULL, message FROM delivery WHERE seq >= ?1 AND seq < ?2 \
                      ORDER BY seq LIMIT ?3";
        let found = scan(&self.conn, select, (from, end), RANGE, |row| {
            Ok(Some((unsigned(row, 0)?, get::<bool>(row, 1)?, unsigned(row, 2)?)))
        })?;
        let (Some(first), Some(last)) = (found.rows.first(), found.rows.last()) else {
            return Ok(None);
        };
        let (first, first_message, last) = (first.0, first.2, last.0);
        let (shared, erased) = self.shared_contents(first_message, last)?;
        let is_final =
            found.rows.iter().filter(|(_, is_final, _)| *is_final).count() as u64 + erased;
        let was_final = if found.skipped.is_empty() { was_final } else { is_final };
        let rows = found.rows.len() as u64 + shared;
        Ok(Some(PackingRange { first, last, first_message, rows, is_final, shared, was_final }))
    }

    /// How many messages of a range have deliveries that share their content, and of how many it is erased.
    fn shared_contents(&self, first: u64, last: u64) -> StoreResult<(u64, u64)> {
        let select = "SELECT count(*), count(*) FILTER (WHERE content IS NULL) FROM message \
                      WHERE seq BETWEEN ?1 AND ?2 AND deliveries > 1";
        let bounds = [first as i64, last as i64];
        let found =
            first_row(&self.conn, select, bounds, |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)));
        match found {
            Ok(found) => Ok(found.unwrap_or_default()),
            // They stay as they are.
            Err(error) if is_local(&error) => Ok((0, 0)),
            Err(error) => Err(error),
        }
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
