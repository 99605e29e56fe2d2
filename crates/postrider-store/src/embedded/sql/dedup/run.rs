//! Sorted runs of keys. A run is a range of pages of 75 keys, numbered by the run and the first bytes of their
//! first key, and a filter in memory. A run does not change: runs are merged, and dropped as a whole.

use super::filter::BloomFilter;
use super::legacy;
use super::record::{DedupHash, KeyRecord, PAGE_RECORDS, RECORD, find_in, prefix, records};
use crate::embedded::index::effects::DedupEntry;
use crate::embedded::sql::prelude::*;
use crate::embedded::sql::statement::is_local;

/// Bytes of one row with a part of a filter.
const FILTER_PART: usize = 256 << 10;
/// One expiry of so many is kept to find the median.
const SAMPLED: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunPlace {
    Pages(i64),
    /// A table of its own, as earlier versions wrote it.
    Table(i64),
}

pub(super) struct KeyRun {
    pub(super) place: RunPlace,
    pub(super) level: u32,
    pub(super) keys: u64,
    /// When its first and its last key were accepted.
    pub(super) opened: i64,
    pub(super) closed: i64,
    /// When half of its keys have expired, and all.
    pub(super) median: i64,
    pub(super) latest: i64,
    pub(super) filter: BloomFilter,
}

impl KeyRun {
    pub(super) fn find(
        &self,
        conn: &Connection,
        key: &DedupHash,
    ) -> StoreResult<Option<DedupEntry>> {
        if !self.filter.may_contain(key) {
            return Ok(None);
        }
        let run = match self.place {
            RunPlace::Table(id) => return legacy::find(conn, id, key),
            RunPlace::Pages(run) => run,
        };
        let select =
            "SELECT keys FROM dedup_page WHERE id >= ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1";
        let last = first_row_of(run) | i64::from(prefix(key));
        let found = first_row(conn, select, [first_row_of(run), last], |row| {
            let page = row.get_ref(0).map_err(sql)?.as_blob().map_err(damaged)?;
            let records = records(page).ok_or_else(|| damaged("a page of idempotency keys"))?;
            Ok(find_in(records, key))
        })?;
        Ok(found.flatten())
    }
}

/// The pages of a run, and the parts of its filter, have numbers from this one to before that of the next run.
pub(super) fn first_row_of(run: i64) -> i64 {
    run << 32
}

/// Reads the keys of a run in order, page by page. Leaves out pages that cannot be read.
pub(super) struct RunCursor {
    place: RunPlace,
    next: i64,
    page: Vec<[u8; RECORD]>,
    at: usize,
    is_at_end: bool,
}

impl RunCursor {
    pub(super) fn new(place: RunPlace) -> Self {
        let next = match place {
            RunPlace::Pages(run) => first_row_of(run),
            RunPlace::Table(_) => 0,
        };
        Self { place, next, page: Vec::new(), at: 0, is_at_end: false }
    }

    /// Begins with the page that has the key, or would have it.
    pub(super) fn from_key(
        conn: &Connection,
        place: RunPlace,
        key: &DedupHash,
    ) -> StoreResult<Self> {
        let mut cursor = Self::new(place);
        if let RunPlace::Pages(run) = place {
            let select =
                "SELECT id FROM dedup_page WHERE id >= ?1 AND id <= ?2 ORDER BY id DESC LIMIT 1";
            let last = first_row_of(run) | i64::from(prefix(key));
            let page: Option<i64> = value(conn, select, [first_row_of(run), last])?;
            cursor.next = page.unwrap_or(first_row_of(run));
        }
        Ok(cursor)
    }

    /// From memory, sorted.
    pub(super) fn of(keys: Vec<[u8; RECORD]>) -> Self {
        Self { place: RunPlace::Pages(0), next: 0, page: keys, at: 0, is_at_end: true }
    }

    pub(super) fn peek(&mut self, conn: &Connection) -> StoreResult<Option<KeyRecord>> {
        while self.at >= self.page.len() {
            if self.is_at_end {
                return Ok(None);
            }
            self.at = 0;
            self.page = match self.place {
                RunPlace::Pages(run) => self.next_page(conn, run)?,
                RunPlace::Table(id) => legacy::keys_after(conn, id, self.page.last())?,
            };
            self.is_at_end = self.page.is_empty();
        }
        Ok(self.page.get(self.at).copied().map(KeyRecord))
    }

    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    fn next_page(&mut self, conn: &Connection, run: i64) -> StoreResult<Vec<[u8; RECORD]>> {
        let select =
            "SELECT id, keys FROM dedup_page WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT 1";
        let end = first_row_of(run + 1);
        // Behind the last page, there is nothing to look for, not even on a page that cannot be read.
        while self.next < end {
            let found = first_row(conn, select, [self.next, end], |row| {
                let page = row.get_ref(1).map_err(sql)?.as_blob().map_err(damaged)?;
                Ok((get::<i64>(row, 0)?, records(page).map(<[_]>::to_vec)))
            });
            match found {
                Ok(None) => return Ok(Vec::new()),
                Ok(Some((id, page))) => {
                    self.next = id + 1;
                    match page {
                        Some(page) if !page.is_empty() => return Ok(page),
                        _ => tracing::error!(
                            id,
                            "a page of idempotency keys is damaged; its keys are forgotten"
                        ),
                    }
                }
                Err(error) if is_local(&error) => {
                    tracing::error!(%error, "some idempotency keys cannot be read; they are forgotten");
                    let is_readable =
                        |id: u64| first_row(conn, select, [id as i64, end], |_| Ok(())).is_ok();
                    let next = crate::embedded::sql::scan::next_readable(
                        self.next as u64,
                        end as u64,
                        is_readable,
                    );
                    self.next = next as i64;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Vec::new())
    }
}

/// Writes a run. Its rows count only once it is listed.
pub(super) struct RunBuilder {
    pub(super) run: KeyRun,
    number: i64,
    page: Vec<u8>,
    sample: Vec<i64>,
    /// Parts of the filter that are written.
    parts: usize,
}

impl RunBuilder {
    pub(super) fn new(
        number: i64,
        level: u32,
        (opened, closed): (i64, i64),
        keys_max: u64,
    ) -> Self {
        let run = KeyRun {
            place: RunPlace::Pages(number),
            level,
            keys: 0,
            opened,
            closed,
            median: 0,
            latest: 0,
            filter: BloomFilter::sized_for(usize::try_from(keys_max).unwrap_or(usize::MAX)),
        };
        Self { run, number, page: Vec::new(), sample: Vec::new(), parts: 0 }
    }

    /// Keys must come in order.
    pub(super) fn push(&mut self, conn: &Connection, record: &KeyRecord) -> StoreResult<()> {
        // Keys that share their first bytes are on one page, because these number it.
        let last = self.page.last_chunk().copied().map(KeyRecord);
        if self.page.len() >= PAGE_RECORDS * RECORD
            && last.is_some_and(|last| last.prefix() != record.prefix())
        {
            self.write_page(conn)?;
        }
        self.page.extend_from_slice(&record.0);
        self.run.filter.insert(&record.key());
        self.run.latest = self.run.latest.max(record.expires());
        if self.run.keys.is_multiple_of(SAMPLED) {
            self.sample.push(record.expires());
        }
        self.run.keys += 1;
        Ok(())
    }

    pub(super) fn write_page(&mut self, conn: &Connection) -> StoreResult<()> {
        let Some(first) = self.page.first_chunk().copied().map(KeyRecord) else { return Ok(()) };
        let id = first_row_of(self.number) | i64::from(first.prefix());
        run(conn, "INSERT INTO dedup_page (id, keys) VALUES (?1, ?2)", params![id, self.page])?;
        self.page.clear();
        Ok(())
    }

    /// Writes some of the filter; false if all of it is written.
    pub(super) fn write_filter(&mut self, conn: &Connection) -> StoreResult<bool> {
        let Some(part) = self.run.filter.part(self.parts, FILTER_PART) else { return Ok(false) };
        let id = first_row_of(self.number) | self.parts as i64;
        run(conn, "INSERT INTO dedup_filter (id, part) VALUES (?1, ?2)", params![id, part])?;
        self.parts += 1;
        Ok(true)
    }

    /// Lists the run within the caller's transaction.
    pub(super) fn list(&mut self, conn: &Connection, long: bool) -> StoreResult<()> {
        self.sample.sort_unstable();
        self.run.median = self.sample.get(self.sample.len() / 2).copied().unwrap_or(0);
        let KeyRun { level, keys, opened, closed, median, latest, .. } = self.run;
        let insert = "INSERT INTO dedup_run (id, long, level, keys, opened, closed, median, latest) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let row = params![self.number, long, level, keys as i64, opened, closed, median, latest];
        run(conn, insert, row).map(drop)
    }
}

/// Reads the list of runs with their filters. A filter that cannot be read is made anew.
pub(super) fn load(conn: &Connection, long: bool) -> StoreResult<Vec<KeyRun>> {
    let select = "SELECT id, level, keys, opened, closed, median, latest FROM dedup_run \
                  WHERE long = ?1 ORDER BY closed, id";
    let mut runs = all_rows(conn, select, [long], |row| {
        Ok(KeyRun {
            place: RunPlace::Pages(get(row, 0)?),
            level: get(row, 1)?,
            keys: unsigned(row, 2)?,
            opened: get(row, 3)?,
            closed: get(row, 4)?,
            median: get(row, 5)?,
            latest: get(row, 6)?,
            filter: BloomFilter::sized_for(0),
        })
    })?;
    for run in &mut runs {
        run.filter = match load_filter(conn, run.place) {
            Err(error) if is_local(&error) => {
                tracing::error!(%error, "a filter of idempotency keys cannot be read; it is made anew");
                filter_from_pages(conn, run)?
            }
            loaded => loaded?,
        };
    }
    Ok(runs)
}

fn load_filter(conn: &Connection, place: RunPlace) -> StoreResult<BloomFilter> {
    let RunPlace::Pages(run) = place else { return Err(damaged("a run without pages")) };
    let select = "SELECT part FROM dedup_filter WHERE id >= ?1 AND id < ?2 ORDER BY id";
    let mut bytes = Vec::new();
    all_rows(conn, select, [first_row_of(run), first_row_of(run + 1)], |row| {
        bytes.extend_from_slice(row.get_ref(0).map_err(sql)?.as_blob().map_err(damaged)?);
        Ok(())
    })?;
    BloomFilter::from_bytes(&bytes).ok_or_else(|| damaged("the filter of idempotency keys"))
}

fn filter_from_pages(conn: &Connection, run: &KeyRun) -> StoreResult<BloomFilter> {
    let mut filter = BloomFilter::sized_for(usize::try_from(run.keys).unwrap_or(0));
    let mut cursor = RunCursor::new(run.place);
    while let Some(record) = cursor.peek(conn)? {
        filter.insert(&record.key());
        cursor.advance();
    }
    Ok(filter)
}
