//! What the store's callers and its writer share: the index, ids, the log of deliveries in flight, and
//! connections for reading.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::model::id::from_order_key;
use postrider_core::ports::store::{DocumentVersion, StoreError, StoreHealth, StoreResult};
use postrider_core::{Clock, ClockDoubt, DeliveryId, Timestamp};
use rusqlite::Connection;

use super::backup::last_backup;
use super::disk_space::DiskSpace;
use super::failure::StoreFailure;
use super::folder::journal_of;
use super::in_flight::InFlightLog;
use super::index::{AfterSettle, MemoryIndex, UnreadLease};
use super::order_tail::OrderTail;
use super::problems::ProblemList;
use super::sql::refill::ReadingAhead;
use super::sql::scan::SkippedKeys;
use super::sql::schema::open_reader;
use crate::documents::DocumentSignal;
use crate::ids::IdGenerator;
use crate::work_signal::WorkSignal;

pub(crate) struct StoreShared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) work: WorkSignal,
    pub(crate) documents: DocumentSignal,
    pub(crate) in_flight: InFlightLog,
    pub(crate) problems: ProblemList,
    pub(crate) failure: StoreFailure,
    pub(crate) ahead: ReadingAhead,
    index: Mutex<MemoryIndex>,
    ids: Mutex<IdGenerator>,
    order_tail: Mutex<OrderTail>,
    readers: Mutex<Vec<Connection>>,
    database: PathBuf,
    disk: DiskSpace,
}

/// A delivery that cannot be read is left alone for so long.
const UNREAD_PAUSE: Duration = Duration::from_secs(60);
/// The pause after a failed check for expired deliveries.
const EXPIRY_PAUSE_MS: i64 = 10_000;
/// What helps against damage.
pub(crate) const REPAIR: &str = "stop the server and run `postrider fsck --repair`";
const CLOCK_STEPPED: &str = "clock_stepped";
const DELIVERIES_HELD: &str = "deliveries_held";
const READERS_KEPT: usize = 4;
const READER_CACHE_KIB: u32 = 4096;

impl StoreShared {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        index: MemoryIndex,
        ids: IdGenerator,
        in_flight: InFlightLog,
        problems: ProblemList,
        (database, newest_document): (PathBuf, DocumentVersion),
        disk: DiskSpace,
    ) -> Self {
        Self {
            work: WorkSignal::new(clock.clone()),
            documents: DocumentSignal::new(newest_document),
            clock,
            in_flight,
            problems,
            failure: StoreFailure::default(),
            ahead: ReadingAhead::default(),
            index: Mutex::new(index),
            ids: Mutex::new(ids),
            order_tail: Mutex::default(),
            readers: Mutex::default(),
            database,
            disk,
        }
    }

    /// An error if the store cannot go on.
    pub(crate) fn check_alive(&self) -> StoreResult<()> {
        if self.failure.is_failed() { Err(StoreError::Closed) } else { Ok(()) }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What is over by this time is over, also if the system's clock is in doubt.
    pub(crate) fn earliest(&self) -> Timestamp {
        self.clock.bounds().earliest
    }

    pub(crate) fn index(&self) -> MutexGuard<'_, MemoryIndex> {
        self.index.lock().unwrap_or_else(|poisoned| {
            self.failure.fail("a thread panicked while it changed the index in memory".to_owned());
            poisoned.into_inner()
        })
    }

    pub(crate) fn ids(&self) -> MutexGuard<'_, IdGenerator> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn order_tail(&self) -> MutexGuard<'_, OrderTail> {
        self.order_tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads on a thread for blocking work, with a connection of its own.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection, &Self) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let shared = self.clone();
        let task = tokio::task::spawn_blocking(move || shared.read_here(read));
        task.await.map_err(|error| StoreError::io("a read did not finish", error))?
    }

    /// Reads on the caller's thread; for a few rows only.
    pub(crate) fn read_here<T>(
        &self,
        read: impl FnOnce(&Connection, &Self) -> StoreResult<T>,
    ) -> StoreResult<T> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = match idle {
            Some(conn) => conn,
            None => open_reader(&self.database, READER_CACHE_KIB)?,
        };
        let result = read(&conn, self);
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < READERS_KEPT {
            readers.push(conn);
        }
        result
    }

    /// Ends the lease of a delivery that cannot be read: for good if it is in the dead letters now, else for a
    /// while. Nothing was sent, so it may be read again.
    pub(crate) fn end_unread(&self, lease: UnreadLease, error: &StoreError, buried: bool) {
        let now = self.now();
        if buried {
            return self.index().settled(lease.seq, AfterSettle::Final, now.0);
        }
        self.index().give_back_unread(lease, Some((now + UNREAD_PAUSE).0));
        self.report_quarantined(lease.seq, error);
    }

    pub(crate) fn report_quarantined(&self, seq: u64, error: &StoreError) {
        let count = self.index().quarantined();
        let at = DeliveryId(from_order_key(seq, 0)).created_at();
        let what = format!(
            "{count} deliveries cannot be read or settled and are set aside, the last one accepted at {at} \
             ({error}); all others go on; {REPAIR}"
        );
        self.problems.report("deliveries_quarantined", self.now(), what);
    }

    /// Expiries cannot be read: the next check is later.
    pub(crate) fn expiry_failed(&self, error: &StoreError) {
        let now = self.now();
        self.index().expiry.pause(now.0 + EXPIRY_PAUSE_MS);
        let what = format!(
            "the list of expiries cannot be read ({error}), so some deliveries may not expire; {REPAIR}"
        );
        self.problems.report("expiry_unreadable", now, what);
    }

    /// Reports rows that were left out because they cannot be read.
    pub(crate) fn report_skipped(&self, table: &str, skipped: &[SkippedKeys]) {
        for SkippedKeys { from, to, error } in skipped {
            let at = |seq: u64| DeliveryId(from_order_key(seq, 0)).created_at();
            let which = match table {
                "delivery" => format!("deliveries accepted from {} to {}", at(*from), at(*to)),
                _ => format!("rows {from} to {to} of the table {table}"),
            };
            let what = format!("{which} cannot be read ({error}); all others go on; {REPAIR}");
            self.problems.report_about("rows_unreadable", *from, self.now(), what);
        }
    }

    pub(crate) fn check_health(&self) -> StoreHealth {
        match self.clock.doubt() {
            Some(doubt) => {
                self.problems.report(CLOCK_STEPPED, self.now(), clock_trouble(doubt));
            }
            None => self.problems.resolve(CLOCK_STEPPED),
        }
        let held = self.index().tenants.held();
        match held {
            0 => self.problems.resolve(DELIVERIES_HELD),
            held => self.problems.report(DELIVERIES_HELD, self.now(), held_after_restore(held)),
        }
        self.disk.check(&self.problems, self.now());
        let journal = journal_of(&self.database).metadata();
        StoreHealth {
            engine: None,
            journal_bytes: journal.map_or(0, |meta| meta.len()),
            quarantined: self.index().quarantined() as u64,
            problems: self.problems.all(),
            backup_at: last_backup(&self.database),
        }
    }

    pub(crate) fn close_readers(&self) {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn held_after_restore(held: u64) -> String {
    format!(
        "{held} deliveries are held since the store was restored from a backup, because they may have been sent \
         since; `postrider deliveries release --all --tenant '*'` lets them go on"
    )
}

fn clock_trouble(doubt: ClockDoubt) -> String {
    match doubt {
        ClockDoubt::Differs(offset) => {
            let (by, way) = (span(offset), if offset > 0 { "ahead of" } else { "behind" });
            format!(
                "the system's clock is {by} {way} the server's time, which goes on as before; nothing expires, is \
                 deleted or is forgotten before both say so; set the clock right, or restart the server if it is \
                 right"
            )
        }
        ClockDoubt::AfterGap(gap) => format!(
            "the server was last used {} ago by the system's clock: nothing expires, is deleted or is forgotten \
             until the clock has gone on for ten minutes; set it if it is wrong",
            span(gap)
        ),
    }
}

/// A time span in its largest unit.
fn span(ms: i64) -> String {
    let seconds = ms.unsigned_abs() / 1000;
    let units = [(86_400, "days"), (3_600, "hours"), (60, "minutes")];
    let unit = units.into_iter().find(|(length, _)| seconds >= 2 * length);
    unit.map_or_else(
        || format!("{seconds} seconds"),
        |(length, name)| format!("{} {name}", seconds / length),
    )
}
