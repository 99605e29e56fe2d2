//! What the store's callers and its writer share.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::ports::store::{StoreError, StoreResult};
use postrider_core::{Clock, Timestamp};
use rusqlite::Connection;

use super::board::Board;
use super::flight::Flight;
use super::schema::open_reader;
use crate::ids::Ids;
use crate::wake::Wake;

pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) wake: Wake,
    pub(super) flight: Flight,
    board: Mutex<Board>,
    ids: Mutex<Ids>,
    readers: Mutex<Vec<Connection>>,
    database: PathBuf,
}

const READERS_KEPT: usize = 4;
const READER_CACHE_KIB: u32 = 4096;

impl Shared {
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        board: Board,
        ids: Ids,
        flight: Flight,
        database: PathBuf,
    ) -> Self {
        Self {
            wake: Wake::new(clock.clone()),
            clock,
            flight,
            board: Mutex::new(board),
            ids: Mutex::new(ids),
            readers: Mutex::default(),
            database,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ids(&self) -> MutexGuard<'_, Ids> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads on a connection of its own, off the threads that serve.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Connection, &Self) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let shared = self.clone();
        let task = tokio::task::spawn_blocking(move || shared.read_here(read));
        task.await.map_err(|error| StoreError::Io(error.to_string()))?
    }

    /// On the caller's thread: for a few rows only.
    pub(super) fn read_here<T>(
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

    pub(super) fn close_readers(&self) {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
