//! The table `waiting`: pending deliveries by lane and due time, from which a lane's next deliveries are read.
//! A new delivery is not listed at once, because every lane has a page of its own there, and most deliveries end
//! soon. What is still pending after some thousand others were accepted is listed with them, lane by lane and some
//! lanes in one transaction. `meta.listed` says up to which sequence that was done; a start lists the rest.

use postrider_core::ports::store::StoreError;

use super::ended::{delete_at_start, forget_ended};
use super::prelude::*;
use super::scan::scan;
use super::set_aside::set_aside;
use crate::embedded::index::lanes::DueKey;
use crate::embedded::index::recent::ListedRange;
use crate::embedded::problems::ProblemList;

/// Rows that one transaction of a start reads.
const STEP: usize = 20_000;
/// Transactions that list what waits, so that none takes long: each lane may need a page of its own.
const PARTS: usize = 64;
const INSERT: &str = "INSERT OR IGNORE INTO waiting (lane, due, seq) VALUES (?1, ?2, ?3)";

/// What is listed, and how many deliveries were accepted since the last time.
#[derive(Debug, Default)]
pub(crate) struct ListingPosition {
    pub(crate) listed: ListedRange,
    /// Arrivals after which more is listed.
    pub(crate) at_once: usize,
    arrivals: usize,
    /// What was accepted before this sequence is listed next.
    before: u64,
}

impl ListingPosition {
    pub(crate) fn arrived(&mut self, count: usize) {
        self.arrivals += count;
    }
}

impl Writer {
    /// A delivery that was in the list under `old` gets the key `new`, or ends and may be pending again later.
    /// Nothing is to be done for one that is not listed yet.
    pub(crate) fn relist(
        &mut self,
        seq: u64,
        (lane, due): (u32, i64),
        new: Option<(u32, i64)>,
    ) -> StoreResult<()> {
        if new == Some((lane, due)) {
            return Ok(());
        }
        if self.listing.listed.contains(lane, seq) {
            if self.leaves_list {
                return mark_damaged(&self.conn);
            }
            let delete = "DELETE FROM waiting WHERE lane = ?1 AND due = ?2 AND seq = ?3";
            run(&self.conn, delete, params![lane, due, seq as i64])?;
        }
        new.map_or(Ok(()), |(lane, due)| self.list_waiting(lane, (due, seq)))
    }

    /// Lists a delivery that is pending again, or was put in.
    pub(crate) fn list_waiting(&mut self, lane: u32, (due, seq): DueKey) -> StoreResult<()> {
        if !self.listing.listed.contains(lane, seq) {
            return Ok(());
        }
        run(&self.conn, INSERT, params![lane, due, seq as i64]).map(drop)
    }

    /// Between other work: lists a part of what was pending for some thousand arrivals. True if there is more.
    pub(crate) fn list_some_waiting(&mut self) -> StoreResult<bool> {
        if !self.is_listing() {
            if self.listing.arrivals < self.listing.at_once {
                return Ok(false);
            }
            self.listing.arrivals = 0;
            let newest = self.shared.ids().last() + 1;
            let before = std::mem::replace(&mut self.listing.before, newest);
            self.begin_listing(before);
        }
        self.list_step()?;
        Ok(self.is_listing())
    }

    /// Lists everything that is pending.
    pub(crate) fn list_all_waiting(&mut self) -> StoreResult<()> {
        while self.is_listing() {
            self.list_step()?;
        }
        let newest = self.shared.ids().last() + 1;
        self.begin_listing(newest);
        while self.is_listing() {
            self.list_step()?;
        }
        Ok(())
    }

    fn is_listing(&self) -> bool {
        self.listing.listed.next > self.listing.listed.before
    }

    fn begin_listing(&mut self, next: u64) {
        let before = self.listing.listed.before;
        self.set_listed(ListedRange { before, next: next.max(before), lanes: 0 });
    }

    fn list_step(&mut self) -> StoreResult<()> {
        if !self.is_listing() {
            return Ok(());
        }
        let (entries, listed) =
            self.shared.index().recent.to_list(self.listing.at_once.div_ceil(PARTS));
        let before = self.listing.listed.before;
        self.transact_surely(|writer| {
            let mut insert = writer.conn.prepare_cached(INSERT).map_err(sql)?;
            for (lane, (due, seq)) in &entries {
                insert.execute(params![lane, due, *seq as i64]).map_err(sql)?;
            }
            drop(insert);
            match listed.before > before {
                true => set_meta(&writer.conn, "listed", listed.before as i64),
                false => Ok(()),
            }
        })?;
        self.set_listed(listed);
        Ok(())
    }

    pub(crate) fn set_listed(&mut self, listed: ListedRange) {
        self.listing.listed = listed;
        self.shared.index().recent.set_listed(listed);
    }
}

/// The next start makes the list anew, whether or not it finds the damage again.
fn mark_damaged(conn: &Connection) -> StoreResult<()> {
    set_meta(conn, "list_damaged", 1)
}

/// Lists everything that is pending when the store is opened. Fails if the list is damaged.
pub(crate) fn list_at_start(
    conn: &Connection,
    last_id: u64,
    problems: &ProblemList,
    now: Timestamp,
) -> StoreResult<()> {
    let damaged_before: Option<i64> =
        value(conn, "SELECT value FROM meta WHERE key = 'list_damaged'", [])?;
    if damaged_before.is_some() {
        return Err(damaged("the list of waiting deliveries could not be written"));
    }
    delete_at_start(conn, problems, now)?;
    let select = "SELECT value FROM meta WHERE key = 'listed'";
    let listed: i64 = value(conn, select, [])?.unwrap_or(0);
    list_from(conn, listed as u64, last_id, problems, now)
}

fn list_from(
    conn: &Connection,
    mut from: u64,
    last_id: u64,
    problems: &ProblemList,
    now: Timestamp,
) -> StoreResult<()> {
    let select = "SELECT seq, lane, due FROM delivery WHERE seq >= ?1 AND seq < ?2 ORDER BY seq \
                  LIMIT ?3";
    let end = last_id + 1;
    while from < end {
        let found = scan(conn, select, (from, end), STEP, |row| {
            let (lane, due): (u32, Option<i64>) = (get(row, 1)?, get(row, 2)?);
            Ok(due.map(|due| (lane, due, row.get::<_, i64>(0))))
        })?;
        for skipped in &found.skipped {
            let what = format!("some deliveries cannot be read ({})", skipped.error);
            problems.report_about("rows_unreadable", skipped.from, now, what);
        }
        from = found.next.unwrap_or(end);
        let mut rows = Vec::with_capacity(found.rows.len());
        for (lane, due, seq) in found.rows {
            rows.push((lane, due, seq.map_err(sql)?));
        }
        rows.sort_unstable();
        let transaction = conn.unchecked_transaction().map_err(sql)?;
        for row in rows {
            run(&transaction, INSERT, row)?;
        }
        set_meta(&transaction, "listed", from as i64)?;
        transaction.commit().map_err(sql)?;
    }
    Ok(())
}

/// Begins a new list and fills it. The damaged one is kept aside.
pub(crate) fn make_list_anew(
    conn: &Connection,
    last_id: u64,
    problems: &ProblemList,
    now: Timestamp,
    error: &StoreError,
) -> StoreResult<()> {
    tracing::error!(%error, "the list of waiting deliveries is damaged; it is made anew");
    let transaction = conn.unchecked_transaction().map_err(sql)?;
    set_aside(&transaction, "waiting", COLUMNS)?;
    set_meta(&transaction, "listed", 0)?;
    run(&transaction, "DELETE FROM meta WHERE key = 'list_damaged'", [])?;
    forget_ended(&transaction)?;
    transaction.commit().map_err(sql)?;
    list_from(conn, 0, last_id, problems, now)
}

/// As in the schema.
const COLUMNS: &str = "(lane INTEGER NOT NULL, due INTEGER NOT NULL, \
                       seq INTEGER NOT NULL, PRIMARY KEY (lane, due, seq)) WITHOUT ROWID";

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use postrider_core::model::decision::Decision;
    use postrider_core::ports::store::{AddressLearning, LeasedDelivery, Settlement};

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

    async fn accept(store: &WorkingStore, count: u32) {
        for n in 0..count {
            store.accept(vec![message("acme", n % 10)]).await.unwrap();
        }
    }

    async fn listed(store: &WorkingStore) -> i64 {
        let count = |writer: &mut Writer| {
            let rows: Option<i64> = value(&writer.conn, "SELECT count(*) FROM waiting", [])?;
            Ok(rows.unwrap_or(0) - writer.ended.len() as i64)
        };
        store.run_task(count).await.unwrap()
    }

    /// Leases and settles everything. Returns how many deliveries that were.
    async fn deliver_all(store: &WorkingStore, decision: Decision) -> usize {
        let mut done = 0;
        loop {
            let mut settlements = Vec::new();
            for lane in store.ready_lanes(100).await.unwrap() {
                let settle = |leased: LeasedDelivery| Settlement {
                    delivery: leased.delivery,
                    token: leased.token,
                    attempts: Vec::new(),
                    decision: decision.clone(),
                    learned: AddressLearning::default(),
                };
                let leased = store.lease(lane.id, 5, LEASE).await.unwrap();
                settlements.extend(leased.into_iter().map(settle));
            }
            if settlements.is_empty() {
                return done;
            }
            done += settlements.len();
            store.settle(settlements).await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_ends_soon_is_never_listed() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        for _ in 0..30 {
            accept(&store, 20).await;
            assert_eq!(deliver_all(&store, Decision::Done).await, 20);
            assert_eq!(listed(&store).await, 0);
        }
    }

    #[tokio::test]
    async fn what_waits_is_listed_many_at_a_time_and_all_of_it_is_leased() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        accept(&store, 2 * AT_ONCE as u32 - 1).await;
        assert_eq!(listed(&store).await, 0);
        accept(&store, 5 * AT_ONCE as u32 + 1).await;
        let some = listed(&store).await;
        assert!((5 * AT_ONCE as i64..7 * AT_ONCE as i64).contains(&some), "{some} are listed");
        assert_eq!(deliver_all(&store, Decision::Done).await, 7 * AT_ONCE);
        assert_eq!(listed(&store).await, 0, "nothing stays in the list");
    }

    /// The copy of a running store is what a crash leaves.
    #[tokio::test]
    async fn what_was_not_listed_before_a_crash_is_leased_after_it() {
        let (dir, crashed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = open(dir.path());
        accept(&store, 350).await;
        deliver_all(&store, Decision::Retry { after: LEASE, counted: true }).await;
        accept(&store, 20).await;
        assert!(listed(&store).await < 370);
        for file in ["postrider.db", "postrider.db-wal"] {
            std::fs::copy(dir.path().join(file), crashed.path().join(file)).unwrap();
        }
        let store = open(crashed.path());
        assert_eq!(listed(&store).await, 370);
        assert_eq!(deliver_all(&store, Decision::Done).await, 20, "those that are due");
        assert_eq!(listed(&store).await, 350);
    }
}
