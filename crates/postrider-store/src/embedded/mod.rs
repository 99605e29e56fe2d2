//! The embedded store: SQLite in a data folder, one writer thread with group commit, and an index in
//! memory with leases and the next entries of every lane. One process per folder. Needs a tokio runtime.
//!
//! `sqlite3` can read what is on disk. Memory can be lost at any time: after a crash, everything that was
//! not settled is due again.

mod audit;
pub mod backup;
mod checkpoint;
mod chores;
mod chosen;
mod disk_space;
mod documents;
mod entries;
mod failure;
mod folder;
mod folder_report;
mod free_pages;
pub mod fsck;
mod held;
mod in_flight;
mod index;
mod intake;
mod journal;
mod journal_holders;
mod ledger;
mod ledger_candidates;
mod ledger_page;
mod operator;
mod order_tail;
mod problems;
mod queue;
mod receipts;
mod receive;
mod recovery;
mod registry;
mod request_queue;
mod requests;
mod reserve;
mod rollups;
mod shared;
mod sql;
mod transfer;
mod writer;
mod writer_client;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use postrider_core::Clock;
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::rate_slice::RateSlice;
use postrider_core::ports::store::{Consumer, Shares, Store, StoreError, StoreResult};
use tokio::sync::mpsc;

pub use failure::StoreFailure;
pub use folder_report::FolderReport;

use failure::run_or_fail;
use folder::{DataFolder, RESERVE};
use queue::EmbeddedQueue;
use requests::WriterRequest;
use reserve::DiskReserve;
use shared::{REPAIR, StoreShared};
use sql::{open, statement};
use writer::Writer;
use writer_client::WriterClient;

use crate::holder::{HolderLine, QueueConsumer};
use crate::shared_rates::SharedRates;

/// How much memory and disk the store may take. The defaults serve ten million pending deliveries.
#[derive(Debug, Clone, Copy)]
pub struct StoreOptions {
    /// Entries of one lane in memory.
    pub lane_window: usize,
    /// Entries of all lanes in memory; beyond it each lane keeps only a few.
    pub window_total: usize,
    /// Accepted deliveries in memory, so that a lease need not read them.
    pub delivery_cache_bytes: usize,
    /// The writer's page cache.
    pub page_cache_kib: u32,
    /// Deliveries that are accepted before those that still wait are listed on disk.
    pub listed_at_once: usize,
    /// The newest idempotency keys, which are in memory.
    pub dedup_bucket_keys: usize,
    /// Disk space that is kept back, so that accepted deliveries can be finished on a full disk; none if 0.
    /// It also bounds the journal, which otherwise grows to some 45 MiB under load.
    pub reserve_bytes: u64,
    /// Beyond this size, no new work is taken while another program keeps the journal from being cut.
    pub journal_bytes_max: u64,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            lane_window: 4_096,
            window_total: 400_000,
            delivery_cache_bytes: 32 << 20,
            page_cache_kib: 8 << 10,
            listed_at_once: 32_768,
            dedup_bucket_keys: 114_688,
            reserve_bytes: 64 << 20,
            journal_bytes_max: 4 << 30,
        }
    }
}

/// A store in a data folder.
pub struct EmbeddedStore {
    shared: Arc<StoreShared>,
    /// Keeps the writer alive.
    requests: mpsc::Sender<WriterRequest>,
    writer: WriterClient,
    holders: Arc<HolderLine>,
    rates: SharedRates,
    accepting: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl EmbeddedStore {
    /// Opens the store in `dir`. Makes the folder if it is missing, and locks it until the store is closed.
    pub fn open(dir: &Path, clock: Arc<dyn Clock>, options: StoreOptions) -> StoreResult<Self> {
        let folder = DataFolder::lock(dir)?;
        let reserve = || DiskReserve::at(folder.file(RESERVE), options.reserve_bytes);
        let (writer, checkpoints) = match open::open(&folder, clock.clone(), options, reserve()) {
            Err(StoreError::Full { .. }) if reserve().give_back() => {
                open::open(&folder, clock, options, reserve())?
            }
            opened => opened.map_err(with_remedy)?,
        };
        let (requests, received) = mpsc::channel(1024);
        let (shared, accepting) = (writer.shared.clone(), writer.reserve.watch());
        let thread = std::thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || {
                let failure = writer.shared.failure.clone();
                run_or_fail(&failure, "the writer's thread", || writer.run(received));
                match failure.is_failed() {
                    // Nobody else may use the folder while this process may still send.
                    true => std::mem::forget(folder),
                    false => drop(folder),
                }
            })
            .map_err(|error| StoreError::io("cannot start the writer's thread", error))?;
        let threads = Mutex::new(vec![thread, checkpoints]);
        let (writer, holders) = (WriterClient::new(&requests), Arc::default());
        let rates = SharedRates::default();
        Ok(Self { shared, requests, writer, holders, rates, accepting, threads })
    }

    /// Sets the size that the database may grow to; beyond it new work is refused, as on a full disk.
    /// No limit if absent. Nothing is deleted if the database is larger already.
    pub async fn limit_size(&self, bytes: Option<u64>) -> StoreResult<()> {
        self.run_task(move |writer| {
            let pages =
                bytes.map_or(u32::MAX - 1, |b| u32::try_from(b / 4096).unwrap_or(u32::MAX - 1));
            let set = format!("PRAGMA max_page_count = {}", pages.max(1));
            writer.conn.query_row(&set, [], |_| Ok(())).map_err(statement::sql)
        })
        .await
    }

    /// Says when the store cannot go on. The process must then end.
    pub fn failure(&self) -> StoreFailure {
        self.shared.failure.clone()
    }

    /// Whether new work is accepted. It is not while the disk is so full that the rest is needed for
    /// finishing what was accepted.
    pub fn is_accepting(&self) -> bool {
        self.accepting.load(Ordering::Relaxed)
    }

    fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `task` on the writer's thread.
    async fn run_task<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Writer) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.writer.run_task(task).await
    }
}

#[async_trait]
impl Shares for EmbeddedStore {
    async fn grant(&self, limit: &str, rate: Rate, want: u32) -> StoreResult<RateSlice> {
        Ok(self.rates.grant(limit, rate, want, self.shared.now()))
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn clock(&self) -> Arc<dyn Clock> {
        self.shared.clock.clone()
    }

    async fn consumer(&self, node: &str) -> StoreResult<Arc<dyn Consumer>> {
        let queue = EmbeddedQueue { shared: self.shared.clone(), writer: self.writer.clone() };
        Ok(Arc::new(QueueConsumer::join(queue, self.holders.clone(), node).await?))
    }

    /// Finishes all requests, checkpoints the journal and unlocks the folder.
    async fn close(&self) {
        let _ = self.requests.send(WriterRequest::Close).await;
        let threads = self.take_threads();
        let joined = tokio::task::spawn_blocking(move || join(threads));
        let _ = joined.await;
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        let threads = self.take_threads();
        if threads.is_empty() {
            return;
        }
        // The writer ends when nobody can send a request any more.
        let (requests, _) = mpsc::channel(1);
        self.requests = requests;
        join(threads);
    }
}

/// Says what helps, if the database is damaged where nothing can go on without it.
fn with_remedy(error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { what, cause } if !what.contains("fsck") => {
            StoreError::Corrupt { what: format!("{what}; {REPAIR}"), cause }
        }
        other => other,
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a thread of the store panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::ports::store::{AddressLearning, Counts, Ledger, Settlement};
    use postrider_core::{Decision, State};

    use super::*;
    use crate::SystemClock;
    use crate::conformance::WorkingStore;
    use crate::conformance::message;

    const LEASE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn what_was_rolled_back_does_not_count_as_saved() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let store = WorkingStore::open(dir.path(), clock, StoreOptions::default()).unwrap();
        let saved = async |fail: bool| {
            let save = move |writer: &mut Writer| {
                let done = writer.transact(|writer| {
                    writer.save_listed_before(77)?;
                    if fail { Err(statement::damaged("on purpose")) } else { Ok(()) }
                });
                assert_eq!(done.is_err(), fail);
                Ok(writer.shared.index().expiry.saved)
            };
            store.run_task(save).await.unwrap()
        };
        assert_ne!(saved(true).await, 77);
        assert_eq!(saved(false).await, 77);
    }

    /// While the writer is busy, much new work arrives, then a result.
    #[tokio::test]
    async fn a_result_is_written_before_the_new_work_that_waits() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let store = Arc::new(
            WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap(),
        );
        store.accept(vec![message("acme", 1)]).await.unwrap();
        let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
        let leased = store.lease(lane, 1, LEASE).await.unwrap().remove(0);
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let (begin, began) = tokio::sync::oneshot::channel();
        let block = WriterRequest::Task(Box::new(move |_| {
            begin.send(()).unwrap();
            blocked.recv().unwrap();
        }));
        assert!(store.requests.try_send(block).is_ok());
        began.await.unwrap();
        let mut tasks = Vec::new();
        for _ in 0..20 {
            let store = store.clone();
            let new = (0..250).map(|_| message("acme", 1)).collect();
            tasks.push(tokio::spawn(async move { store.accept(new).await.map(drop) }));
        }
        tokio::task::yield_now().await;
        let settlement = Settlement {
            delivery: leased.delivery,
            token: leased.token,
            attempts: Vec::new(),
            decision: Decision::Done,
            learned: AddressLearning::default(),
        };
        let settling = store.clone();
        tasks.push(tokio::spawn(async move { settling.settle(vec![settlement]).await.map(drop) }));
        tokio::task::yield_now().await;
        let (tell, told) = tokio::sync::oneshot::channel();
        let probe = |writer: &mut Writer| {
            let index = writer.shared.index();
            let mut counts = Counts::default();
            index.tenants.iter().for_each(|tenant| tenant.add_to(&mut counts));
            tell.send((counts.messages, counts.states.get(&State::Sent).copied())).unwrap();
        };
        assert!(store.requests.try_send(WriterRequest::Task(Box::new(probe))).is_ok());
        release.send(()).unwrap();
        let (messages, sent) = told.await.unwrap();
        assert_eq!(sent, Some(1));
        assert!(messages <= 1 + 500, "{messages} messages were accepted before");
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        assert_eq!(store.counts(None).await.unwrap().messages, 5_001);
    }

    #[tokio::test]
    async fn a_store_whose_writer_panicked_hands_out_nothing_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock);
        let store = WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default()).unwrap();
        store.accept(vec![message("acme", 1)]).await.unwrap();
        let lane = store.ready_lanes(1).await.unwrap().remove(0).id;
        assert!(store.takes_work().is_ok());
        let _ = store.run_task::<()>(|_| panic!("on purpose")).await;
        let cause = tokio::time::timeout(LEASE, store.failure().wait()).await.unwrap();
        assert_eq!(cause, "the writer's thread panicked: on purpose");
        assert!(store.takes_work().is_err());
        assert!(matches!(store.ready_lanes(1).await, Err(StoreError::Closed)));
        assert!(matches!(store.lease(lane, 1, LEASE).await, Err(StoreError::Closed)));
        assert!(matches!(store.lease_expired(1, LEASE).await, Err(StoreError::Closed)));
        assert!(matches!(store.accept(vec![message("acme", 1)]).await, Err(StoreError::Closed)));
        let second = WorkingStore::open(dir.path(), clock, StoreOptions::default());
        assert!(matches!(second.err(), Some(StoreError::Locked { .. })), "until the process ends");
    }
}
