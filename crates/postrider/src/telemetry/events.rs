//! Live events: what happens to deliveries and their lanes, to whoever listens at this moment. Keeps nothing; a
//! listener that is too slow is told how much it missed.

use postrider_core::{
    AddressHash, AttemptRecord, DeadReason, DeliveryId, LaneKey, State, StrikeKind, TenantId,
    Timestamp,
};
use serde::Serialize;
use tokio::sync::broadcast;
use utoipa::ToSchema;

/// EventBus that a slow listener may be behind.
const BEHIND_MAX: usize = 4096;

/// One thing that happened to one delivery, or to a lane.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct EventBody {
    /// `attempted`, `finished`, `lane` or `address`.
    pub kind: &'static str,
    /// `dlv_…`; absent where it is about the lane or an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    pub tenant: String,
    pub channel: &'static str,
    pub class: String,
    /// Finished: the final state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// Finished as a dead letter: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Attempted: its number, what came of it and what follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
    /// Lane: `breaker_opened`, `retry_storm`, `credential_refused`, `mass_gone`, … Address: `strike`, or
    /// `suspect`: ask its owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<&'static str>,
    /// Lane: the provider's origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Lane: until when it waits, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// Address: its hash, and what it is blamed for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strike: Option<&'static str>,
}

/// Where events are told and heard.
pub struct EventBus(broadcast::Sender<EventBody>);

impl Default for EventBus {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND_MAX))
    }
}

impl EventBus {
    pub fn listen(&self) -> broadcast::Receiver<EventBody> {
        self.0.subscribe()
    }

    pub(super) fn attempted(&self, lane: &LaneKey, delivery: DeliveryId, record: &AttemptRecord) {
        self.tell(|| EventBody {
            attempt: Some(record.number),
            status: record.status,
            outcome: Some(record.outcome.name()),
            decision: Some(record.decision.name()),
            ..EventBody::about("attempted", lane, Some(delivery))
        });
    }

    pub(super) fn finished(
        &self,
        lane: &LaneKey,
        delivery: DeliveryId,
        state: State,
        reason: Option<DeadReason>,
    ) {
        self.tell(|| EventBody {
            state: Some(state.name()),
            reason: reason.map(DeadReason::name),
            ..EventBody::about("finished", lane, Some(delivery))
        });
    }

    pub(super) fn lane(&self, lane: &LaneKey, event: &'static str, until: Option<Timestamp>) {
        self.tell(|| EventBody {
            event: Some(event),
            provider: Some(lane.provider.to_string()),
            until_ms: until.map(|until| until.0),
            ..EventBody::about("lane", lane, None)
        });
    }

    pub(super) fn address(
        &self,
        lane: &LaneKey,
        address: AddressHash,
        event: &'static str,
        kind: StrikeKind,
    ) {
        self.tell(|| EventBody {
            event: Some(event),
            address_hash: Some(address.to_string()),
            strike: Some(kind.name()),
            ..EventBody::about("address", lane, None)
        });
    }

    /// Without a listener an event is not even made.
    fn tell(&self, event: impl FnOnce() -> EventBody) {
        if self.0.receiver_count() > 0 {
            let _ = self.0.send(event());
        }
    }
}

impl EventBody {
    fn about(kind: &'static str, lane: &LaneKey, delivery: Option<DeliveryId>) -> Self {
        Self {
            kind,
            delivery: delivery.map(|id| id.to_string()),
            tenant: lane.tenant.to_string(),
            channel: lane.channel.name(),
            class: lane.class.to_string(),
            state: None,
            reason: None,
            attempt: None,
            status: None,
            outcome: None,
            decision: None,
            event: None,
            provider: None,
            until_ms: None,
            address_hash: None,
            strike: None,
        }
    }

    /// Whether someone who sees `view` (`None`: all tenants) may see this.
    pub fn is_seen_by(&self, view: Option<&TenantId>) -> bool {
        view.is_none_or(|tenant| tenant.as_str() == self.tenant)
    }
}
