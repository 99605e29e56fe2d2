//! The counts of tenants on disk. A transaction writes the changes of all its tenants as one row of the table
//! `count_change`. From time to time, the sums go to the table `tenant`, a few tenants at a time.

use std::collections::BTreeSet;

use super::prelude::*;
use super::scan::scan;
use super::set_aside::set_aside;
use crate::embedded::index::MemoryIndex;
use crate::embedded::index::counts::{CountChange, TenantTotals};
use crate::embedded::problems::ProblemList;

/// Rows of changes that are worth adding up.
const ROWS_MAX: u64 = 1_024;
/// Changes of single tenants in these rows that are worth adding up.
const CHANGES_MAX: u64 = 16_384;
/// Tenants whose sums one transaction writes.
const TENANTS_AT_ONCE: usize = 256;
/// Rows of changes that one transaction deletes, or one read returns.
const ROWS_AT_ONCE: usize = 1_024;

/// What is in the table of changes.
#[derive(Debug, Default)]
pub(crate) struct CountJournal {
    /// The last row that was written.
    last: u64,
    rows: u64,
    changes: u64,
    /// Tenants whose stored sums lack changes.
    behind: BTreeSet<u32>,
    /// Being added up: up to this row, tenants from this one on are still behind.
    adding: Option<(u64, u32)>,
}

impl CountJournal {
    /// Adds the changes to the counts that the index has from the table `tenant`.
    pub(crate) fn load(
        conn: &Connection,
        index: &mut MemoryIndex,
        problems: &ProblemList,
        now: Timestamp,
    ) -> StoreResult<Self> {
        let counted =
            all_rows(conn, "SELECT counted FROM tenant ORDER BY id", [], |row| unsigned(row, 0))?;
        let mut journal =
            Self { last: counted.iter().copied().max().unwrap_or(0), ..Self::default() };
        let select =
            "SELECT id, changes FROM count_change WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3";
        let (mut from, mut is_damaged) = (Some(0), false);
        while let Some(first) = from {
            let found = scan(conn, select, (first, i64::MAX as u64), ROWS_AT_ONCE, |row| {
                let changes: Vec<(u32, CountChange)> =
                    parse(&get::<String>(row, 1)?, "a change of counts")?;
                Ok(Some((unsigned(row, 0)?, changes)))
            })?;
            for skipped in &found.skipped {
                let what = format!("some counts of deliveries are wrong ({})", skipped.error);
                problems.report("counts_unreadable", now, what);
                is_damaged = true;
            }
            for (id, changes) in found.rows {
                journal.note(id, changes.iter().map(|(tenant, _)| *tenant));
                for (tenant, change) in changes {
                    let is_new = counted.get(tenant as usize).is_some_and(|counted| id > *counted);
                    let old = index.tenants.get(tenant).map(|known| known.totals.clone());
                    if let (true, Some(old)) = (is_new, old) {
                        index.tenants.set(tenant as usize, old.plus(&change));
                    }
                }
            }
            from = found.next;
        }
        if is_damaged {
            journal.begin_anew(conn, index)?;
        }
        Ok(journal)
    }

    /// Every transaction adds a row behind the last one, which may be on a page that cannot be read. So what was read
    /// goes to the tenants, and the changes begin with an empty table.
    fn begin_anew(&mut self, conn: &Connection, index: &MemoryIndex) -> StoreResult<()> {
        let transaction = conn.unchecked_transaction().map_err(sql)?;
        for tenant in std::mem::take(&mut self.behind) {
            if let Some(known) = index.tenants.get(tenant) {
                save_sum(&transaction, tenant, &known.totals, self.last)?;
            }
        }
        set_aside(&transaction, "count_change", "(id INTEGER PRIMARY KEY, changes TEXT NOT NULL)")?;
        transaction.commit().map_err(sql)?;
        (self.rows, self.changes) = (0, 0);
        Ok(())
    }

    pub(crate) fn next(&self) -> u64 {
        self.last + 1
    }

    /// A row was committed.
    pub(crate) fn note(&mut self, id: u64, tenants: impl Iterator<Item = u32>) {
        self.last = self.last.max(id);
        self.rows += 1;
        for tenant in tenants {
            self.changes += 1;
            self.behind.insert(tenant);
        }
    }
}

impl Writer {
    /// Writes the changes of all counts as one row. Returns the new sums.
    pub(crate) fn write_counts(&self) -> StoreResult<Vec<(u32, TenantTotals)>> {
        if self.effects.counts.is_empty() {
            self.check_owner()?;
            return Ok(Vec::new());
        }
        // With the check of the owner, which would cost more as a statement of its own.
        let insert = "INSERT INTO count_change (id, changes) SELECT ?1, ?2 \
                      WHERE (SELECT value FROM meta WHERE key = 'epoch') = ?3";
        let changes: Vec<_> = self.effects.counts.iter().collect();
        let row = (self.counts.next() as i64, to_json(&changes)?, self.run as i64);
        if run(&self.conn, insert, row)? == 0 {
            self.check_owner()?;
        }
        let index = self.shared.index();
        let known = |tenant: u32| index.tenants.get(tenant);
        let sum = |(&tenant, change): (&u32, _)| {
            let old = known(tenant).map_or_else(TenantTotals::default, |t| t.totals.clone());
            (tenant, old.plus(change))
        };
        Ok(self.effects.counts.iter().map(sum).collect())
    }

    /// Adds up some changes if there are many. True if there is more to do.
    pub(crate) fn add_up_counts(&mut self) -> StoreResult<bool> {
        let journal = &mut self.counts;
        let (upto, from) = match journal.adding {
            Some(adding) => adding,
            None if journal.rows >= ROWS_MAX || journal.changes >= CHANGES_MAX => {
                journal.changes = 0;
                (journal.last, 0)
            }
            None => return Ok(false),
        };
        let some: Vec<u32> = journal.behind.range(from..).take(TENANTS_AT_ONCE).copied().collect();
        if let Some(last) = some.last() {
            let next = last.saturating_add(1);
            self.transact(|writer| writer.save_sums(&some))?;
            for tenant in &some {
                self.counts.behind.remove(tenant);
            }
            self.counts.adding = Some((upto, next));
            return Ok(true);
        }
        let delete = "DELETE FROM count_change WHERE id IN \
                      (SELECT id FROM count_change WHERE id <= ?1 ORDER BY id LIMIT ?2)";
        let deleted = self.transact(|writer| {
            run(&writer.conn, delete, params![upto as i64, ROWS_AT_ONCE as i64])
        })?;
        if deleted < ROWS_AT_ONCE {
            self.counts.adding = None;
            self.counts.rows = self.counts.last - upto;
            return Ok(false);
        }
        self.counts.adding = Some((upto, from));
        Ok(true)
    }

    fn save_sums(&mut self, tenants: &[u32]) -> StoreResult<()> {
        let sums: Vec<(u32, TenantTotals)> = {
            let index = self.shared.index();
            let sum = |tenant: &u32| Some((*tenant, index.tenants.get(*tenant)?.totals.clone()));
            tenants.iter().filter_map(sum).collect()
        };
        for (tenant, totals) in &sums {
            save_sum(&self.conn, *tenant, totals, self.counts.last)?;
        }
        Ok(())
    }
}

/// The sum of a tenant up to this row of changes.
fn save_sum(conn: &Connection, tenant: u32, totals: &TenantTotals, upto: u64) -> StoreResult<()> {
    let update = "UPDATE tenant SET counts = ?2, counted = ?3 WHERE id = ?1";
    run(conn, update, params![tenant, to_json(totals)?, upto as i64]).map(drop)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use postrider_core::ports::store::Ledger;

    use super::*;
    use crate::conformance::WorkingStore;
    use crate::conformance::message;
    use crate::embedded::StoreOptions;
    use crate::{ManualClock, SystemClock};

    fn open(dir: &Path) -> WorkingStore {
        WorkingStore::open(dir, Arc::new(SystemClock), StoreOptions::default()).unwrap()
    }

    async fn rows_changed(store: &WorkingStore, tenants: usize) -> i64 {
        let total = |writer: &mut Writer| value(&writer.conn, "SELECT total_changes()", []);
        let before: i64 = store.run_task(total).await.unwrap().unwrap();
        let new = (0..100).map(|n| message(&format!("tenant-{}", n % tenants), 1)).collect();
        store.accept(new).await.unwrap();
        store.run_task(total).await.unwrap().unwrap() - before
    }

    #[tokio::test]
    async fn a_transaction_writes_the_counts_of_all_its_tenants_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
        let store = WorkingStore::open(dir.path(), clock, StoreOptions::default()).unwrap();
        rows_changed(&store, 100).await;
        assert_eq!(rows_changed(&store, 100).await, rows_changed(&store, 1).await);
    }

    #[tokio::test]
    async fn the_changes_of_counts_are_bounded_and_survive_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let (tenants, rounds) = (300, 2 * CHANGES_MAX / 300 + 3);
        {
            let store = open(dir.path());
            for _ in 0..rounds {
                let new = (0..tenants).map(|n| message(&format!("tenant-{n}"), 1)).collect();
                store.accept(new).await.unwrap();
            }
            let most = CHANGES_MAX / 300 + ROWS_AT_ONCE as u64;
            let rows = |writer: &mut Writer| {
                value::<i64>(&writer.conn, "SELECT count(*) FROM count_change", [])
            };
            let rows = store.run_task(rows).await.unwrap().unwrap();
            assert!((rows as u64) < most, "{rows} rows");
        }
        for _ in 0..2 {
            let store = open(dir.path());
            let all = store.counts(None).await.unwrap();
            assert_eq!(all.messages, tenants * rounds);
            let one = store.counts(Some(&TenantId::new("tenant-7"))).await.unwrap();
            assert_eq!((one.messages, one.states.get(&State::Queued)), (rounds, Some(&rounds)));
        }
    }
}
