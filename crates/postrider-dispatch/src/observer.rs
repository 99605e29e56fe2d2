//! What the dispatcher reports for metrics and logs. Never sees an endpoint or a payload.

use std::time::Duration;

use postrider_core::policy::audience::WithheldReason;
use postrider_core::ports::store::{LeasedDelivery, StoreError};
use postrider_core::{
    AddressHash, AttemptRecord, DeadReason, DeliveryId, Gate, LaneKey, Message, State, StrikeKind,
};

use crate::lanes::LaneEvent;

/// Why a leased delivery was put off without an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOff {
    /// Its address is left alone for a while.
    AddressRest,
    /// The rate limit of its address is used up.
    AddressRate,
    /// It is a retry, and the lane's budget for retries is used up.
    RetryBudget,
    /// Its recipient has quiet hours.
    QuietHours,
}

/// Called on the hot path: must be quick and must not block.
pub trait Observer: Send + Sync + 'static {
    /// Whether attempts become spans of their callers' traces.
    fn makes_spans(&self) -> bool {
        false
    }

    /// A provider was called.
    fn attempted(&self, _lane: &LaneKey, _leased: &LeasedDelivery, _attempt: &AttemptRecord) {}

    /// A delivery reached a final state, durably. `age` counts from its acceptance.
    fn finished(
        &self,
        _lane: &LaneKey,
        _delivery: DeliveryId,
        _message: &Message,
        _state: State,
        _reason: Option<DeadReason>,
        _age: Duration,
    ) {
    }

    /// A strike against an address was written. `suspected` says that it makes the address suspect.
    fn struck(&self, _lane: &LaneKey, _address: AddressHash, _kind: StrikeKind, _suspected: bool) {}

    /// A settlement came too late and was refused: the delivery was leased anew.
    fn fenced(&self, _delivery: DeliveryId) {}

    /// The gates of a lane's provider changed.
    fn lane_event(&self, _lane: &LaneKey, _event: LaneEvent) {}

    /// A check refused a lane its turn.
    fn lane_waits(&self, _lane: &LaneKey, _on: Gate) {}

    /// Leased deliveries of the lane were put off, without an attempt.
    fn put_off(&self, _lane: &LaneKey, _why: PutOff, _count: usize) {}

    /// A batch of decisions is durable; the first of them waited so long for it.
    fn settled(&self, _waited: Duration) {}

    /// We ran out of something ourselves, so a delivery of the lane was put off. `what` is the code of the
    /// outcome.
    fn shortage(&self, _lane: &LaneKey, _what: &str) {}

    /// How many deliveries are leased and not yet durably settled, whenever that changes.
    fn in_flight(&self, _now: usize) {}

    /// Deliveries of a lane were taken up so long after they could have been: the server was busy with others. What
    /// they waited for a provider, a limit or an operator does not count.
    fn taken_up(&self, _late: Duration) {}

    /// A delivery is suppressed: its recipient does not want it.
    fn withheld(&self, _lane: &LaneKey, _reason: WithheldReason) {}

    /// The store failed; the dispatcher waits and tries again.
    fn store_trouble(&self, _doing: &'static str, _error: &StoreError) {}
}

pub struct NoObserver;

impl Observer for NoObserver {}
