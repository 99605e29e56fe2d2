//! The data between two starts of the process: the store in memory, or the embedded store's folder. A
//! crash leaves its files as they are; a power cut tears the last write.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use postrider_core::Clock;
use postrider_core::ports::store::Store;
use postrider_store::{EmbeddedStore, MemoryStore, StoreOptions};
use tempfile::TempDir;

use crate::blocking::block_on;
use crate::journal;

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

pub(crate) enum SimStorage {
    Memory(Arc<MemoryStore>),
    Embedded(Box<EmbeddedFolder>),
}

pub(crate) struct EmbeddedFolder {
    root: TempDir,
    options: StoreOptions,
    clock: Arc<dyn Clock>,
    open: Mutex<OpenStore>,
}

#[derive(Default)]
struct OpenStore {
    /// Number of the folder in use; every crash moves to the next.
    number: u32,
    store: Option<Arc<EmbeddedStore>>,
    /// The files before the write that will be torn.
    before: Option<StoreFiles>,
}

struct StoreFiles {
    database: Vec<u8>,
    journal: Vec<u8>,
}

const DATABASE: &str = "postrider.db";
const JOURNAL: &str = "postrider.db-wal";

impl SimStorage {
    pub(crate) fn new(kind: StoreKind, clock: Arc<dyn Clock>, lane_window: usize) -> Result<Self> {
        if kind == StoreKind::Memory {
            return Ok(Self::Memory(Arc::new(MemoryStore::new(clock))));
        }
        // Prefers a disk in memory: the simulation makes its own faults.
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let root = tempfile::Builder::new().prefix("postrider-sim-").tempdir_in(base)?;
        let options = StoreOptions {
            lane_window,
            delivery_cache_bytes: 1 << 20,
            page_cache_kib: 2048,
            // The store retries the reserve by the real clock, which would break repeatability.
            reserve_bytes: 0,
            ..StoreOptions::default()
        };
        Ok(Self::Embedded(Box::new(EmbeddedFolder {
            root,
            options,
            clock,
            open: Mutex::default(),
        })))
    }

    /// Opens the store for the next process.
    pub(crate) fn open(&self) -> Result<Arc<dyn Store>> {
        match self {
            Self::Memory(store) => Ok(store.clone()),
            Self::Embedded(folder) => {
                let mut open = folder.open();
                let dir = folder.dir(open.number);
                let store = EmbeddedStore::open(&dir, folder.clock.clone(), folder.options)
                    .context("the store does not open")?;
                let store = Arc::new(store);
                open.store = Some(store.clone());
                Ok(store)
            }
        }
    }

    /// Saves the files before a write that a power cut tears. False if there are none.
    pub(crate) fn save_files(&self) -> bool {
        let Self::Embedded(folder) = self else { return false };
        let mut open = folder.open();
        let files = read_files(&folder.dir(open.number));
        open.before = files.ok();
        open.before.is_some()
    }

    /// Waits for the store's background work, so that each run sees the same.
    pub(crate) fn wait_until_idle(&self) {
        let Self::Embedded(folder) = self else { return };
        if folder.options.lane_window < StoreOptions::default().lane_window {
            let store = folder.open().store.clone();
            store.inspect(|store| drop(block_on(store.limit_size(None))));
        }
    }

    /// The process died. Data on disk stays; after a power cut, the last write is torn at `tear` (0…1).
    pub(crate) fn crash(&self, tear: Option<f64>) -> Result<()> {
        match self {
            // Its consumers died with the process.
            Self::Memory(_) => Ok(()),
            Self::Embedded(folder) => folder.crash(tear),
        }
    }

    /// The process shut down cleanly.
    pub(crate) fn close(&self) {
        match self {
            Self::Memory(_) => {}
            Self::Embedded(folder) => {
                let store = folder.open().store.take();
                drop(store);
            }
        }
    }
}

impl EmbeddedFolder {
    fn open(&self) -> MutexGuard<'_, OpenStore> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dir(&self, number: u32) -> PathBuf {
        self.root.path().join(number.to_string())
    }

    fn crash(&self, tear: Option<f64>) -> Result<()> {
        let mut open = self.open();
        let (old, new) = (self.dir(open.number), self.dir(open.number + 1));
        if let Some(store) = &open.store {
            // The writer has finished all earlier requests after this.
            let _ = block_on(store.limit_size(None));
        }
        let mut files = read_stable_files(&old)?;
        if let (Some(part), Some(before)) = (tear, open.before.take()) {
            files.journal = journal::torn(&before.journal, &files.journal, part);
            files.database = before.database;
        }
        fs::create_dir(&new)?;
        fs::write(new.join(DATABASE), &files.database)?;
        fs::write(new.join(JOURNAL), &files.journal)?;
        // Only now: a dropped store folds its journal into the database.
        open.store = None;
        open.number += 1;
        fs::remove_dir_all(&old).context("the dead process's folder")
    }
}

fn read_files(dir: &Path) -> Result<StoreFiles> {
    // The journal first: a page that moves to the database meanwhile is then in both.
    let journal = fs::read(dir.join(JOURNAL)).unwrap_or_default();
    Ok(StoreFiles { database: fs::read(dir.join(DATABASE))?, journal })
}

/// Reads until two reads are equal: the store's background work may still change the files.
fn read_stable_files(dir: &Path) -> Result<StoreFiles> {
    let mut files = read_files(dir)?;
    loop {
        let again = read_files(dir)?;
        if again.journal == files.journal && again.database == files.database {
            return Ok(files);
        }
        files = again;
    }
}
