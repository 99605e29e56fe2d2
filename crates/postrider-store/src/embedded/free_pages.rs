//! Gives free pages of the database back to the disk, a few at a time, between transactions. Some are kept, because
//! what arrives next needs them. A database of an older version cannot do that; its free pages count as room instead.

use std::time::{Duration, Instant};

use super::sql::prelude::*;

/// The pause between two looks at the number of free pages.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So many free pages are kept, or this part of the file if that is more: where two days are kept,
/// deletions of an hour free one page of 48.
const KEPT_MIN: i64 = 1_024;
const KEPT_PART: i64 = 32;
/// Pages that are given back at once, and for how long: commits wait for no more than these.
const SLICE: i64 = 256;
const SLICE_TIME: Duration = Duration::from_millis(1);
/// The same on a full disk, where the journal has little room.
const SLICE_WHEN_FULL: i64 = 32;
const PAGE_BYTES: u64 = 4096;

#[derive(Default)]
pub(crate) struct FreePages {
    look_at: Option<Instant>,
    /// Absent until it was looked up.
    can_be_given_back: Option<bool>,
}

impl FreePages {
    /// Bytes of free pages, which are room although the file does not become smaller.
    pub(crate) fn bytes(conn: &Connection) -> u64 {
        number(conn, "freelist_count").map_or(0, |pages| pages.unsigned_abs() * PAGE_BYTES)
    }

    /// How many to give back now.
    fn excess(&mut self, conn: &Connection, disk_is_full: bool) -> StoreResult<i64> {
        let now = Instant::now();
        if self.look_at.is_some_and(|at| now < at) {
            return Ok(0);
        }
        self.look_at = Some(now + LOOK_EVERY);
        if !self.can_be_given_back(conn)? {
            return Ok(0);
        }
        let free = number(conn, "freelist_count")?;
        let kept = (number(conn, "page_count")? / KEPT_PART).max(KEPT_MIN);
        let (kept, slice) = if disk_is_full { (0, SLICE_WHEN_FULL) } else { (kept, SLICE) };
        Ok(slice.min(free - kept).max(0))
    }

    fn can_be_given_back(&mut self, conn: &Connection) -> StoreResult<bool> {
        if let Some(known) = self.can_be_given_back {
            return Ok(known);
        }
        let known = number(conn, "auto_vacuum")? != 0;
        self.can_be_given_back = Some(known);
        Ok(known)
    }
}

fn number(conn: &Connection, pragma: &str) -> StoreResult<i64> {
    conn.pragma_query_value(None, pragma, |row| row.get(0)).map_err(sql)
}

impl Writer {
    /// Gives some back if there are too many. True if there may be more to give back.
    pub(crate) fn give_back_pages(&mut self) -> StoreResult<bool> {
        let pages = self.free_pages.excess(&self.conn, self.reserve.is_disk_full())?;
        if pages == 0 {
            return Ok(false);
        }
        self.transact(|writer| shrink(&writer.conn, pages))?;
        self.free_pages.look_at = None;
        Ok(true)
    }
}

/// The statement frees one page per step.
fn shrink(conn: &Connection, pages: i64) -> StoreResult<()> {
    let begin = Instant::now();
    let mut statement =
        conn.prepare(&format!("PRAGMA incremental_vacuum({pages})")).map_err(sql)?;
    let mut rows = statement.query([]).map_err(sql)?;
    while rows.next().map_err(sql)?.is_some() && begin.elapsed() < SLICE_TIME {}
    Ok(())
}
