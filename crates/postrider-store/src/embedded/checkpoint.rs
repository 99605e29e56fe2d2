//! Checkpoints: moves the journal into the database, on a thread of its own. Never waits for a reader and
//! never holds the write lock for long: a journal that a foreign reader needs grows, and is reported.
//!
//! The thread moves a part of the journal at a time, and syncs the database after each: a commit that comes meanwhile
//! waits for the disk as long as the part is large. SQLite itself leaves out that sync if there was a commit during the
//! part; the pages of many parts would then wait for one sync, which is the writer's. A passive checkpoint never blocks
//! a commit, but never quite catches up with the commits either. So, once the journal is long, the writer moves the
//! last few pages itself, and the journal starts over and stays bounded.

use std::ffi::c_int;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use postrider_core::ports::store::{StoreError, StoreResult};
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::failure::run_or_fail;
use super::folder::{journal_of, shared_memory_of};
use super::journal_holders::journal_holders;
use super::shared::StoreShared;
use super::sql::schema::open_checkpointer;
use super::sql::statement::sql;

/// Pages of the journal that are moved as one part: 1 MiB.
const PAGES_BETWEEN: i64 = 250;
/// A journal of so many pages starts over.
const FRAMES_MAX: i64 = 4_000;
/// After this time without writes, or twice as long, the journal is cut to nothing.
const IDLE: Duration = Duration::from_secs(3);
/// The pause between two tries while a reader needs the journal: short at first, because most readers end at once and
/// the journal grows meanwhile, then twice as long each time.
const BLOCKED_PAUSE: Duration = Duration::from_millis(10);
const BLOCKED_PAUSE_MAX: Duration = Duration::from_secs(1);
/// So many pages are left to the writer, for which commits wait. With more, the thread goes over the journal once more.
const FRAMES_LEFT_MAX: i64 = 250;
/// More passes would let the journal grow beyond its bound, and cutting it takes long.
const PASSES_MAX: usize = 3;
/// The size of a journal without a bound that is worth a report.
const LONG_JOURNAL: u64 = 96 << 20;
const BLOCKED: &str = "journal_blocked";

/// The writer's side. Dropping it ends the thread.
pub(crate) struct Checkpointer {
    /// The length of the journal when a part was last asked for.
    asked_pages: i64,
    journal: PathBuf,
    /// Beyond this size the writer makes a checkpoint itself, unless a reader needs the journal.
    journal_max: Option<u64>,
    /// Beyond this size no new work is taken while a reader needs the journal.
    blocked_max: u64,
    /// A reader lets the journal grow beyond that.
    is_over: bool,
    ask: Sender<()>,
    asked_at: Option<Instant>,
    pause: Duration,
    flags: Arc<CheckpointFlags>,
}

#[derive(Default)]
struct CheckpointFlags {
    /// The length of the journal after the writer's last commit, in pages.
    pages: AtomicI64,
    /// Something was written since the thread last looked for a quiet time.
    written: AtomicBool,
    /// Most of the journal is moved; the writer moves the rest.
    nearly_done: AtomicBool,
    /// A reader needs the journal, so it cannot be moved as a whole.
    blocked: AtomicBool,
}

/// How far a checkpoint got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CheckpointProgress {
    frames: i64,
    moved: i64,
}

impl CheckpointProgress {
    fn is_complete(self) -> bool {
        self.moved >= self.frames
    }
}

impl Checkpointer {
    pub(crate) fn start(
        (database, file): (&Path, Arc<File>),
        writer: &mut Connection,
        journal_max: Option<u64>,
        blocked_max: u64,
        shared: Arc<StoreShared>,
    ) -> StoreResult<(Self, JoinHandle<()>)> {
        let (ask, asked) = channel();
        let flags = Arc::new(CheckpointFlags::default());
        flags.watch(writer)?;
        let journal = journal_of(database);
        let thread = CheckpointThread {
            conn: open_checkpointer(database)?,
            flags: flags.clone(),
            shared,
            journal: journal.clone(),
            shared_memory: shared_memory_of(database),
            long_journal: journal_max.map_or(LONG_JOURNAL, |max| max / 2 * 3),
            frames: 0,
            is_uncut: false,
            file,
        };
        let thread = thread::Builder::new()
            .name("store-checkpoint".into())
            .spawn(move || {
                let failure = thread.shared.failure.clone();
                run_or_fail(&failure, "the checkpoint thread", || thread.run(&asked));
            })
            .map_err(|error| StoreError::io("cannot start the checkpoint thread", error))?;
        let own = Self {
            asked_pages: 0,
            journal,
            journal_max,
            blocked_max,
            is_over: false,
            ask,
            asked_at: None,
            pause: BLOCKED_PAUSE,
            flags,
        };
        Ok((own, thread))
    }

    /// The answer to new work while a reader keeps a journal that is too long. What was accepted is still finished.
    pub(crate) fn refusal(&self) -> Option<StoreError> {
        self.is_over.then(|| StoreError::Full {
            what: format!(
                "another program holds a read transaction on the database, so the journal has grown beyond {} MiB; \
                 end that program, new work is then taken again by itself",
                self.blocked_max >> 20
            ),
            cause: None,
        })
    }

    /// Asks for a checkpoint when much was written, and completes one that is nearly done.
    pub(crate) fn checkpoint_if_needed(&mut self, conn: &Connection) {
        let too_long = self.is_too_long();
        let is_blocked = self.flags.blocked.load(Ordering::Relaxed);
        self.is_over = is_blocked && self.is_longer_than(self.blocked_max);
        if is_blocked {
            let waited = self.asked_at.is_none_or(|at| at.elapsed() >= self.pause);
            if waited && (too_long || self.is_over || self.has_part()) {
                self.pause = (self.pause * 2).min(BLOCKED_PAUSE_MAX);
                self.ask();
            }
            return;
        }
        self.pause = BLOCKED_PAUSE;
        if self.flags.nearly_done.swap(false, Ordering::Relaxed) || too_long {
            let progress = checkpoint(conn, "PASSIVE");
            let blocked = progress.is_some_and(|progress| !progress.is_complete());
            self.flags.blocked.store(blocked, Ordering::Relaxed);
        }
        if self.has_part() {
            self.ask();
        }
    }

    /// Whether enough was written since a part was last asked for.
    fn has_part(&self) -> bool {
        let pages = self.flags.pages.load(Ordering::Relaxed);
        // A shorter one than before has started over.
        let before = if pages < self.asked_pages { 0 } else { self.asked_pages };
        pages - before >= PAGES_BETWEEN
    }

    fn ask(&mut self) {
        self.asked_pages = self.flags.pages.load(Ordering::Relaxed);
        self.asked_at = Some(Instant::now());
        // Without the thread the journal grows until the next start.
        let _ = self.ask.send(());
    }

    fn is_too_long(&self) -> bool {
        self.journal_max.is_some_and(|max| self.is_longer_than(max))
    }

    /// Judges by the size of the file, which is cut when the journal starts over.
    fn is_longer_than(&self, max: u64) -> bool {
        self.journal.metadata().is_ok_and(|meta| meta.len() > max)
    }
}

impl CheckpointFlags {
    /// Notes the length of the journal at every commit.
    fn watch(self: &Arc<Self>, writer: &mut Connection) -> StoreResult<()> {
        let flags = self.clone();
        let committed = move |_: &mut Wal, pages: c_int| {
            flags.pages.store(pages.into(), Ordering::Relaxed);
            flags.written.store(true, Ordering::Relaxed);
            Ok(())
        };
        writer.wal_hook(Some(committed)).map_err(sql)
    }
}

struct CheckpointThread {
    conn: Connection,
    flags: Arc<CheckpointFlags>,
    shared: Arc<StoreShared>,
    journal: PathBuf,
    shared_memory: PathBuf,
    /// A blocked journal beyond this size is reported.
    long_journal: u64,
    /// The length of the journal at the last pass.
    frames: i64,
    /// Something was written since the journal was last cut.
    is_uncut: bool,
    /// The database, for its sync. Dropped after the connection, as `DataFolder` says.
    file: Arc<File>,
}

impl CheckpointThread {
    fn run(mut self, asked: &Receiver<()>) {
        loop {
            match asked.recv_timeout(IDLE) {
                Ok(()) => {
                    while asked.try_recv().is_ok() {}
                    let complete = self.move_some();
                    let is_long = self.frames >= FRAMES_MAX;
                    let nearly_done = is_long && complete && self.move_most();
                    self.flags.nearly_done.store(nearly_done, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => {
                    // On a slow disk, a part can take long although somebody writes all the time.
                    let is_idle = !self.flags.written.swap(false, Ordering::Relaxed);
                    if is_idle && self.is_uncut {
                        self.is_uncut = !(self.move_some() && self.cut());
                    }
                    self.is_uncut |= !is_idle;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.report();
        }
    }

    /// Moves what readers allow, without blocking anyone. True if nothing is left of what was there at its beginning.
    fn move_some(&mut self) -> bool {
        let progress = checkpoint(&self.conn, "PASSIVE");
        let complete = progress.is_some_and(CheckpointProgress::is_complete);
        self.frames = progress.map_or(self.frames, |progress| progress.frames);
        self.flags.blocked.store(!complete, Ordering::Relaxed);
        if progress.is_some() {
            self.sync();
        }
        complete
    }

    /// Brings to the disk what was moved, unless SQLite did: it does after a pass without a commit meanwhile.
    fn sync(&self) {
        if self.flags.pages.load(Ordering::Relaxed) == self.frames {
            return;
        }
        if let Err(error) = self.file.sync_data() {
            self.shared.failure.fail_sync(&error);
        }
    }

    /// Moves what is written meanwhile, too, until only a little is left.
    fn move_most(&mut self) -> bool {
        for _ in 0..PASSES_MAX {
            let before = self.frames;
            if !self.move_some() {
                return false;
            }
            if self.frames.saturating_sub(before) <= FRAMES_LEFT_MAX {
                break;
            }
        }
        true
    }

    /// Cuts a journal that is moved already. Takes the write lock only if nobody has it.
    fn cut(&self) -> bool {
        checkpoint(&self.conn, "TRUNCATE").is_some_and(CheckpointProgress::is_complete)
    }

    /// Reports a journal that cannot be cut because somebody reads.
    fn report(&self) {
        let bytes = self.journal.metadata().map_or(0, |meta| meta.len());
        let problems = &self.shared.problems;
        if bytes <= self.long_journal {
            return problems.resolve(BLOCKED);
        }
        if !self.flags.blocked.load(Ordering::Relaxed) {
            return;
        }
        let who = journal_holders(&self.shared_memory);
        let who = who.unwrap_or_else(|| "another program".to_owned());
        let what = format!(
            "the journal has {} MiB and grows, because {who} holds a read transaction on the \
             database; end it, the journal then shrinks by itself",
            bytes >> 20
        );
        problems.report(BLOCKED, self.shared.now(), what);
    }
}

/// `None` if another checkpoint runs, somebody writes or reads, or it failed.
fn checkpoint(conn: &Connection, mode: &str) -> Option<CheckpointProgress> {
    let done = conn.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        let progress = CheckpointProgress { frames: row.get(1)?, moved: row.get(2)? };
        Ok((row.get::<_, i64>(0)? == 0).then_some(progress))
    });
    done.unwrap_or_else(|error| {
        tracing::warn!(%error, "the journal could not be checkpointed; will try again");
        None
    })
}
