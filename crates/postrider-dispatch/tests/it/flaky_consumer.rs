//! A consumer of the reference store with a disk that can fail, and with an eye on who asks it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::{
    Consumer, LeasedDelivery, ReadyLane, SettleResult, Settlement, Store as _, StoreError,
    StoreResult,
};
use postrider_core::{DeliveryId, LaneId, LaneKey, Timestamp};
use postrider_store::{ManualClock, MemoryStore};

pub(crate) struct FlakyConsumer {
    pub(crate) inner: Arc<dyn Consumer>,
    /// Settlements and starts fail as on a full disk.
    pub(crate) full: AtomicBool,
    /// The call that panics.
    pub(crate) panics_in: Mutex<Option<&'static str>>,
    /// How long it takes to note a start.
    pub(crate) start_takes: Option<(Arc<ManualClock>, Duration)>,
    /// How often somebody began to wait for work.
    pub(crate) waits: AtomicUsize,
}

impl FlakyConsumer {
    pub(crate) async fn of(store: &MemoryStore) -> Self {
        let inner = store.consumer("node").await.unwrap();
        let full = AtomicBool::new(false);
        let panics_in = Mutex::new(None);
        Self { inner, full, panics_in, start_takes: None, waits: AtomicUsize::new(0) }
    }

    fn panic_if_wanted(&self, call: &'static str) {
        let wanted = *self.panics_in.lock().unwrap();
        assert_ne!(wanted, Some(call), "on purpose");
    }

    fn disk(&self) -> StoreResult<()> {
        match self.full.load(Ordering::SeqCst) {
            true => Err(StoreError::Full { what: "no space left".to_owned(), cause: None }),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Consumer for FlakyConsumer {
    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        self.panic_if_wanted("ready_lanes");
        self.inner.ready_lanes(limit).await
    }

    async fn lease(
        &self,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        self.panic_if_wanted("lease");
        self.inner.lease(lane, max, duration).await
    }

    async fn lease_expired(
        &self,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        self.inner.lease_expired(max, duration).await
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Vec<StoreResult<SettleResult>> {
        self.panic_if_wanted("settle");
        if let Err(error) = self.disk() {
            return settlements.iter().map(|_| Err(error.clone())).collect();
        }
        self.inner.settle(settlements).await
    }

    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        self.disk()?;
        if let Some((clock, long)) = &self.start_takes {
            clock.advance(*long);
        }
        self.inner.start(attempts).await
    }

    async fn wait_for_work(&self, at_most: Duration) {
        self.waits.fetch_add(1, Ordering::SeqCst);
        self.inner.wait_for_work(at_most).await;
    }

    fn suspend(&self, lane: LaneId, until: Timestamp) {
        self.inner.suspend(lane, until);
    }

    fn resume(&self, lane: Option<LaneId>) {
        self.inner.resume(lane);
    }

    fn leads(&self) -> bool {
        self.inner.leads()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
