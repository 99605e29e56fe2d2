//! Writes decisions to the store, many at a time. It drops none while the store can recover: it retries
//! a failing store, and meanwhile nothing new is leased.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::ports::store::{Consumer, SettleResult, Settlement, StoreError};
use postrider_core::{AddressHash, Clock, LaneKey, Message, Timestamp};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::decision_log::{DecisionLog, DecisionNotice};
use crate::observer::Observer;
use crate::policies::Policies;
use crate::unsettled_limit::UnsettledLimit;

/// A settlement to be written, with what the observer is told once it is durable.
pub(crate) struct PendingSettlement {
    pub(crate) settlement: Settlement,
    pub(crate) message: Arc<Message>,
    pub(crate) lane: Arc<LaneKey>,
    pub(crate) hash: AddressHash,
    /// Its address becomes suspect by it.
    pub(crate) suspected: bool,
    pub(crate) accepted_at: Timestamp,
    pub(crate) decided_at: Timestamp,
}

pub(crate) struct Settler {
    pub(crate) consumer: Arc<dyn Consumer>,
    pub(crate) unsettled: Arc<UnsettledLimit>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Absent if nobody keeps a log.
    pub(crate) log: Option<Arc<dyn DecisionLog>>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) clock: Arc<dyn Clock>,
}

const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

impl Settler {
    /// Runs until every sender is gone and everything is written.
    pub(crate) async fn run(self, mut queue: mpsc::UnboundedReceiver<PendingSettlement>) {
        let mut batch = Vec::with_capacity(self.policies.now().limits.settle_batch);
        while let Some(first) = queue.recv().await {
            batch.push(first);
            self.collect(&mut queue, &mut batch).await;
            self.log_before_writing(&batch).await;
            self.write(&mut batch).await;
            if queue.is_empty() {
                self.unsettled.resume();
            }
        }
    }

    /// Takes what is there; if that is little, waits a moment for more to share the same fsync.
    async fn collect(
        &self,
        queue: &mut mpsc::UnboundedReceiver<PendingSettlement>,
        batch: &mut Vec<PendingSettlement>,
    ) {
        let policy = self.policies.now();
        let (batch_max, linger) = (policy.limits.settle_batch.max(1), policy.limits.settle_linger);
        let room = |batch: &Vec<PendingSettlement>| batch_max.saturating_sub(batch.len());
        while room(batch) > 0 {
            match queue.try_recv() {
                Ok(next) => batch.push(next),
                Err(_) => break,
            }
        }
        // Nothing else is under way that could join.
        if linger.is_zero() || batch.len() >= self.unsettled.unsettled() {
            return;
        }
        let _ = timeout(linger, async {
            while room(batch) > 0 {
                match queue.recv().await {
                    Some(next) => batch.push(next),
                    None => break,
                }
            }
        })
        .await;
    }

    /// A decision is logged before it is written, so that none is written that the log lacks.
    async fn log_before_writing(&self, batch: &[PendingSettlement]) {
        let Some(log) = &self.log else { return };
        if log.is_wanted() {
            log.record(batch.iter().map(notice).collect()).await;
        }
    }

    /// Writes the batch. What cannot be written is tried again without the rest, which need not wait for it.
    async fn write(&self, batch: &mut Vec<PendingSettlement>) {
        let mut pause = RETRY_FIRST;
        while !batch.is_empty() {
            let settlements = batch.iter().map(|p| p.settlement.clone()).collect();
            let results = self.consumer.settle(settlements).await;
            let (mut written, mut trouble) = (Vec::with_capacity(batch.len()), None);
            for (pending, result) in std::mem::take(batch).into_iter().zip(results) {
                match result {
                    Ok(result) => written.push((pending, result)),
                    // What was not written is due again at the next start.
                    Err(StoreError::Closed) => self.unsettled.settled(1),
                    Err(error) => {
                        batch.push(pending);
                        trouble = Some(error);
                    }
                }
            }
            self.unsettled.settled(written.len());
            self.observer.in_flight(self.unsettled.unsettled());
            if let Some((first, _)) = written.first() {
                self.observer.settled(self.clock.now().since(first.decided_at));
            }
            written.iter().for_each(|(pending, result)| self.tell(pending, *result));
            if let Some(error) = trouble {
                self.unsettled.hold();
                self.observer.store_trouble("settle", &error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_MAX);
            }
        }
    }

    fn tell(&self, pending: &PendingSettlement, result: SettleResult) {
        let delivery = pending.settlement.delivery;
        if result == SettleResult::Fenced {
            self.observer.fenced(delivery);
            return;
        }
        if let Some(struck) = pending.settlement.learned.strike {
            self.observer.struck(&pending.lane, pending.hash, struck.kind, pending.suspected);
        }
        let decision = &pending.settlement.decision;
        if let Some(state) = decision.final_state() {
            let reason = decision.dead_reason();
            let age = pending.decided_at.since(pending.accepted_at);
            let message = &pending.message;
            self.observer.finished(&pending.lane, delivery, message, state, reason, age);
        }
    }
}

fn notice(pending: &PendingSettlement) -> DecisionNotice<'_> {
    let settlement = &pending.settlement;
    DecisionNotice {
        delivery: settlement.delivery,
        message: &pending.message,
        lane: &pending.lane,
        address: pending.hash,
        attempts: &settlement.attempts,
        decision: &settlement.decision,
        suspected: pending.suspected,
        at: pending.decided_at,
    }
}

/// Where attempts hand in decisions.
#[derive(Clone)]
pub(crate) struct SettlementQueue(pub(crate) mpsc::UnboundedSender<PendingSettlement>);

impl SettlementQueue {
    /// Never blocks: the queue is bounded by what may be unsettled at all ([`UnsettledLimit::room`]).
    pub(crate) fn push(&self, pending: PendingSettlement) {
        let _: Result<(), mpsc::error::SendError<PendingSettlement>> = self.0.send(pending);
    }
}
