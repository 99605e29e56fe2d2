//! Entries of the table `waiting` whose deliveries ended. Each lane has pages of its own there, so deleting an entry
//! with the result of its delivery would change a page for each result. Instead, a transaction notes all entries that
//! ended in it as one row of the table `waiting_ended`. Once they are many, they are deleted in the order of the list,
//! some in one transaction. A start deletes those that are left.

use std::collections::{HashSet, VecDeque};

use postrider_core::ports::store::StoreError;

use super::prelude::*;
use super::scan::scan;
use super::statement::is_local;
use crate::embedded::problems::ProblemList;
use crate::embedded::shared::REPAIR;

/// The notes: 20 bytes for each entry.
pub(super) const ENDED_ENTRIES: &str = "
CREATE TABLE waiting_ended (id INTEGER PRIMARY KEY, entries BLOB NOT NULL);
";

/// Rows of notes that are worth deleting, even if they have few entries.
const ROWS_MAX: u64 = 4_096;
/// Transactions that delete what was gathered, so that none takes long.
const PARTS: usize = 64;
const ENTRY: usize = 20;
const DELETE: &str = "DELETE FROM waiting WHERE lane = ?1 AND due = ?2 AND seq = ?3";

/// Lane, due time and sequence: the key of the list.
pub(crate) type EndedWaitingEntry = (u32, i64, u64);

/// Entries that are still in the list, although their deliveries ended.
#[derive(Debug, Default)]
pub(crate) struct EndedEntries {
    gathered: HashSet<EndedWaitingEntry>,
    /// Rows of notes about them, and the number of the last one.
    rows: u64,
    last: i64,
    /// Being deleted: these, in order, with the rows of notes up to this number.
    deleting: VecDeque<EndedWaitingEntry>,
    deleting_upto: Option<i64>,
    /// Notes cannot be written, so entries are deleted at once.
    is_unwritable: bool,
}

impl EndedEntries {
    pub(super) fn load(conn: &Connection) -> StoreResult<Self> {
        Ok(Self { last: last_row(conn)?, ..Self::default() })
    }

    pub(crate) fn contains(&self, entry: &EndedWaitingEntry) -> bool {
        self.gathered.contains(entry) || self.deleting.binary_search(entry).is_ok()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.gathered.len() + self.deleting.len()
    }

    /// A transaction that noted them was committed.
    pub(crate) fn committed(&mut self, entries: &[EndedWaitingEntry]) {
        if !entries.is_empty() {
            self.gathered.extend(entries);
            self.rows += 1;
            self.last += 1;
        }
    }

    fn begin_deleting(&mut self) {
        let mut all: Vec<_> = std::mem::take(&mut self.gathered).into_iter().collect();
        all.sort_unstable();
        self.deleting = all.into();
        self.deleting_upto = Some(self.last);
        self.rows = 0;
    }
}

impl Writer {
    /// A delivery ended for good; its entry is deleted later.
    pub(crate) fn unlist_later(&mut self, seq: u64, (lane, due): (u32, i64)) -> StoreResult<()> {
        if self.ended.is_unwritable {
            return self.relist(seq, (lane, due), None);
        }
        if self.listing.listed.contains(lane, seq) {
            self.effects.ended.push((lane, due, seq));
        }
        Ok(())
    }

    /// Notes what ended in this transaction.
    pub(crate) fn write_ended(&mut self) -> StoreResult<()> {
        if self.effects.ended.is_empty() {
            return Ok(());
        }
        let mut entries = Vec::with_capacity(self.effects.ended.len() * ENTRY);
        for (lane, due, seq) in &self.effects.ended {
            entries.extend_from_slice(&lane.to_le_bytes());
            entries.extend_from_slice(&due.to_le_bytes());
            entries.extend_from_slice(&seq.to_le_bytes());
        }
        let insert = "INSERT INTO waiting_ended (id, entries) VALUES (?1, ?2)";
        let noted = run(&self.conn, insert, params![self.ended.last + 1, entries]).map(drop);
        // A damaged page stops nothing: the transaction is tried again in smaller ones.
        self.ended.is_unwritable |= noted.as_ref().is_err_and(is_local);
        noted
    }

    /// Between other work: deletes a part of what was gathered. True if there is more.
    pub(crate) fn delete_some_ended(&mut self) -> StoreResult<bool> {
        if self.ended.deleting_upto.is_none() {
            let is_much = self.ended.gathered.len() >= self.listing.at_once;
            if !is_much && self.ended.rows < ROWS_MAX {
                return Ok(false);
            }
            self.ended.begin_deleting();
        }
        // More at once if they come faster than they are deleted.
        let part = self.listing.at_once.div_ceil(PARTS).max(self.ended.gathered.len() / 16);
        self.delete_ended_part(part)?;
        Ok(self.ended.deleting_upto.is_some())
    }

    /// Deletes everything that was gathered.
    pub(crate) fn delete_all_ended(&mut self) -> StoreResult<()> {
        for _ in 0..2 {
            while self.ended.deleting_upto.is_some() {
                self.delete_ended_part(self.listing.at_once)?;
            }
            if !self.ended.gathered.is_empty() {
                self.ended.begin_deleting();
            }
        }
        Ok(())
    }

    /// Deletes up to so many entries, and the notes about all of them behind the last one.
    fn delete_ended_part(&mut self, limit: usize) -> StoreResult<()> {
        let count = self.delete_entries(limit)?;
        self.ended.deleting.drain(..count);
        let Some(upto) = self.ended.deleting_upto.filter(|_| self.ended.deleting.is_empty()) else {
            return Ok(());
        };
        let delete = "DELETE FROM waiting_ended WHERE id <= ?1";
        match self.transact_surely(|writer| run(&writer.conn, delete, [upto])) {
            // What they name is deleted already, and the next start finds that.
            Err(error) if is_local(&error) => self.report_damaged_list(&error),
            done => drop(done?),
        }
        self.ended.deleting_upto = None;
        Ok(())
    }

    /// Fewer at once where a page cannot be read. Returns how many are done with; one that cannot be deleted stays in
    /// the list, and the next start makes the list anew.
    fn delete_entries(&mut self, limit: usize) -> StoreResult<usize> {
        let mut count = limit.min(self.ended.deleting.len());
        loop {
            let part: Vec<EndedWaitingEntry> =
                self.ended.deleting.iter().take(count).copied().collect();
            let deleted = self.transact_surely(|writer| {
                part.iter().try_for_each(|(lane, due, seq)| {
                    run(&writer.conn, DELETE, params![lane, due, *seq as i64]).map(drop)
                })
            });
            match deleted {
                Err(error) if is_local(&error) && count > 1 => count /= 2,
                Err(error) if is_local(&error) => {
                    self.report_damaged_list(&error);
                    return Ok(count);
                }
                deleted => return deleted.map(|()| count),
            }
        }
    }

    pub(crate) fn report_damaged_list(&self, error: &StoreError) {
        let what = format!("the list of waiting deliveries is damaged ({error}); {REPAIR}");
        self.shared.problems.report("index_damaged", self.shared.now(), what);
    }
}

/// At a start: deletes the entries that the previous process noted.
pub(super) fn delete_at_start(
    conn: &Connection,
    problems: &ProblemList,
    now: Timestamp,
) -> StoreResult<()> {
    let select =
        "SELECT id, entries FROM waiting_ended WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3";
    let found = scan(conn, select, (0, i64::MAX as u64), usize::MAX, |row| {
        let entries = row.get_ref(1).map_err(sql)?.as_blob().map_err(damaged)?;
        Ok(Some(read_entries(entries)?))
    })?;
    for skipped in &found.skipped {
        // What they name is found to be final when it is read.
        let what = format!("some ended deliveries cannot be read ({})", skipped.error);
        problems.report_about("rows_unreadable", skipped.from, now, what);
    }
    let mut entries: Vec<EndedWaitingEntry> = found.rows.into_iter().flatten().collect();
    if entries.is_empty() {
        return Ok(());
    }
    entries.sort_unstable();
    let transaction = conn.unchecked_transaction().map_err(sql)?;
    for (lane, due, seq) in entries {
        run(&transaction, DELETE, params![lane, due, seq as i64])?;
    }
    forget_ended(&transaction)?;
    transaction.commit().map_err(sql)
}

/// Nothing is noted any more. What cannot be deleted stays, and is harmless.
pub(super) fn forget_ended(conn: &Connection) -> StoreResult<()> {
    match run(conn, "DELETE FROM waiting_ended", []) {
        Err(error) if is_local(&error) => Ok(()),
        done => done.map(drop),
    }
}

/// The number of the last row.
pub(super) fn last_row(conn: &Connection) -> StoreResult<i64> {
    let last = value::<Option<i64>>(conn, "SELECT max(id) FROM waiting_ended", []);
    match last {
        // Far beyond all that were ever written.
        Err(error) if is_local(&error) => Ok(1 << 60),
        last => Ok(last?.flatten().unwrap_or(0)),
    }
}

fn read_entries(bytes: &[u8]) -> StoreResult<Vec<EndedWaitingEntry>> {
    let wrong = || -> StoreError { damaged("the entries of ended deliveries") };
    let (entries, []) = bytes.as_chunks::<ENTRY>() else { return Err(wrong()) };
    let read = |entry: &[u8; ENTRY]| {
        let (lane, rest) = entry.split_first_chunk::<4>().ok_or_else(wrong)?;
        let (due, rest) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
        let seq = rest.first_chunk::<8>().ok_or_else(wrong)?;
        Ok((u32::from_le_bytes(*lane), i64::from_le_bytes(*due), u64::from_le_bytes(*seq)))
    };
    entries.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use postrider_core::LaneKey;
    use postrider_core::model::decision::Decision;
    use postrider_core::ports::store::{
        AddressLearning, Admission, LeasedDelivery, Ledger, NewMessage, Settlement,
    };

    use super::*;
    use crate::ManualClock;
    use crate::conformance::{WorkingStore, message};
    use crate::embedded::StoreOptions;

    const LEASE: Duration = Duration::from_secs(60);
    const AT_ONCE: usize = 100;

    fn open(dir: &Path) -> WorkingStore {
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let options = StoreOptions {
            lane_window: 8,
            window_total: 16,
            listed_at_once: AT_ONCE,
            ..StoreOptions::default()
        };
        WorkingStore::open(dir, clock, options).unwrap()
    }

    fn to_lane(number: usize) -> NewMessage {
        let mut new = message("acme", 1);
        let lane = LaneKey {
            provider: format!("https://host-{number}.example").into(),
            ..(*new.deliveries[0].lane).clone()
        };
        new.deliveries[0].lane = Arc::new(lane);
        new
    }

    /// Accepts so many messages over ten lanes; all of them are listed.
    async fn accept(store: &WorkingStore, count: usize) -> Vec<Admission> {
        let answers = store.accept((0..count).map(|n| to_lane(n % 10)).collect()).await.unwrap();
        store.run_task(|writer| writer.list_all_waiting()).await.unwrap();
        answers
    }

    /// Leases and settles up to so many, one of each lane at a time.
    async fn deliver(store: &WorkingStore, most: usize, decision: Decision) -> usize {
        let mut done = 0;
        while done < most {
            let mut settlements = Vec::new();
            for lane in store.ready_lanes(100).await.unwrap() {
                let settle = |leased: LeasedDelivery| Settlement {
                    delivery: leased.delivery,
                    token: leased.token,
                    attempts: Vec::new(),
                    decision: decision.clone(),
                    learned: AddressLearning::default(),
                };
                settlements
                    .extend(store.lease(lane.id, 1, LEASE).await.unwrap().into_iter().map(settle));
            }
            if settlements.is_empty() {
                break;
            }
            done += settlements.len();
            store.settle(settlements).await.unwrap();
        }
        done
    }

    /// Entries of the list, rows of notes, and entries that are noted.
    async fn sizes(store: &WorkingStore) -> (i64, i64, usize) {
        let count = |writer: &mut Writer| {
            let rows = |table: &str| -> StoreResult<i64> {
                let count = format!("SELECT count(*) FROM {table}");
                Ok(value(&writer.conn, &count, [])?.unwrap_or(0))
            };
            Ok((rows("waiting")?, rows("waiting_ended")?, writer.ended.len()))
        };
        store.run_task(count).await.unwrap()
    }

    #[tokio::test]
    async fn what_ended_is_taken_out_of_the_list_many_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        accept(&store, 1_000).await;
        assert_eq!(deliver(&store, 50, Decision::Done).await, 50);
        assert_eq!(sizes(&store).await, (1_000, 5, 50), "ten of each transaction are one row");
        assert_eq!(deliver(&store, 2_000, Decision::Done).await, 950);
        let (listed, _, ended) = sizes(&store).await;
        assert!(listed as usize == ended && ended < 5 * AT_ONCE, "{listed} listed, {ended} ended");
        store.close().await;
        drop(store);
        assert_eq!(sizes(&open(dir.path())).await, (0, 0, 0), "nothing is left by a clean end");
    }

    /// The copy of a running store is what a crash leaves.
    #[tokio::test]
    async fn what_ended_before_a_crash_is_not_listed_after_it() {
        let (dir, crashed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = open(dir.path());
        accept(&store, 90).await;
        deliver(&store, 30, Decision::Done).await;
        deliver(&store, 10, Decision::Retry { after: LEASE, counted: true }).await;
        assert_eq!(sizes(&store).await.0, 90);
        for file in ["postrider.db", "postrider.db-wal"] {
            std::fs::copy(dir.path().join(file), crashed.path().join(file)).unwrap();
        }
        let store = open(crashed.path());
        assert_eq!(sizes(&store).await, (60, 0, 0));
        let depths = store.lanes(None, 100).await.unwrap();
        assert_eq!(depths.iter().map(|lane| lane.pending).sum::<u64>(), 60);
        assert_eq!(deliver(&store, 1_000, Decision::Done).await, 50, "those that are due");
    }

    /// They are beyond what a lane has in memory, and are read when the others were sent.
    #[tokio::test]
    async fn what_was_cancelled_out_of_turn_is_not_leased() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let accepted = accept(&store, 400).await;
        for admission in accepted.iter().rev().take(30) {
            let Admission::Accepted { message, .. } = admission else { panic!("{admission:?}") };
            store.cancel(None, *message).await.unwrap();
        }
        assert_eq!(sizes(&store).await, (400, 30, 30));
        assert_eq!(deliver(&store, 1_000, Decision::Done).await, 370);
        let depths = store.lanes(None, 100).await.unwrap();
        assert_eq!(depths.iter().map(|lane| lane.pending + lane.in_flight).sum::<u64>(), 0);
    }

    #[tokio::test]
    async fn notes_that_cannot_be_written_stop_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        accept(&store, 60).await;
        let damage = |writer: &mut Writer| {
            run(&writer.conn, "ALTER TABLE waiting_ended RENAME TO away", []).map(drop)
        };
        store.run_task(damage).await.unwrap();
        assert_eq!(deliver(&store, 1_000, Decision::Done).await, 60);
        let left = |writer: &mut Writer| value(&writer.conn, "SELECT count(*) FROM waiting", []);
        assert_eq!(store.run_task(left).await.unwrap(), Some(0i64));
    }
}
