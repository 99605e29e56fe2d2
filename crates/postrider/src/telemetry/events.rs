//! Live events about deliveries, lanes and addresses, for everyone who listens at this moment. Stores
//! nothing. A listener that is too slow learns how many events it missed.

use postrider_core::{Delivery, DeliveryId, LaneKey, TenantId};
use serde::Serialize;
use tokio::sync::broadcast;
use utoipa::ToSchema;

/// How many events a slow listener may be behind.
const BEHIND_MAX: usize = 4096;

/// One event about a delivery, a lane or an address.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct EventBody {
    /// `attempted`, `finished`, `receipt`, `lane` or `address`.
    pub kind: &'static str,
    /// `dlv_…`; absent if the event is about a lane or an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    pub tenant: String,
    pub channel: String,
    pub class: String,
    /// `finished`: the final state; `receipt`: the state since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// `finished`: the reason of a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// `attempted`: the number of the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
    /// `lane`: `breaker_opened`, `retry_storm`, `credential_refused`, `mass_gone`, … `address`: `strike` or
    /// `suspect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<&'static str>,
    /// `lane`: the origin of the provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// `lane`: whom it concerns: one `tenant` at the provider, or all who use the `provider`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<&'static str>,
    /// `lane`: until when it waits, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// `address`: its hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strike: Option<&'static str>,
}

/// Publishes events to all listeners.
pub struct EventBus(broadcast::Sender<EventBody>);

impl Default for EventBus {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND_MAX))
    }
}

impl EventBus {
    pub fn subscribe(&self) -> broadcast::Receiver<EventBody> {
        self.0.subscribe()
    }

    /// Builds the event only if somebody listens.
    pub(super) fn publish(&self, event: impl FnOnce() -> EventBody) {
        if self.0.receiver_count() > 0 {
            let _ = self.0.send(event());
        }
    }
}

impl EventBody {
    pub(super) fn about(kind: &'static str, lane: &LaneKey, delivery: Option<DeliveryId>) -> Self {
        Self {
            kind,
            delivery: delivery.map(|id| id.to_string()),
            tenant: lane.tenant.to_string(),
            channel: lane.channel.to_string(),
            class: lane.class.to_string(),
            ..Self::default()
        }
    }

    pub(super) fn of_receipt(delivery: &Delivery) -> Self {
        Self {
            kind: "receipt",
            delivery: Some(delivery.id.to_string()),
            tenant: delivery.tenant.to_string(),
            channel: delivery.channel.to_string(),
            class: delivery.class.to_string(),
            ..Self::default()
        }
    }

    /// Whether a caller with this view may see it; `None` sees all tenants.
    pub fn is_seen_by(&self, view: Option<&TenantId>) -> bool {
        view.is_none_or(|tenant| tenant.as_str() == self.tenant)
    }
}
