//! Checkpoints: moves the journal into the database, on a thread of its own. A passive checkpoint never
//! blocks a commit, but never quite catches up with the commits either. So the writer moves the last few
//! pages itself, and the journal starts over and stays bounded.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use postrider_core::ports::store::{StoreError, StoreResult};
use rusqlite::Connection;

use crate::embedded::sql::schema::open_checkpointer;

/// Rows written between checkpoints: some tens of megabytes of journal.
const ROWS_BETWEEN: u64 = 20_000;
/// After so long without writes, the journal is cut to nothing.
const IDLE: Duration = Duration::from_secs(5);

/// The writer's side. Dropping it ends the thread.
pub(crate) struct Checkpointer {
    rows: u64,
    journal: PathBuf,
    /// Beyond this size the writer makes a checkpoint itself, whoever waits.
    journal_max: Option<u64>,
    ask: Sender<()>,
    flags: Arc<CheckpointFlags>,
}

#[derive(Default)]
struct CheckpointFlags {
    /// Something was written since the journal was last cut.
    dirty: AtomicBool,
    /// Most of the journal is moved; the writer moves the rest.
    nearly_done: AtomicBool,
}

impl Checkpointer {
    pub(crate) fn start(
        database: &Path,
        journal_max: Option<u64>,
    ) -> StoreResult<(Self, JoinHandle<()>)> {
        let conn = open_checkpointer(database)?;
        let (ask, asked) = channel();
        let flags = Arc::new(CheckpointFlags::default());
        let theirs = flags.clone();
        let thread = thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || work(&conn, &asked, &theirs))
            .map_err(|error| StoreError::io("cannot start the checkpoint thread", error))?;
        let mut journal = database.as_os_str().to_owned();
        journal.push("-wal");
        Ok((Self { rows: 0, journal: journal.into(), journal_max, ask, flags }, thread))
    }

    pub(crate) fn add(&mut self, rows: u64) {
        self.rows += rows;
        self.flags.dirty.store(true, Ordering::Relaxed);
    }

    /// Asks for a checkpoint when much was written, and completes one that is nearly done.
    pub(crate) fn checkpoint_if_needed(&mut self, conn: &Connection) {
        if self.flags.nearly_done.swap(false, Ordering::Relaxed) || self.is_too_long() {
            run(conn, "PRAGMA wal_checkpoint(PASSIVE)");
        }
        if self.rows >= ROWS_BETWEEN {
            self.rows = 0;
            // Without the thread the journal grows until the next start.
            let _ = self.ask.send(());
        }
    }

    /// Judges by the size of the file, which is cut when the journal starts over.
    fn is_too_long(&self) -> bool {
        let Some(max) = self.journal_max else { return false };
        self.journal.metadata().is_ok_and(|meta| meta.len() > max)
    }
}

fn work(conn: &Connection, asked: &Receiver<()>, flags: &CheckpointFlags) {
    loop {
        match asked.recv_timeout(IDLE) {
            Ok(()) => {
                while asked.try_recv().is_ok() {}
                run(conn, "PRAGMA wal_checkpoint(PASSIVE)");
                flags.nearly_done.store(true, Ordering::Relaxed);
            }
            Err(RecvTimeoutError::Timeout) if flags.dirty.swap(false, Ordering::Relaxed) => {
                // The passive checkpoint moves most of it without blocking anyone.
                run(conn, "PRAGMA wal_checkpoint(PASSIVE)");
                run(conn, "PRAGMA wal_checkpoint(TRUNCATE)");
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn run(conn: &Connection, pragma: &str) {
    let done = conn.query_row(pragma, [], |row| row.get::<_, i64>(0));
    if let Err(error) = done {
        tracing::warn!(%error, "the journal could not be checkpointed; will try again");
    }
}
