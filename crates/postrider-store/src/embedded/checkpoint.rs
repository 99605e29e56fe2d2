//! Folds the journal into the database, off the thread that commits. A passive checkpoint never
//! blocks a commit, but never quite catches up with one either: the last few pages are folded in
//! by the writer itself, so that the journal starts over and stays bounded.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use postrider_core::ports::store::{StoreError, StoreResult};
use rusqlite::Connection;

use super::schema::open_checkpointer;

/// Rows written between checkpoints: some tens of megabytes of journal.
const ROWS_BETWEEN: u64 = 20_000;
/// With nothing to do for so long, the journal is cut to nothing.
const IDLE: Duration = Duration::from_secs(5);

/// The writer's end. Dropping it ends the checkpoints.
pub(super) struct Pressure {
    rows: u64,
    journal: PathBuf,
    /// Beyond it the writer folds the journal in itself, whoever waits.
    journal_max: Option<u64>,
    ask: Sender<()>,
    flags: Arc<Flags>,
}

#[derive(Default)]
struct Flags {
    /// Something was written since the journal was last cut.
    dirty: AtomicBool,
    /// The bulk is folded in; the rest is for the writer.
    nearly_done: AtomicBool,
}

impl Pressure {
    pub(super) fn start(
        database: &Path,
        journal_max: Option<u64>,
    ) -> StoreResult<(Self, JoinHandle<()>)> {
        let conn = open_checkpointer(database)?;
        let (ask, asked) = channel();
        let flags = Arc::new(Flags::default());
        let theirs = flags.clone();
        let thread = thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || work(&conn, &asked, &theirs))
            .map_err(|error| StoreError::Io(error.to_string()))?;
        let mut journal = database.as_os_str().to_owned();
        journal.push("-wal");
        Ok((Self { rows: 0, journal: journal.into(), journal_max, ask, flags }, thread))
    }

    pub(super) fn add(&mut self, rows: u64) {
        self.rows += rows;
        self.flags.dirty.store(true, Ordering::Relaxed);
    }

    /// Asks for a checkpoint when much was written, and completes one that is nearly done.
    pub(super) fn relieve(&mut self, conn: &Connection) {
        if self.flags.nearly_done.swap(false, Ordering::Relaxed) || self.is_too_long() {
            run(conn, "PRAGMA wal_checkpoint(PASSIVE)");
        }
        if self.rows >= ROWS_BETWEEN {
            self.rows = 0;
            // Without its thread the journal only grows; the next start folds it in.
            let _ = self.ask.send(());
        }
    }

    /// By the size of the file, which is cut when the journal starts over.
    fn is_too_long(&self) -> bool {
        let Some(max) = self.journal_max else { return false };
        self.journal.metadata().is_ok_and(|meta| meta.len() > max)
    }
}

fn work(conn: &Connection, asked: &Receiver<()>, flags: &Flags) {
    loop {
        match asked.recv_timeout(IDLE) {
            Ok(()) => {
                while asked.try_recv().is_ok() {}
                run(conn, "PRAGMA wal_checkpoint(PASSIVE)");
                flags.nearly_done.store(true, Ordering::Relaxed);
            }
            Err(RecvTimeoutError::Timeout) if flags.dirty.swap(false, Ordering::Relaxed) => {
                // Most of it without keeping anyone waiting; only then the cut.
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
        tracing::warn!(%error, "the journal could not be folded in; will try again");
    }
}
