//! A store with one consumer, as a server that runs alone has it.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::ports::store::{
    Admission, Consumer, LeasedDelivery, NewMessage, ReadyLane, SettleResult, Settlement, Store,
    StoreResult,
};
use postrider_core::{Clock, DeliveryId, LaneId, LaneKey, Timestamp};
use tokio::sync::OnceCell;

use crate::{EmbeddedStore, StoreOptions};

/// The name of the one worker.
const NODE: &str = "node";

/// Gives a test or a benchmark all calls of a store in one place; a batch fails as a whole.
pub struct WorkingStore<S: ?Sized = EmbeddedStore> {
    store: Arc<S>,
    /// Made when it is needed.
    consumer: OnceCell<Arc<dyn Consumer>>,
}

impl WorkingStore {
    pub fn open(dir: &Path, clock: Arc<dyn Clock>, options: StoreOptions) -> StoreResult<Self> {
        Ok(Self::over(Arc::new(EmbeddedStore::open(dir, clock, options)?)))
    }
}

impl<S: Store + ?Sized> WorkingStore<S> {
    pub fn over(store: Arc<S>) -> Self {
        Self { store, consumer: OnceCell::new() }
    }

    /// Takes the work over now, instead of with the first call that needs it.
    pub async fn take_over(&self) -> StoreResult<()> {
        self.consumer().await.map(drop)
    }

    async fn consumer(&self) -> StoreResult<&Arc<dyn Consumer>> {
        self.consumer.get_or_try_init(|| self.store.consumer(NODE)).await
    }

    pub fn store(&self) -> &Arc<S> {
        &self.store
    }

    pub async fn accept(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<Admission>> {
        self.store.accept(messages).await.into_iter().collect()
    }

    pub async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        self.consumer().await?.ready_lanes(limit).await
    }

    pub async fn lease(
        &self,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        self.consumer().await?.lease(lane, max, duration).await
    }

    pub async fn lease_expired(
        &self,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        self.consumer().await?.lease_expired(max, duration).await
    }

    pub async fn settle(&self, settlements: Vec<Settlement>) -> StoreResult<Vec<SettleResult>> {
        self.consumer().await?.settle(settlements).await.into_iter().collect()
    }

    pub async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        self.consumer().await?.start(attempts).await
    }

    pub async fn wait_for_work(&self, at_most: Duration) {
        if let Ok(consumer) = self.consumer().await {
            consumer.wait_for_work(at_most).await;
        }
    }

    pub fn suspend(&self, lane: LaneId, until: Timestamp) {
        if let Some(consumer) = self.consumer.get() {
            consumer.suspend(lane, until);
        }
    }

    pub fn resume(&self, lane: Option<LaneId>) {
        if let Some(consumer) = self.consumer.get() {
            consumer.resume(lane);
        }
    }

    /// Hands over in order.
    pub async fn close_consumer(&self) {
        if let Some(consumer) = self.consumer.get() {
            consumer.close().await;
        }
    }

    pub async fn close(&self) {
        self.store.close().await;
    }

    pub fn takes_work(&self) -> StoreResult<()> {
        self.store.takes_work()
    }
}

impl<S: ?Sized> Deref for WorkingStore<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.store
    }
}
