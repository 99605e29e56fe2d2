//! A worker's part of a shared store: leases what is due in the shards that it holds.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::{
    Consumer, LeasedDelivery, ReadyLane, SettleResult, Settlement, StoreError, StoreResult,
};
use postrider_core::{DeliveryId, LaneId, LaneKey, RegionNumber, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::index::ShardIndex;
use super::lane::WINDOW;
use super::worker_name::WorkerName;
use super::{COMMON_SHARDS, HeldShard, POLL, SURE_FOR, ShardEngine, ShardId, shard_of};
use crate::work_signal::NextWork;

/// Lanes that are read on at once before they are listed.
const UNSURE_AT_ONCE: usize = 64;

/// The consumer of one worker. When it is dropped, its worker is dead.
pub(crate) struct ShardConsumer<E: ShardEngine> {
    worker: Arc<ShardWorker<E>>,
    beating: tokio::task::AbortHandle,
}

pub(super) struct ShardWorker<E> {
    pub(super) engine: Arc<E>,
    pub(super) node: Box<str>,
    /// By its place.
    pub(super) region: Option<usize>,
    /// How many regions the store has.
    pub(super) regions: AtomicUsize,
    /// Tells it from other consumers of the same name.
    pub(super) number: i64,
    pub(super) state: Mutex<WorkerState>,
    /// One heartbeat at a time.
    pub(super) beating: tokio::sync::Mutex<()>,
    pub(super) closed: AtomicBool,
    /// The news up to this count are known.
    pub(super) seen: AtomicU64,
    pub(super) wake: Arc<Notify>,
    pub(super) tokens: Mutex<Range<u64>>,
}

#[derive(Default)]
pub(super) struct WorkerState {
    pub(super) index: ShardIndex,
    pub(super) held: BTreeMap<ShardId, HeldShard>,
    /// Shards that are about to be handed over, each since when.
    pub(super) draining: BTreeMap<ShardId, i64>,
    /// The engine's time of the last heartbeat that succeeded.
    pub(super) last_beat: Option<Timestamp>,
}

impl WorkerState {
    /// The shards that are leased from.
    pub(super) fn shards(&self) -> Vec<HeldShard> {
        let leased = self.held.values().filter(|held| !self.draining.contains_key(&held.shard));
        leased.copied().collect()
    }

    /// The shards of these deliveries; `None` if one is not held.
    pub(super) fn shards_of(&self, ids: impl IntoIterator<Item = u128>) -> Option<Vec<HeldShard>> {
        let mut shards: Vec<_> = ids.into_iter().map(shard_of).collect();
        shards.sort_unstable();
        shards.dedup();
        shards.into_iter().map(|shard| self.held.get(&shard).copied()).collect()
    }

    pub(super) fn has(&self, held: &HeldShard) -> bool {
        self.held.get(&held.shard).is_some_and(|known| known.nonce == held.nonce)
    }
}

impl<E: ShardEngine> ShardConsumer<E> {
    /// Takes over what an older consumer of the name held, and what nobody holds.
    pub(crate) async fn join(
        engine: Arc<E>,
        node: &str,
        region: Option<RegionNumber>,
        regions: usize,
    ) -> StoreResult<Self> {
        let region = region.map(RegionNumber::place);
        let node = WorkerName { name: node, region }.to_string();
        let number = engine.join(&node).await?;
        let wake = Arc::new(Notify::new());
        let weak = Arc::downgrade(&wake);
        engine.clock().on_move(Arc::new(move || {
            if let Some(wake) = weak.upgrade() {
                wake.notify_waiters();
            }
        }));
        let state = WorkerState { index: ShardIndex::new(), ..WorkerState::default() };
        let worker = Arc::new(ShardWorker {
            engine,
            node: node.into(),
            region,
            regions: AtomicUsize::new(regions),
            number,
            state: Mutex::new(state),
            beating: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
            seen: AtomicU64::new(0),
            wake,
            tokens: Mutex::default(),
        });
        worker.clone().run(|worker| async move { worker.beat().await }).await?;
        let beating = tokio::spawn(worker.clone().keep_beating()).abort_handle();
        Ok(Self { worker, beating })
    }
}

impl<E: ShardEngine> ShardWorker<E> {
    pub(super) fn state(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.engine.clock().now()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Runs to the end, even if the caller stops waiting.
    pub(super) async fn run<T, F>(
        self: Arc<Self>,
        work: impl FnOnce(Arc<Self>) -> F + Send + 'static,
    ) -> StoreResult<T>
    where
        T: Send + 'static,
        F: Future<Output = StoreResult<T>> + Send + 'static,
    {
        tokio::spawn(work(self)).await.unwrap_or(Err(StoreError::Closed))
    }

    /// Whether others still believe that this worker lives.
    pub(super) fn is_sure(&self, now: Timestamp) -> bool {
        let last = self.state().last_beat;
        !self.is_closed() && last.is_some_and(|last| now.since(last) < SURE_FOR)
    }

    /// Beats and reads notes if it is time. False if this worker must not lease.
    pub(super) async fn prepare(self: &Arc<Self>) -> StoreResult<bool> {
        self.prepare_with(self.has_news()).await
    }

    /// The same before a lease. What is known to be due does not wait for news: arrivals would hold it up.
    pub(super) async fn prepare_to_lease(self: &Arc<Self>, lane: u32) -> StoreResult<bool> {
        let knows_some = self.state().index.has_due(lane, self.now().0);
        self.prepare_with(!knows_some && self.has_news()).await
    }

    async fn prepare_with(self: &Arc<Self>, reads_news: bool) -> StoreResult<bool> {
        if self.is_closed() {
            return Ok(false);
        }
        let failed = match self.is_beat_due() || reads_news {
            true => {
                let tick = move |worker: Arc<Self>| async move { worker.tick(reads_news).await };
                self.clone().run(tick).await.err()
            }
            false => None,
        };
        match (self.is_sure(self.now()), failed) {
            (true, _) => Ok(true),
            (false, Some(error)) if !self.is_closed() => Err(error),
            (false, _) => Ok(false),
        }
    }

    /// Reads on in lanes whose next deliveries only the engine knows.
    async fn read_on(&self) -> StoreResult<()> {
        loop {
            let unsure = self.state().index.unsure(self.now().0, UNSURE_AT_ONCE);
            if unsure.is_empty() {
                return Ok(());
            }
            let mut read = false;
            for lane in unsure {
                read |= self.refill(lane).await?;
            }
            if !read {
                return Ok(());
            }
        }
    }

    /// Reads on in a lane. False if somebody else does.
    pub(super) async fn refill(&self, lane: u32) -> StoreResult<bool> {
        let (after, shards) = {
            let mut state = self.state();
            let Some(after) = state.index.begin_refill(lane) else { return Ok(false) };
            let shards: Vec<_> = state.shards().iter().map(|held| held.shard).collect();
            (after, shards)
        };
        let found = self.engine.due(&shards, lane, after, WINDOW).await;
        let entries = found.as_ref().ok().map(Vec::as_slice);
        let complete = entries.is_some_and(|entries| entries.len() < WINDOW);
        let now = self.now().0;
        self.state().index.refill(lane, entries, complete, now);
        found.map(|_| true)
    }

    async fn ready(self: Arc<Self>, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        if !self.prepare().await? {
            return Ok(Vec::new());
        }
        self.read_on().await?;
        let ready = self.state().index.ready(self.now().0, limit);
        let name = |(lane, due): (u32, i64)| {
            let key = self.engine.lane_key(lane)?;
            Some(ReadyLane { id: LaneId(lane), key, due_at: Timestamp(due) })
        };
        Ok(ready.into_iter().filter_map(name).collect())
    }

    async fn start(self: Arc<Self>, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        let now = self.now();
        let (ids, shards) = {
            let mut state = self.state();
            let startable =
                attempts.iter().filter(|(id, token)| state.index.is_startable(id.0, *token, now.0));
            let ids: Vec<_> = startable.map(|(id, _)| id.0).collect();
            let shards = state.shards_of(ids.iter().copied());
            (ids, shards)
        };
        let started = match shards.filter(|_| !ids.is_empty() && self.is_sure(now)) {
            Some(shards) => self.engine.start(&shards, &ids).await?,
            None => Vec::new(),
        };
        let mut state = self.state();
        let mut is_started = |(id, token): &(DeliveryId, u64)| {
            started.contains(&id.0) && state.index.is_startable(id.0, *token, now.0)
        };
        Ok(attempts.iter().map(&mut is_started).collect())
    }

    /// When there is something to do.
    fn next_work(&self) -> NextWork {
        let clock = self.engine.clock();
        let now = clock.now();
        let lag = now.since(clock.bounds().earliest).as_millis() as i64;
        self.state().index.next_work(now.0, lag)
    }

    async fn wait_for_work(self: Arc<Self>, at_most: Duration) {
        let real_end = Instant::now() + at_most.min(Duration::from_secs(86_400 * 365));
        let end = self.now() + at_most;
        loop {
            let (wake, news) = (self.wake.clone(), self.engine.news().notify().clone());
            let (woken, told) = (wake.notified(), news.notified());
            tokio::pin!(woken, told);
            woken.as_mut().enable();
            told.as_mut().enable();
            let may_lease = self.prepare().await.unwrap_or(false);
            let now = self.now();
            let next = match self.next_work() {
                NextWork::Now if may_lease => return,
                NextWork::Now => POLL,
                NextWork::At(next) => next.map_or(POLL, |at| at.since(now).min(POLL)),
            };
            if now >= end || Instant::now() >= real_end {
                return;
            }
            let wake_at = (Instant::now() + next.max(Duration::from_millis(1))).min(real_end);
            tokio::select! {
                () = woken => {}
                () = told => {}
                () = tokio::time::sleep_until(wake_at) => {}
            }
        }
    }
}

#[async_trait]
impl<E: ShardEngine> Consumer for ShardConsumer<E> {
    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        self.worker.clone().run(move |worker| worker.ready(limit)).await
    }

    async fn lease(
        &self,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        self.worker.clone().run(move |worker| worker.lease(lane.0, max, duration)).await
    }

    async fn lease_expired(
        &self,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        self.worker.clone().run(move |worker| worker.lease_expired(max, duration)).await
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Vec<StoreResult<SettleResult>> {
        let count = settlements.len();
        let work =
            |worker: Arc<ShardWorker<E>>| async move { Ok(worker.settle(settlements).await) };
        match self.worker.clone().run(work).await {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); count],
        }
    }

    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        self.worker.clone().run(move |worker| worker.start(attempts)).await
    }

    async fn wait_for_work(&self, at_most: Duration) {
        self.worker.clone().wait_for_work(at_most).await;
    }

    fn suspend(&self, lane: LaneId, until: Timestamp) {
        let now = self.worker.now().0;
        self.worker.state().index.suspend(lane.0, until.0, now);
    }

    fn resume(&self, lane: Option<LaneId>) {
        let now = self.worker.now().0;
        self.worker.state().index.resume(lane.map(|lane| lane.0), now);
        self.worker.wake.notify_waiters();
    }

    fn leads(&self) -> bool {
        let holds_first = self.worker.state().held.contains_key(&0);
        holds_first && self.worker.is_sure(self.worker.now())
    }

    fn part(&self) -> f64 {
        // Shards that are about to be handed over count until another worker has them.
        let state = self.worker.state();
        state.held.range(..COMMON_SHARDS).count() as f64 / f64::from(COMMON_SHARDS)
    }

    fn set_regions(&self, count: usize) {
        self.worker.regions.store(count, Ordering::Release);
    }

    async fn close(&self) {
        self.beating.abort();
        let closed =
            self.worker.clone().run(|worker| async move { worker.hand_everything_over().await });
        if let Err(error) = closed.await {
            tracing::warn!(%error, "the shards could not be handed over; others take them in some seconds");
        }
        self.worker.wake.notify_waiters();
    }
}

impl<E: ShardEngine> Drop for ShardConsumer<E> {
    fn drop(&mut self) {
        self.beating.abort();
        self.worker.closed.store(true, Ordering::Release);
        self.worker.engine.news().tell();
    }
}
