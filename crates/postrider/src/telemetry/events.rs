//! Live events: what happens to deliveries, to whoever listens at this moment. Keeps nothing; a
//! listener that is too slow is told how much it missed.

use postrider_core::{AttemptRecord, DeadReason, DeliveryId, LaneKey, State, TenantId};
use serde::Serialize;
use tokio::sync::broadcast;
use utoipa::ToSchema;

/// Events that a slow listener may be behind.
const BEHIND_MAX: usize = 4096;

/// One thing that happened to one delivery.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct EventBody {
    /// `attempted` or `finished`.
    pub kind: &'static str,
    /// `dlv_…`
    pub delivery: String,
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
    pub outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
}

/// Where events are told and heard.
pub struct Events(broadcast::Sender<EventBody>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND_MAX))
    }
}

impl Events {
    pub fn listen(&self) -> broadcast::Receiver<EventBody> {
        self.0.subscribe()
    }

    pub(super) fn attempted(&self, lane: &LaneKey, delivery: DeliveryId, record: &AttemptRecord) {
        self.tell(|| EventBody {
            attempt: Some(record.number),
            status: record.status,
            outcome: Some(record.outcome.to_string()),
            decision: Some(record.decision.to_string()),
            ..EventBody::about("attempted", lane, delivery)
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
            ..EventBody::about("finished", lane, delivery)
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
    fn about(kind: &'static str, lane: &LaneKey, delivery: DeliveryId) -> Self {
        Self {
            kind,
            delivery: delivery.to_string(),
            tenant: lane.tenant.to_string(),
            channel: lane.channel.name(),
            class: lane.class.to_string(),
            state: None,
            reason: None,
            attempt: None,
            status: None,
            outcome: None,
            decision: None,
        }
    }

    /// Whether someone who sees `view` (`None`: all tenants) may see this.
    pub fn is_seen_by(&self, view: Option<&TenantId>) -> bool {
        view.is_none_or(|tenant| tenant.as_str() == self.tenant)
    }
}
