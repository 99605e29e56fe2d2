//! The keys of one list: the newest in a map, the others in sorted runs. Moves, merges and drops them in
//! small steps, so that commits never wait for long.

use std::collections::HashMap;

use super::levels::runs_to_merge;
use super::record::{DedupHash, KeyRecord, PAGE_RECORDS, RECORD, records};
use super::run::{KeyRun, RunBuilder, RunCursor, RunPlace, first_row_of};
use super::{legacy, run};
use crate::embedded::index::effects::DedupEntry;
use crate::embedded::problems::ProblemList;
use crate::embedded::shared::REPAIR;
use crate::embedded::sql::prelude::*;
use crate::embedded::sql::scan::{SkippedKeys, scan};
use crate::embedded::sql::set_aside::set_aside;
use crate::embedded::sql::statement::is_local;

/// New keys become a run after so long, even if they are few, so that they can be dropped in time.
const OPEN_FOR_MS: i64 = 3_600_000;
/// Keys written by one step; commits wait for no more than these.
const STEP_KEYS: usize = 4_096;
/// Rows deleted by one step: a page each.
const STEP_ROWS: usize = 256;

pub(super) struct DedupKeyList {
    long: bool,
    /// The table of new keys.
    table: &'static str,
    run_keys: usize,
    open: HashMap<DedupHash, DedupEntry>,
    opened: i64,
    /// New keys that become a run.
    closing: Option<ClosingRun>,
    merging: Option<RunMerge>,
    /// By time.
    runs: Vec<KeyRun>,
    /// Runs that are not listed any more and whose rows are still there.
    dropped: Vec<RunPlace>,
    /// What expired before this may be left out of a merge.
    expired_before: i64,
}

struct ClosingRun {
    keys: Vec<[u8; RECORD]>,
    build: RunMerge,
    /// The rows of its keys in the table of new keys; those up to here are to be deleted once it is listed.
    rows: (i64, i64),
    is_listed: bool,
}

/// A run that is being written, from memory or from other runs.
struct RunMerge {
    builder: RunBuilder,
    sources: Vec<RunCursor>,
    from: Vec<RunPlace>,
    is_read: bool,
    is_written: bool,
}

impl DedupKeyList {
    pub(super) fn load(
        conn: &Connection,
        long: bool,
        run_keys: usize,
        now: i64,
        problems: &ProblemList,
    ) -> StoreResult<Self> {
        let table = if long { "dedup_new_long" } else { "dedup_new_short" };
        let mut list = Self {
            long,
            table,
            run_keys,
            open: HashMap::new(),
            opened: now,
            closing: None,
            merging: None,
            runs: Vec::new(),
            dropped: Vec::new(),
            expired_before: i64::MIN,
        };
        list.load_new(conn, now, problems)?;
        let (tables, skipped) = legacy::load(conn, long)?;
        report(problems, now, &skipped);
        list.runs = tables;
        list.runs.extend(run::load(conn, long)?);
        list.runs.sort_by_key(|run| run.closed);
        Ok(list)
    }

    fn load_new(&mut self, conn: &Connection, now: i64, problems: &ProblemList) -> StoreResult<()> {
        let select = format!(
            "SELECT id, keys FROM {} WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3",
            self.table
        );
        let found = scan(conn, &select, (0, i64::MAX as u64), usize::MAX, |row| {
            let page = row.get_ref(1).map_err(sql)?.as_blob().map_err(damaged)?;
            let keys = records(page).ok_or_else(|| damaged("new idempotency keys"))?;
            Ok(Some(keys.to_vec()))
        })?;
        report(problems, now, &found.skipped);
        let keys: Vec<_> = found.rows.into_iter().flatten().map(KeyRecord).collect();
        let (old, skipped) = legacy::read_new(conn, self.long)?;
        report(problems, now, &skipped);
        let transaction = conn.unchecked_transaction().map_err(sql)?;
        if !found.skipped.is_empty() {
            // New keys are added behind the last row, which may be on a page that cannot be read.
            set_aside(&transaction, self.table, "(id INTEGER PRIMARY KEY, keys BLOB NOT NULL)")?;
            self.append(&transaction, &keys)?;
        }
        self.append(&transaction, &old)?;
        transaction.commit().map_err(sql)?;
        if !old.is_empty() || !skipped.is_empty() {
            legacy::delete_new(conn, self.long)?;
        }
        self.open = keys.iter().map(|record| (record.key(), record.entry())).collect();
        self.open.extend(old.iter().map(|record| (record.key(), record.entry())));
        Ok(())
    }

    pub(super) fn open_keys(&self) -> &HashMap<DedupHash, DedupEntry> {
        &self.open
    }

    pub(super) fn closing_keys(&self) -> &[[u8; RECORD]] {
        self.closing.as_ref().map_or(&[], |closing| &closing.keys)
    }

    pub(super) fn all_runs(&self) -> &[KeyRun] {
        &self.runs
    }

    pub(super) fn find(
        &self,
        conn: &Connection,
        key: &DedupHash,
        now: i64,
    ) -> StoreResult<Option<DedupEntry>> {
        let is_live = |entry: &DedupEntry| entry.expires > now;
        if let Some(entry) = self.open.get(key).copied().filter(is_live) {
            return Ok(Some(entry));
        }
        if let Some(closing) = &self.closing
            && let Some(entry) = super::record::find_in(&closing.keys, key).filter(is_live)
        {
            return Ok(Some(entry));
        }
        for run in self.runs.iter().rev().filter(|run| run.latest > now) {
            if let Some(entry) = run.find(conn, key)?.filter(is_live) {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Writes new keys within the caller's transaction.
    pub(super) fn append(&self, conn: &Connection, keys: &[KeyRecord]) -> StoreResult<()> {
        let insert = match self.long {
            false => "INSERT INTO dedup_new_short (keys) VALUES (?1)",
            true => "INSERT INTO dedup_new_long (keys) VALUES (?1)",
        };
        let mut page = Vec::with_capacity(keys.len().min(PAGE_RECORDS) * RECORD);
        for some in keys.chunks(PAGE_RECORDS) {
            page.clear();
            some.iter().for_each(|record| page.extend_from_slice(&record.0));
            run(conn, insert, [&page])?;
        }
        Ok(())
    }

    pub(super) fn remember(&mut self, key: DedupHash, entry: DedupEntry, now: i64) {
        if self.open.is_empty() {
            self.opened = now;
        }
        self.open.insert(key, entry);
    }

    /// Forgets runs whose keys have all expired. Their rows are deleted by `work`.
    pub(super) fn prune(&mut self, conn: &Connection, now: i64) -> StoreResult<()> {
        self.expired_before = self.expired_before.max(now);
        // A merge that reads them begins anew.
        let is_over = |run: &KeyRun| run.latest <= now;
        let over: Vec<_> =
            self.runs.iter().filter(|run| is_over(run)).map(|run| run.place).collect();
        if over.is_empty() {
            return Ok(());
        }
        if self
            .merging
            .as_ref()
            .is_some_and(|merge| merge.from.iter().any(|from| over.contains(from)))
        {
            self.give_up_merge();
        }
        let transaction = conn.unchecked_transaction().map_err(sql)?;
        over.iter().try_for_each(|place| unlist(&transaction, *place))?;
        transaction.commit().map_err(sql)?;
        self.runs.retain(|run| !is_over(run));
        self.dropped.extend(over);
        Ok(())
    }

    pub(super) fn drop_later(&mut self, place: RunPlace) {
        self.dropped.push(place);
    }

    pub(super) fn has_work(&self, now: i64) -> bool {
        self.closing.is_some()
            || self.merging.is_some()
            || !self.dropped.is_empty()
            || self.is_to_be_closed(now)
            || runs_to_merge(&self.runs, self.expired_before).is_some()
    }

    fn is_to_be_closed(&self, now: i64) -> bool {
        let is_old = !self.open.is_empty() && self.opened.saturating_add(OPEN_FOR_MS) <= now;
        self.open.len() >= self.run_keys || is_old
    }

    /// One step of moving, merging or dropping. True if there is more.
    pub(super) fn work(
        &mut self,
        conn: &Connection,
        now: i64,
        next: &mut i64,
    ) -> StoreResult<bool> {
        if self.closing.is_none() && self.is_to_be_closed(now) {
            self.start_closing(conn, now, next)?;
        }
        if self.closing.is_some() {
            return self.close_some(conn).inspect_err(|_| self.give_up_closing()).map(|()| true);
        }
        if let Some(place) = self.dropped.last().copied() {
            if !delete_some(conn, place)? {
                self.dropped.pop();
            }
            return Ok(true);
        }
        if self.merging.is_none() && !self.start_merging(next) {
            return Ok(false);
        }
        self.merge_some(conn).inspect_err(|_| self.give_up_merge()).map(|()| true)
    }

    fn start_closing(&mut self, conn: &Connection, now: i64, next: &mut i64) -> StoreResult<()> {
        let select =
            format!("SELECT coalesce(min(id), 1), coalesce(max(id), 0) FROM {}", self.table);
        let rows = first_row(conn, &select, [], |row| Ok((get(row, 0)?, get(row, 1)?)))?;
        let open = std::mem::take(&mut self.open);
        let mut keys: Vec<_> =
            open.iter().map(|(key, entry)| KeyRecord::new(key, entry).0).collect();
        keys.sort_unstable();
        let count = keys.len() as u64;
        let build = RunMerge {
            builder: RunBuilder::new(take(next), 0, (self.opened.min(now), now), count),
            sources: vec![RunCursor::of(keys.clone())],
            from: Vec::new(),
            is_read: false,
            is_written: false,
        };
        let rows = rows.unwrap_or((1, 0));
        self.closing = Some(ClosingRun { keys, build, rows, is_listed: false });
        Ok(())
    }

    fn close_some(&mut self, conn: &Connection) -> StoreResult<()> {
        let Some(closing) = &mut self.closing else { return Ok(()) };
        if closing.is_listed {
            let (from, to) = closing.rows;
            if from > to {
                self.closing = None;
                return Ok(());
            }
            let end = from.saturating_add(STEP_ROWS as i64).min(to.saturating_add(1));
            let delete = format!("DELETE FROM {} WHERE id >= ?1 AND id < ?2", self.table);
            match plainly(conn, || run(conn, &delete, [from, end])) {
                // They are in the run. The next start reads them once more, which does no harm.
                Err(error) if is_local(&error) => {
                    tracing::error!(%error, "some idempotency keys cannot be deleted");
                }
                done => drop(done?),
            }
            closing.rows = (end, to);
            return Ok(());
        }
        if closing.build.step(conn, self.long, i64::MIN)? {
            closing.is_listed = true;
            self.runs.push(closing.build.take_run());
        }
        Ok(())
    }

    /// The keys are as they were: new, and on disk.
    fn give_up_closing(&mut self) {
        if let Some(closing) = self.closing.take_if(|closing| !closing.is_listed) {
            self.dropped.push(closing.build.builder.run.place);
            for record in closing.keys.into_iter().map(KeyRecord) {
                self.open.entry(record.key()).or_insert(record.entry());
            }
        }
    }

    fn start_merging(&mut self, next: &mut i64) -> bool {
        let Some((first, count)) = runs_to_merge(&self.runs, self.expired_before) else {
            return false;
        };
        let runs = &self.runs[first..first + count];
        let level = runs.iter().map(|run| run.level).max().unwrap_or(0);
        let level = if count == 1 { level } else { level + 1 };
        let opened = runs.iter().map(|run| run.opened).min().unwrap_or(0);
        let closed = runs.iter().map(|run| run.closed).max().unwrap_or(0);
        let keys = runs.iter().map(|run| run.keys).sum();
        let from: Vec<_> = runs.iter().map(|run| run.place).collect();
        self.merging = Some(RunMerge {
            builder: RunBuilder::new(take(next), level, (opened, closed), keys),
            sources: from.iter().map(|place| RunCursor::new(*place)).collect(),
            from,
            is_read: false,
            is_written: false,
        });
        true
    }

    fn merge_some(&mut self, conn: &Connection) -> StoreResult<()> {
        let Some(merging) = &mut self.merging else { return Ok(()) };
        let done = merging.step(conn, self.long, self.expired_before)?;
        if let Some(mut merging) = self.merging.take_if(|_| done) {
            let new = merging.take_run();
            let at = self.runs.iter().position(|run| merging.from.contains(&run.place));
            self.runs.insert(at.unwrap_or(0), new);
            self.runs.retain(|run| !merging.from.contains(&run.place));
            self.dropped.extend(merging.from);
        }
        Ok(())
    }

    fn give_up_merge(&mut self) {
        self.dropped.extend(self.merging.take().map(|merging| merging.builder.run.place));
    }
}

impl RunMerge {
    /// One transaction. True if the run is listed now.
    fn step(&mut self, conn: &Connection, long: bool, expired_before: i64) -> StoreResult<bool> {
        // Read before the transaction begins, which an unreadable page would end.
        let keys = if self.is_written { Vec::new() } else { self.read_keys(conn, expired_before)? };
        let transaction = conn.unchecked_transaction().map_err(sql)?;
        let mut done = false;
        if !self.is_written {
            self.write_keys(&transaction, &keys)?;
        } else if !self.builder.write_filter(&transaction)? {
            self.builder.list(&transaction, long)?;
            self.from.iter().try_for_each(|place| unlist(&transaction, *place))?;
            done = true;
        }
        transaction.commit().map_err(sql)?;
        Ok(done)
    }

    /// The next keys that are not over.
    fn read_keys(&mut self, conn: &Connection, expired_before: i64) -> StoreResult<Vec<KeyRecord>> {
        let mut keys = Vec::with_capacity(STEP_KEYS);
        for _ in 0..STEP_KEYS {
            let Some(record) = self.next(conn)? else {
                self.is_read = true;
                break;
            };
            if record.expires() > expired_before {
                keys.push(record);
            }
        }
        Ok(keys)
    }

    fn write_keys(&mut self, conn: &Connection, keys: &[KeyRecord]) -> StoreResult<()> {
        keys.iter().try_for_each(|record| self.builder.push(conn, record))?;
        if self.is_read {
            self.is_written = true;
            self.builder.write_page(conn)?;
        }
        Ok(())
    }

    /// The next key in order. Of a key that was used again after its end, the last use counts.
    fn next(&mut self, conn: &Connection) -> StoreResult<Option<KeyRecord>> {
        let mut least: Option<KeyRecord> = None;
        for source in &mut self.sources {
            let Some(record) = source.peek(conn)? else { continue };
            least = match least {
                Some(least) if least.key() < record.key() => Some(least),
                Some(least)
                    if least.key() == record.key() && least.expires() > record.expires() =>
                {
                    Some(least)
                }
                _ => Some(record),
            };
        }
        let Some(least) = least else { return Ok(None) };
        for source in &mut self.sources {
            if source.peek(conn)?.is_some_and(|record| record.key() == least.key()) {
                source.advance();
            }
        }
        Ok(Some(least))
    }

    fn take_run(&mut self) -> KeyRun {
        let empty = RunBuilder::new(0, 0, (0, 0), 0);
        std::mem::replace(&mut self.builder, empty).run
    }
}

fn take(next: &mut i64) -> i64 {
    *next += 1;
    *next - 1
}

fn unlist(conn: &Connection, place: RunPlace) -> StoreResult<()> {
    match place {
        RunPlace::Pages(id) => run(conn, "DELETE FROM dedup_run WHERE id = ?1", [id]).map(drop),
        RunPlace::Table(id) => legacy::unlist(conn, id),
    }
}

/// Deletes some rows of a run that is not listed any more; false if none is left.
fn delete_some(conn: &Connection, place: RunPlace) -> StoreResult<bool> {
    let id = match place {
        RunPlace::Table(id) => {
            return plainly(conn, || legacy::drop_table(conn, id)).map(|()| false);
        }
        RunPlace::Pages(id) => id,
    };
    let range = [first_row_of(id), first_row_of(id + 1)];
    let pages = format!(
        "DELETE FROM dedup_page WHERE id IN (SELECT id FROM dedup_page WHERE id >= ?1 AND id < ?2 \
         LIMIT {STEP_ROWS})"
    );
    let parts = "DELETE FROM dedup_filter WHERE id IN (SELECT id FROM dedup_filter WHERE id >= ?1 \
                 AND id < ?2 LIMIT 4)";
    plainly(conn, || Ok(run(conn, &pages, range)? > 0 || run(conn, parts, range)? > 0))
}

/// Keys are hashes, so the pages that become free need not be overwritten, which would cost more than all the
/// rest.
fn plainly<T>(conn: &Connection, delete: impl FnOnce() -> StoreResult<T>) -> StoreResult<T> {
    let set = |value: &str| {
        let set = format!("PRAGMA secure_delete = {value}");
        conn.query_row(&set, [], |_| Ok(())).map_err(sql)
    };
    set("FAST")?;
    let done = delete();
    set("ON")?;
    done
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
