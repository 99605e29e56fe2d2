//! The embedded store: SQLite, one writer thread with group commit, leases and the near future of
//! every lane in memory. One process per folder. Needs a tokio runtime for its reads.
//!
//! What is on disk is readable with `sqlite3`; what is in memory can be lost at any time: after a
//! crash everything that was not settled is simply due again.

mod accept;
mod acts;
mod aside;
mod board;
mod checkpoint;
mod dedup;
mod draft;
mod error;
mod expiry;
mod flight;
mod folder;
mod job;
mod lanes;
mod ledger;
mod look;
mod marks;
mod open;
mod prune;
mod queue;
mod receive;
mod registry;
mod rescue;
mod reserve;
mod rows;
mod schema;
mod settle;
mod shared;
mod strikes;
mod tally;
mod writer;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use postrider_core::Clock;
use postrider_core::ports::store::{StoreError, StoreResult};
use tokio::sync::{mpsc, oneshot};

pub use look::Look;

use folder::Folder;
use reserve::Reserve;
use shared::Shared;
use writer::{Order, Writer};

/// How much memory and disk the store may take. The defaults serve ten million pending deliveries.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Entries of one lane that are kept in memory.
    pub lane_window: usize,
    /// Entries of all lanes together; beyond it each lane keeps a few only.
    pub window_total: usize,
    /// Accepted work kept at hand, so that it is not read again when it is leased.
    pub job_cache_bytes: usize,
    /// The writer's page cache.
    pub page_cache_kib: u32,
    /// Idempotency keys of the newest bucket, which are in memory.
    pub dedup_bucket_keys: usize,
    /// Room on the disk that is kept back for finishing what was accepted; none if 0.
    /// Bounds the journal too, which grows to some 45 MiB under load if it may.
    pub reserve_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lane_window: 4_096,
            window_total: 400_000,
            job_cache_bytes: 32 << 20,
            page_cache_kib: 32 << 10,
            dedup_bucket_keys: 114_688,
            reserve_bytes: 64 << 20,
        }
    }
}

/// A store in a folder of its own.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    orders: mpsc::Sender<Order>,
    accepting: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl EmbeddedStore {
    /// Opens the store in `dir`, which is made if it is missing and held until the store is closed.
    pub fn open(dir: &Path, clock: Arc<dyn Clock>, options: Options) -> StoreResult<Self> {
        let folder = Folder::hold(dir)?;
        let reserve = || Reserve::at(folder.reserve(), options.reserve_bytes);
        let opened = match open::open(&folder, clock.clone(), options, reserve()) {
            Err(StoreError::Full(_)) if reserve().give_back() => {
                open::open(&folder, clock, options, reserve())?
            }
            opened => opened?,
        };
        let (orders, received) = mpsc::channel(1024);
        let writer = opened.writer;
        let accepting = writer.reserve.watch();
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                writer.run(received);
                drop(folder);
            })
            .map_err(|error| StoreError::Io(error.to_string()))?;
        let threads = Mutex::new(vec![thread, opened.checkpoints]);
        Ok(Self { shared: opened.shared, orders, accepting, threads })
    }

    /// Finishes what was asked for, folds the journal in and lets go of the folder. Later calls
    /// answer [`StoreError::Closed`].
    pub async fn close(&self) {
        let _ = self.orders.send(Order::Close).await;
        let threads = self.take_threads();
        let joined = tokio::task::spawn_blocking(move || join(threads));
        let _ = joined.await;
    }

    /// Sets the size that the database may grow to; beyond it new work is refused as on a full disk.
    /// No limit if absent. What is there stays, also if it is more.
    pub async fn limit_size(&self, bytes: Option<u64>) -> StoreResult<()> {
        self.errand(move |writer| {
            let pages =
                bytes.map_or(u32::MAX - 1, |b| u32::try_from(b / 4096).unwrap_or(u32::MAX - 1));
            let set = format!("PRAGMA max_page_count = {}", pages.max(1));
            writer.conn.query_row(&set, [], |_| Ok(())).map_err(error::sql)
        })
        .await
    }

    /// Whether new work is taken; not while the disk is so full that finishing the old needs the
    /// rest of it.
    pub fn is_accepting(&self) -> bool {
        self.accepting.load(Ordering::Relaxed)
    }

    fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn order<T>(&self, order: impl FnOnce(writer::Answer<T>) -> Order) -> StoreResult<T> {
        let (answer, answered) = oneshot::channel();
        self.orders.send(order(answer)).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// Runs `errand` on the writer's thread.
    async fn errand<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&mut Writer) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.order(|answer| {
            Order::Errand(Box::new(move |writer| drop(answer.send(errand(writer)))))
        })
        .await
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        let threads = self.take_threads();
        if threads.is_empty() {
            return;
        }
        // The writer ends when nobody can ask it any more.
        let (orders, _) = mpsc::channel(1);
        self.orders = orders;
        join(threads);
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the store panicked");
        }
    }
}
