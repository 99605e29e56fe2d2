//! Where the data is between two lives of the process: the model in memory, or the embedded store's
//! folder, of which a crash leaves the files as they are and a power cut leaves less.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use postrider_core::Clock;
use postrider_core::ports::store::Store;
use postrider_store::{EmbeddedStore, MemoryStore, Options};
use tempfile::TempDir;

use crate::journal;
use crate::patience::wait_for;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    Memory,
    Embedded,
}

impl StoreKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Embedded => "embedded",
        }
    }
}

pub(crate) enum Home {
    Memory(Arc<MemoryStore>),
    Embedded(Box<Folder>),
}

pub(crate) struct Folder {
    root: TempDir,
    options: Options,
    clock: Arc<dyn Clock>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Which of the folders under the root is in use: every crash moves to the next.
    life: u32,
    store: Option<Arc<EmbeddedStore>>,
    /// The files as they were before a write that is to be torn.
    before: Option<Files>,
}

struct Files {
    database: Vec<u8>,
    journal: Vec<u8>,
}

const DATABASE: &str = "postrider.db";
const JOURNAL: &str = "postrider.db-wal";

impl Home {
    pub(crate) fn new(kind: StoreKind, clock: Arc<dyn Clock>, lane_window: usize) -> Result<Self> {
        if kind == StoreKind::Memory {
            return Ok(Self::Memory(Arc::new(MemoryStore::new(clock))));
        }
        // A disk in memory, where there is one: its faults are ours to make.
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let root = tempfile::Builder::new().prefix("postrider-sim-").tempdir_in(base)?;
        let options = Options {
            lane_window,
            job_cache_bytes: 1 << 20,
            page_cache_kib: 2048,
            // It is tried again by the true clock, which no seed knows.
            reserve_bytes: 0,
            ..Options::default()
        };
        Ok(Self::Embedded(Box::new(Folder { root, options, clock, open: Mutex::default() })))
    }

    /// The store for the next life.
    pub(crate) fn open(&self) -> Result<Arc<dyn Store>> {
        match self {
            Self::Memory(store) => Ok(store.clone()),
            Self::Embedded(folder) => {
                let mut open = folder.open();
                let dir = folder.dir(open.life);
                let store = EmbeddedStore::open(&dir, folder.clock.clone(), folder.options)
                    .context("the store does not open")?;
                let store = Arc::new(store);
                open.store = Some(store.clone());
                Ok(store)
            }
        }
    }

    /// Notes the files before a write that a power cut is to tear. False where there are none.
    pub(crate) fn remember(&self) -> bool {
        let Self::Embedded(folder) = self else { return false };
        let mut open = folder.open();
        let files = read_files(&folder.dir(open.life));
        open.before = files.ok();
        open.before.is_some()
    }

    /// Lets the store finish what it does of its own accord, so that each run sees the same.
    pub(crate) fn settle_down(&self) {
        let Self::Embedded(folder) = self else { return };
        if folder.options.lane_window < Options::default().lane_window {
            let store = folder.open().store.clone();
            store.inspect(|store| drop(wait_for(store.limit_size(None))));
        }
    }

    /// The process is gone; what is on disk stays, torn at `tear` (0…1 of the last write) if the power
    /// went with it.
    pub(crate) fn crash(&self, tear: Option<f64>) -> Result<()> {
        match self {
            Self::Memory(store) => {
                store.forget_leases();
                Ok(())
            }
            Self::Embedded(folder) => folder.crash(tear),
        }
    }

    /// The process ended in order.
    pub(crate) fn close(&self) {
        match self {
            Self::Memory(store) => store.forget_leases(),
            Self::Embedded(folder) => {
                let store = folder.open().store.take();
                drop(store);
            }
        }
    }
}

impl Folder {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dir(&self, life: u32) -> PathBuf {
        self.root.path().join(life.to_string())
    }

    fn crash(&self, tear: Option<f64>) -> Result<()> {
        let mut open = self.open();
        let (old, new) = (self.dir(open.life), self.dir(open.life + 1));
        if let Some(store) = &open.store {
            // Whatever the writer was asked for before is done after this.
            let _ = wait_for(store.limit_size(None));
        }
        let mut files = copy_quiet(&old)?;
        if let (Some(part), Some(before)) = (tear, open.before.take()) {
            files.journal = journal::torn(&before.journal, &files.journal, part);
            files.database = before.database;
        }
        fs::create_dir(&new)?;
        fs::write(new.join(DATABASE), &files.database)?;
        fs::write(new.join(JOURNAL), &files.journal)?;
        // Only now: a store that is let go folds its journal in.
        open.store = None;
        open.life += 1;
        fs::remove_dir_all(&old).context("the dead process' folder")
    }
}

fn read_files(dir: &Path) -> Result<Files> {
    // The journal first: what moves from it to the database meanwhile is then in both.
    let journal = fs::read(dir.join(JOURNAL)).unwrap_or_default();
    Ok(Files { database: fs::read(dir.join(DATABASE))?, journal })
}

/// Read twice until nothing changes between: the store's own housekeeping may be at work.
fn copy_quiet(dir: &Path) -> Result<Files> {
    let mut files = read_files(dir)?;
    loop {
        let again = read_files(dir)?;
        if again.journal == files.journal && again.database == files.database {
            return Ok(files);
        }
        files = again;
    }
}
