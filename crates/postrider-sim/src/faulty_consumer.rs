//! A worker's consumer on a disk with faults. Shows every lease and settlement to the oracle first.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::{
    Consumer, LeasedDelivery, ReadyLane, SettleResult, Settlement, StoreResult,
};
use postrider_core::{DeliveryId, LaneId, LaneKey, Timestamp};

use crate::faulty_disk::{FaultyDisk, StoreOp};
use crate::oracle::EventTime;

pub(crate) struct FaultyConsumer {
    pub(crate) inner: Arc<dyn Consumer>,
    pub(crate) disk: Arc<FaultyDisk>,
}

/// The same result for each, or the answers.
pub(crate) fn each<T>(answers: StoreResult<Vec<T>>, count: usize) -> Vec<StoreResult<T>> {
    match answers {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
    }
}

impl FaultyConsumer {
    fn next_event(&self) -> EventTime {
        self.disk.world.with(|state| {
            let now = state.now();
            state.oracle.next_event(now)
        })
    }

    fn check_leased(&self, leased: &[LeasedDelivery], lasts: Duration, asked: EventTime) {
        self.disk.storage.wait_until_idle();
        self.disk.world.with(|state| {
            let now = state.now();
            let result = state.oracle.leased(leased, lasts, asked, now);
            for one in leased {
                let which = state.oracle.find(one.delivery).unwrap_or(usize::MAX);
                state.note("lease", which, "", one.attempts.into());
            }
            state.report_violation(result);
        });
    }

    async fn settle_all(&self, settlements: Vec<Settlement>) -> StoreResult<Vec<SettleResult>> {
        let after = self.disk.enter(StoreOp::Settle).await?;
        let answers = self.disk.ask(self.inner.settle(settlements.clone()));
        let answers = answers.into_iter().collect::<StoreResult<Vec<_>>>()?;
        if !after.torn {
            self.disk.world.with(|state| {
                let now = state.now();
                let result = state.oracle.settled(&settlements, &answers, now);
                for (one, answer) in settlements.iter().zip(&answers) {
                    let which = state.oracle.find(one.delivery).unwrap_or(usize::MAX);
                    let how = crate::oracle::decision_name(&one.decision);
                    let what = if *answer == SettleResult::Done { "settle" } else { "fenced" };
                    state.note(what, which, how, one.attempts.len() as i64);
                }
                state.report_violation(result);
            });
        }
        self.disk.leave(after, answers).await
    }
}

#[async_trait]
impl Consumer for FaultyConsumer {
    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        let after = self.disk.enter(StoreOp::Look).await?;
        let ready = self.disk.ask(self.inner.ready_lanes(limit))?;
        self.disk.leave(after, ready).await
    }

    async fn lease(
        &self,
        lane: LaneId,
        max: usize,
        lasts: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        let asked = self.next_event();
        let after = self.disk.enter(StoreOp::Lease).await?;
        let leased = self.disk.ask(self.inner.lease(lane, max, lasts))?;
        self.check_leased(&leased, lasts, asked);
        self.disk.leave(after, leased).await
    }

    async fn lease_expired(
        &self,
        max: usize,
        lasts: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        let asked = self.next_event();
        let after = self.disk.enter(StoreOp::Lease).await?;
        let expired = self.disk.ask(self.inner.lease_expired(max, lasts))?;
        let leased: Vec<_> = expired.iter().map(|(_, leased)| leased.clone()).collect();
        self.check_leased(&leased, lasts, asked);
        self.disk.leave(after, expired).await
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Vec<StoreResult<SettleResult>> {
        let count = settlements.len();
        each(self.settle_all(settlements).await, count)
    }

    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        let after = self.disk.enter(StoreOp::Settle).await?;
        let answers = self.disk.ask(self.inner.start(attempts.clone()))?;
        if !after.torn {
            self.disk.world.with(|state| {
                let result = state.oracle.started(&attempts, &answers);
                state.report_violation(result);
            });
        }
        self.disk.leave(after, answers).await
    }

    async fn wait_for_work(&self, at_most: Duration) {
        if self.disk.world.is_dead() {
            return std::future::pending().await;
        }
        self.disk.waiters.wait(self.inner.wait_for_work(at_most)).await;
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
        if self.disk.world.is_dead() {
            return std::future::pending().await;
        }
        self.disk.ask(self.inner.close());
    }
}
