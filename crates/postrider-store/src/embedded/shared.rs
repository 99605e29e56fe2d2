//! What the store's callers and its writer share: the index, ids, the log of deliveries in flight, and
//! connections for reading.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::ports::store::{StoreError, StoreHealth, StoreResult};
use postrider_core::{Clock, Timestamp};
use rusqlite::Connection;

use super::folder::journal_of;
use super::in_flight::InFlightLog;
use super::index::{AfterSettle, MemoryIndex, UnreadLease};
use super::problems::ProblemList;
use super::sql::schema::open_reader;
use crate::ids::IdGenerator;
use crate::work_signal::WorkSignal;

pub(crate) struct StoreShared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) work: WorkSignal,
    pub(crate) in_flight: InFlightLog,
    pub(crate) problems: ProblemList,
    index: Mutex<MemoryIndex>,
    ids: Mutex<IdGenerator>,
    readers: Mutex<Vec<Connection>>,
    database: PathBuf,
}

/// A damaged delivery that cannot be moved to the dead letters is left alone for so long.
const DAMAGED_PAUSE: Duration = Duration::from_secs(3600);
const READERS_KEPT: usize = 4;
const READER_CACHE_KIB: u32 = 4096;

impl StoreShared {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        index: MemoryIndex,
        ids: IdGenerator,
        in_flight: InFlightLog,
        database: PathBuf,
    ) -> Self {
        Self {
            work: WorkSignal::new(clock.clone()),
            clock,
            in_flight,
            problems: ProblemList::default(),
            index: Mutex::new(index),
            ids: Mutex::new(ids),
            readers: Mutex::default(),
            database,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn index(&self) -> MutexGuard<'_, MemoryIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ids(&self) -> MutexGuard<'_, IdGenerator> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Ends the lease of a damaged delivery, after the try to move it to the dead letters.
    pub(crate) fn end_damaged(&self, lease: UnreadLease, buried: StoreResult<()>) {
        let (now, mut index) = (self.now(), self.index());
        match buried {
            Ok(()) => index.settled(lease.seq, AfterSettle::Final, now.0),
            Err(error) => {
                tracing::error!(seq = lease.seq, %error, "a damaged delivery cannot be moved to the dead letters; it is left alone");
                index.give_back_unread(lease, Some((now + DAMAGED_PAUSE).0));
            }
        }
    }

    pub(crate) fn health(&self) -> StoreHealth {
        let journal = journal_of(&self.database).metadata();
        StoreHealth {
            journal_bytes: journal.map_or(0, |meta| meta.len()),
            quarantined: 0,
            problems: self.problems.all(),
        }
    }

    pub(crate) fn close_readers(&self) {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
