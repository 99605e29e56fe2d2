//! Who holds the queue of a store that one worker holds at a time, and the consumer that each worker gets. The next in
//! line takes over when the holder ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::{
    Consumer, LeasedDelivery, ReadyLane, SettleResult, Settlement, StoreResult,
};
use postrider_core::{DeliveryId, LaneId, LaneKey, Timestamp};

use crate::work_signal::{NextWork, WorkSignal};

/// Tells consumers apart. Compared for equality only.
pub(crate) type HolderNonce = u64;

/// Nobody holds the queue.
pub(crate) const NOBODY: HolderNonce = 0;

/// The queue of a store, as its holder sees it. A call under another nonce than the holder's lists, leases and suspends
/// nothing; settlements and starts are fenced by their tokens.
#[async_trait]
pub(crate) trait HolderQueue: Send + Sync + 'static {
    fn signal(&self) -> &WorkSignal;

    /// Ends all leases and suspensions; from now on the queue is of this holder. With `crashed`, deliveries that were
    /// leased count as in flight at a crash.
    async fn take_over(&self, holder: HolderNonce, crashed: bool) -> StoreResult<()>;

    async fn ready_lanes(&self, holder: HolderNonce, limit: usize) -> StoreResult<Vec<ReadyLane>>;

    async fn lease(
        &self,
        holder: HolderNonce,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>>;

    async fn lease_expired(
        &self,
        holder: HolderNonce,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>>;

    async fn settle(&self, settlements: Vec<Settlement>) -> Vec<StoreResult<SettleResult>>;
    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>>;
    async fn wait_for_work(&self, at_most: Duration);
    fn suspend(&self, holder: HolderNonce, lane: LaneId, until: Timestamp);
    fn resume(&self, holder: HolderNonce, lane: Option<LaneId>);
}

/// The consumers of a store; the first one holds the queue.
#[derive(Default)]
pub(crate) struct HolderLine {
    state: Mutex<LineState>,
    first: AtomicU64,
}

#[derive(Default)]
struct LineState {
    line: VecDeque<(Box<str>, HolderNonce)>,
    last_nonce: HolderNonce,
    /// The last holder ended without handing over.
    crashed: bool,
}

impl HolderLine {
    /// The new consumer replaces an older one of the same name, or waits behind all others.
    fn join(&self, node: &str) -> HolderNonce {
        let mut state = self.state();
        state.last_nonce += 1;
        let nonce = state.last_nonce;
        match state.line.iter().position(|(name, _)| **name == *node) {
            Some(place) => {
                state.crashed |= place == 0;
                state.line[place].1 = nonce;
            }
            None => state.line.push_back((node.into(), nonce)),
        }
        self.update(&state);
        nonce
    }

    fn leave(&self, nonce: HolderNonce, crashed: bool) {
        let mut state = self.state();
        let Some(place) = state.line.iter().position(|(_, each)| *each == nonce) else { return };
        state.line.remove(place);
        state.crashed |= crashed && place == 0;
        self.update(&state);
    }

    fn is_first(&self, nonce: HolderNonce) -> bool {
        self.first.load(Ordering::Acquire) == nonce
    }

    fn update(&self, state: &LineState) {
        let first = state.line.front().map_or(NOBODY, |(_, nonce)| *nonce);
        self.first.store(first, Ordering::Release);
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A consumer of a store that has one queue.
pub(crate) struct QueueConsumer<Q: HolderQueue> {
    queue: Q,
    line: Arc<HolderLine>,
    nonce: HolderNonce,
    /// It holds the queue, and the leases of the holder before have ended.
    took_over: AtomicBool,
    taking_over: tokio::sync::Mutex<()>,
}

impl<Q: HolderQueue> QueueConsumer<Q> {
    /// Takes the queue over at once if nobody else holds it.
    pub(crate) async fn join(queue: Q, line: Arc<HolderLine>, node: &str) -> StoreResult<Self> {
        let nonce = line.join(node);
        queue.signal().notify();
        let (took_over, taking_over) = (AtomicBool::new(false), tokio::sync::Mutex::default());
        let consumer = Self { queue, line, nonce, took_over, taking_over };
        consumer.try_to_hold().await?;
        Ok(consumer)
    }

    fn holds(&self) -> bool {
        self.line.is_first(self.nonce) && self.took_over.load(Ordering::Acquire)
    }

    /// True if it holds the queue, which it takes over if it is its turn.
    async fn try_to_hold(&self) -> StoreResult<bool> {
        if self.holds() {
            return Ok(true);
        }
        let _alone = self.taking_over.lock().await;
        if !self.line.is_first(self.nonce) {
            return Ok(false);
        }
        if !self.took_over.load(Ordering::Acquire) {
            let crashed = self.line.state().crashed;
            self.queue.take_over(self.nonce, crashed).await?;
            self.line.state().crashed = false;
            self.took_over.store(true, Ordering::Release);
        }
        Ok(true)
    }
}

#[async_trait]
impl<Q: HolderQueue> Consumer for QueueConsumer<Q> {
    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        match self.try_to_hold().await? {
            true => self.queue.ready_lanes(self.nonce, limit).await,
            false => Ok(Vec::new()),
        }
    }

    async fn lease(
        &self,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        match self.try_to_hold().await? {
            true => self.queue.lease(self.nonce, lane, max, duration).await,
            false => Ok(Vec::new()),
        }
    }

    async fn lease_expired(
        &self,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        match self.try_to_hold().await? {
            true => self.queue.lease_expired(self.nonce, max, duration).await,
            false => Ok(Vec::new()),
        }
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Vec<StoreResult<SettleResult>> {
        self.queue.settle(settlements).await
    }

    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        self.queue.start(attempts).await
    }

    async fn wait_for_work(&self, at_most: Duration) {
        if self.holds() {
            return self.queue.wait_for_work(at_most).await;
        }
        let my_turn = |_| match self.line.is_first(self.nonce) {
            true => NextWork::Now,
            false => NextWork::At(None),
        };
        self.queue.signal().wait(at_most, my_turn).await;
    }

    fn suspend(&self, lane: LaneId, until: Timestamp) {
        self.queue.suspend(self.nonce, lane, until);
    }

    fn resume(&self, lane: Option<LaneId>) {
        self.queue.resume(self.nonce, lane);
    }

    fn leads(&self) -> bool {
        self.line.is_first(self.nonce)
    }

    async fn close(&self) {
        if self.holds() {
            // If this fails, the next holder does it, or the next start.
            let handed_over = self.queue.take_over(NOBODY, false).await;
            self.line.leave(self.nonce, handed_over.is_err());
        } else {
            self.line.leave(self.nonce, false);
        }
        self.queue.signal().notify();
    }
}

impl<Q: HolderQueue> Drop for QueueConsumer<Q> {
    fn drop(&mut self) {
        self.line.leave(self.nonce, true);
        self.queue.signal().notify();
    }
}
