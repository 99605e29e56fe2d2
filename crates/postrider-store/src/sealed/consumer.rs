//! The way out: what is leased is opened, and what is learned about an address is sealed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, LaneId, LaneKey, Message, Timestamp};

use super::DataKeys;
use super::cipher::{FieldKind, OpenError};

pub(super) struct SealedConsumer {
    pub(super) inner: Arc<dyn Consumer>,
    pub(super) store: Arc<dyn Store>,
    pub(super) keys: Arc<DataKeys>,
}

/// The message that was opened last: neighbours often share it.
#[derive(Default)]
struct LastMessage(Option<(Arc<Message>, Arc<Message>)>);

impl SealedConsumer {
    async fn open(&self, leased: &mut LeasedDelivery, last: &mut LastMessage) -> StoreResult<()> {
        if let Err(error) = self.open_parts(leased, last).await? {
            let halt = match error {
                OpenError::KeyDestroyed => Halt::Cancelled,
                OpenError::Damaged => {
                    tracing::error!(delivery = %leased.delivery, "a delivery cannot be decrypted");
                    Halt::Unreadable
                }
            };
            leased.halt = leased.halt.or(Some(halt));
        }
        Ok(())
    }

    async fn open_parts(
        &self,
        leased: &mut LeasedDelivery,
        last: &mut LastMessage,
    ) -> StoreResult<Result<(), OpenError>> {
        let tenant = leased.message.tenant.clone();
        leased.recipient = self.keys.open_recipient(&tenant, leased.recipient.take()).await?;
        match self.keys.open_target(&tenant, &leased.target).await? {
            Ok(Some(target)) => leased.target = Arc::new(target),
            Ok(None) => {}
            Err(error) => return Ok(Err(error)),
        }
        for other in &mut leased.alternatives {
            match self.keys.open_target(&tenant, &other.target).await? {
                Ok(Some(target)) => other.target = Arc::new(target),
                Ok(None) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        if let LastMessage(Some((sealed, opened))) = last
            && Arc::ptr_eq(sealed, &leased.message)
        {
            leased.message = opened.clone();
            return Ok(Ok(()));
        }
        let content =
            match self.keys.open(&tenant, FieldKind::Content, &leased.message.content).await? {
                Ok(content) => Arc::from(content),
                Err(error) => return Ok(Err(error)),
            };
        let opened = Arc::new(Message { content, ..(*leased.message).clone() });
        let sealed = std::mem::replace(&mut leased.message, opened.clone());
        *last = LastMessage(Some((sealed, opened)));
        Ok(Ok(()))
    }

    /// Seals a new target. That is rare, so the tenant is looked up.
    async fn seal_learned(&self, settlement: &mut Settlement) -> StoreResult<()> {
        let Some(target) = &settlement.learned.target else { return Ok(()) };
        let Some(delivery) = self.store.delivery(None, settlement.delivery).await? else {
            settlement.learned.target = None;
            return Ok(());
        };
        let sealed = self.keys.seal_target(&delivery.tenant, target).await?;
        settlement.learned.target = Some(Arc::new(sealed));
        Ok(())
    }
}

#[async_trait]
impl Consumer for SealedConsumer {
    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>> {
        self.inner.ready_lanes(limit).await
    }

    async fn lease(
        &self,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>> {
        let mut leased = self.inner.lease(lane, max, duration).await?;
        let mut last = LastMessage::default();
        for delivery in &mut leased {
            self.open(delivery, &mut last).await?;
        }
        Ok(leased)
    }

    async fn lease_expired(
        &self,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>> {
        let mut leased = self.inner.lease_expired(max, duration).await?;
        let mut last = LastMessage::default();
        for (_, delivery) in &mut leased {
            self.open(delivery, &mut last).await?;
        }
        Ok(leased)
    }

    async fn settle(&self, mut settlements: Vec<Settlement>) -> Vec<StoreResult<SettleResult>> {
        for settlement in &mut settlements {
            if let Err(error) = self.seal_learned(settlement).await {
                // What was learned is lost; the result of the attempt is not.
                tracing::warn!(%error, "a new fact about an address cannot be encrypted");
                settlement.learned.target = None;
            }
        }
        self.inner.settle(settlements).await
    }

    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>> {
        self.inner.start(attempts).await
    }

    async fn wait_for_work(&self, at_most: Duration) {
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

    fn part(&self) -> f64 {
        self.inner.part()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
