//! A log of decisions that is durable before the decisions are. Never sees an endpoint.

use async_trait::async_trait;
use postrider_core::model::decision::Decision;
use postrider_core::{AddressHash, AttemptRecord, DeliveryId, LaneKey, Message, Timestamp};

/// What was decided about a delivery, and is not written yet.
#[derive(Debug, Clone, Copy)]
pub struct DecisionNotice<'a> {
    pub delivery: DeliveryId,
    pub message: &'a Message,
    pub lane: &'a LaneKey,
    pub address: AddressHash,
    /// The attempts under this lease.
    pub attempts: &'a [AttemptRecord],
    pub decision: &'a Decision,
    /// The address becomes suspect by it.
    pub suspected: bool,
    pub at: Timestamp,
}

#[async_trait]
pub trait DecisionLog: Send + Sync {
    /// Whether anybody wants to know anything; asked for every batch.
    fn is_wanted(&self) -> bool;

    /// Returns when the notices are durable, or when it gives up: decisions are written then. After a crash the same
    /// decision may be told again.
    async fn record(&self, notices: Vec<DecisionNotice<'_>>);
}
