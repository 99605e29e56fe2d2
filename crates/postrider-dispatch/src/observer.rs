//! What the dispatcher reports for metrics and logs. Never sees an endpoint or a payload.

use std::time::Duration;

use postrider_core::ports::store::StoreError;
use postrider_core::{
    AddressHash, AttemptRecord, DeadReason, DeliveryId, LaneKey, State, StrikeKind,
};

use crate::lanes::LaneEvent;

/// Called on the hot path: must be quick and must not block.
pub trait Observer: Send + Sync + 'static {
    /// A provider was called.
    fn attempted(
        &self,
        _lane: &LaneKey,
        _delivery: DeliveryId,
        _address: AddressHash,
        _attempt: &AttemptRecord,
    ) {
    }

    /// A delivery reached a final state, durably. `age` counts from its acceptance.
    fn finished(
        &self,
        _lane: &LaneKey,
        _delivery: DeliveryId,
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

    /// We ran out of something ourselves, so a delivery of the lane was put off. `what` is the code of the
    /// outcome.
    fn shortage(&self, _lane: &LaneKey, _what: &str) {}

    /// How many deliveries are leased and not yet durably settled, whenever that changes.
    fn in_flight(&self, _now: usize) {}

    /// Deliveries of a lane were taken up so long after they could have been: the server was busy with others. What
    /// they waited for a provider, a limit or an operator does not count.
    fn taken_up(&self, _late: Duration) {}

    /// The store failed; the dispatcher waits and tries again.
    fn store_trouble(&self, _doing: &'static str, _error: &StoreError) {}
}

pub struct NoObserver;

impl Observer for NoObserver {}
