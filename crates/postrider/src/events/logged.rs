//! One event as it is logged, sent and shown. Holds no endpoint, no recipient and no payload.

use std::fmt::Display;

use postrider_core::model::decision::Decision;
use postrider_core::policy::problems::{ProblemChange, ProblemRecord};
use postrider_core::{
    Address, Delivery, LaneKey, MessageId, ReceiptKind, State, TenantId, Timestamp,
};
use postrider_dispatch::decision_log::DecisionNotice;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::EventKind;

/// Something that happened. A field that means nothing for its type is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LoggedEvent {
    /// The same whenever the same event is told again, so that a receiver can leave out repeats.
    pub id: String,
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "delivery.sent")]
    pub kind: EventKind,
    /// When it happened.
    #[schema(example = "2026-11-18T06:00:00.000Z")]
    pub at: String,
    /// Whose it is; absent for what concerns the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `dlv_…`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// `msg_…`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// An origin, or the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The tags of the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign: Option<String>,
    /// The state that the delivery has from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The reason of a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The status of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What its answer means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// The provider's code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// `adr_…`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Stands for the endpoint, which is not shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_hash: Option<String>,
    /// Of a cancelled message, how many deliveries were cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<EventProblem>,
}

/// The problem that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct EventProblem {
    /// `prb_…`
    pub id: String,
    /// Such as `breaker_open`.
    pub kind: String,
    pub title: String,
    /// `notice`, `warning` or `critical`.
    pub severity: String,
    /// What was found; left out for a tenant if others are concerned, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
}

impl LoggedEvent {
    pub(crate) fn new(kind: EventKind, id: String, at: Timestamp) -> Self {
        Self {
            id,
            kind,
            at: at.to_string(),
            tenant: None,
            delivery: None,
            message: None,
            channel: None,
            provider: None,
            class: None,
            tags: Vec::new(),
            campaign: None,
            state: None,
            reason: None,
            attempt: None,
            status: None,
            outcome: None,
            code: None,
            next_at: None,
            address: None,
            address_hash: None,
            count: None,
            problem: None,
        }
    }

    fn of_tenant(kind: EventKind, tenant: &TenantId, subject: &dyn Display, at: Timestamp) -> Self {
        let id = event_id(kind, &format_args!("{tenant}.{subject}"));
        Self { tenant: Some(tenant.to_string()), ..Self::new(kind, id, at) }
    }

    /// What follows from a decision about a delivery; none if nothing happened to it.
    pub(crate) fn of_decision(notice: &DecisionNotice<'_>) -> Vec<Self> {
        let mut events = Vec::new();
        let lane = notice.lane;
        if let Some((kind, state)) = kind_and_state(notice) {
            let envelope = &notice.message.envelope;
            let last = notice.attempts.last();
            let attempt = last.map(|attempt| attempt.number);
            let subject = format!("{}.{}", notice.delivery, attempt.unwrap_or(0));
            let mut event = Self {
                delivery: Some(notice.delivery.to_string()),
                message: Some(notice.message.id.to_string()),
                tags: envelope.tags.iter().map(ToString::to_string).collect(),
                campaign: envelope.campaign.as_ref().map(ToString::to_string),
                state: Some(state.name().to_owned()),
                reason: notice.decision.dead_reason().map(|reason| reason.name().to_owned()),
                attempt,
                ..Self::of_tenant(kind, &lane.tenant, &subject, notice.at)
            };
            if let Some(last) = last {
                event.status = last.status;
                event.outcome = Some(last.outcome.name().to_owned());
                event.code.clone_from(&last.code);
                event.next_at = last.next_at.map(|at| at.to_string());
            }
            events.push(event.at_lane(lane, notice.address));
        }
        let is_gone = matches!(notice.decision, Decision::MarkGone);
        for (kind, happened) in
            [(EventKind::AddressGone, is_gone), (EventKind::AddressSuspect, notice.suspected)]
        {
            if happened {
                let subject = format!("{}.{}", notice.address, notice.delivery);
                let event = Self::of_tenant(kind, &lane.tenant, &subject, notice.at);
                events.push(event.at_lane(lane, notice.address));
            }
        }
        events
    }

    fn at_lane(self, lane: &LaneKey, address: postrider_core::AddressHash) -> Self {
        Self {
            channel: Some(lane.channel.to_string()),
            provider: Some(lane.provider.to_string()),
            class: Some(lane.class.to_string()),
            address_hash: Some(address.to_string()),
            ..self
        }
    }

    /// What follows from a receipt that gives a delivery this state. Such events have no tags and no campaign.
    pub(crate) fn of_receipt(
        delivery: &Delivery,
        receipt: ReceiptKind,
        state: State,
        at: Timestamp,
    ) -> Option<Self> {
        let kind = match state {
            State::Delivered => EventKind::DeliveryDelivered,
            State::Seen => EventKind::DeliverySeen,
            State::Clicked => EventKind::DeliveryClicked,
            State::Dismissed => EventKind::DeliveryDismissed,
            State::Gone => EventKind::DeliveryGone,
            _ => return None,
        };
        let subject = format!("{}.{receipt}", delivery.id);
        Some(Self {
            delivery: Some(delivery.id.to_string()),
            message: Some(delivery.message.to_string()),
            channel: Some(delivery.channel.to_string()),
            provider: Some(delivery.provider.to_string()),
            class: Some(delivery.class.to_string()),
            address_hash: Some(delivery.address_hash.to_string()),
            state: Some(state.name().to_owned()),
            ..Self::of_tenant(kind, &delivery.tenant, &subject, at)
        })
    }

    /// A registered address was added, renewed or deleted.
    pub(crate) fn of_address(kind: EventKind, address: &Address, at: Timestamp) -> Self {
        let subject = format!("{}.{}", address.id, at.0);
        Self {
            channel: Some(address.channel.to_string()),
            address: Some(address.id.to_string()),
            address_hash: Some(address.hash.to_string()),
            ..Self::of_tenant(kind, &address.tenant, &subject, at)
        }
    }

    pub(crate) fn of_cancel(
        tenant: &TenantId,
        message: MessageId,
        count: u64,
        at: Timestamp,
    ) -> Self {
        let subject = format!("{message}.{}", at.0);
        Self {
            message: Some(message.to_string()),
            count: Some(count),
            ..Self::of_tenant(EventKind::MessageCancelled, tenant, &subject, at)
        }
    }

    /// One event for the server and one for each tenant that the problem concerns.
    pub(crate) fn of_problem(change: &ProblemChange, record: &ProblemRecord) -> Vec<Self> {
        let (kind, at) = match change {
            ProblemChange::Opened | ProblemChange::Reopened => {
                (EventKind::ProblemOpened, record.opened_at)
            }
            ProblemChange::Resolved => {
                (EventKind::ProblemResolved, record.resolved_at.unwrap_or(record.seen_at))
            }
            ProblemChange::Updated => return Vec::new(),
        };
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let subject = format!("{}.{}", record.id, record.reopened);
        let problem = |what: Option<String>| EventProblem {
            id: record.id.clone(),
            kind: record.key.kind.name().to_owned(),
            title: record.key.kind.title().to_owned(),
            severity: record.severity.name().to_owned(),
            what,
        };
        let of_server = Self {
            channel: given(&record.key.channel),
            provider: given(&record.key.provider),
            outcome: given(&record.key.outcome),
            problem: Some(problem(Some(record.what.clone()))),
            ..Self::new(kind, event_id(kind, &subject), at)
        };
        let of_tenant = |tenant: &TenantId| {
            let what = (record.only_tenant() == Some(tenant)).then(|| record.what.clone());
            Self {
                id: event_id(kind, &format_args!("{tenant}.{subject}")),
                tenant: Some(tenant.to_string()),
                problem: Some(problem(what)),
                ..of_server.clone()
            }
        };
        let of_tenants: Vec<_> = record.tenants.keys().map(of_tenant).collect();
        [of_server].into_iter().chain(of_tenants).collect()
    }

    /// A test of a subscription.
    pub(crate) fn test(tenant: Option<&TenantId>, at: Timestamp) -> Self {
        let kind = EventKind::SubscriptionTest;
        let id = event_id(kind, &at.0);
        Self { tenant: tenant.map(ToString::to_string), ..Self::new(kind, id, at) }
    }
}

/// The type and the state from then on. Nothing happened if no call was made and the delivery is still pending.
fn kind_and_state(notice: &DecisionNotice<'_>) -> Option<(EventKind, State)> {
    let is_attempted = !notice.attempts.is_empty();
    Some(match notice.decision {
        Decision::Done => (EventKind::DeliverySent, State::Sent),
        Decision::Expire => (EventKind::DeliveryExpired, State::Expired),
        Decision::Cancel => (EventKind::DeliveryCancelled, State::Cancelled),
        Decision::Drop | Decision::Suppress => (EventKind::DeliverySuppressed, State::Suppressed),
        Decision::AddressGone | Decision::MarkGone => (EventKind::DeliveryGone, State::Gone),
        Decision::DeadLetter(_) => (EventKind::DeliveryFailed, State::Failed),
        Decision::Retry { .. } if is_attempted => (EventKind::DeliveryRetrying, State::Retrying),
        Decision::Park { .. } if is_attempted => (EventKind::DeliveryParked, State::Parked),
        Decision::FallBack => (EventKind::DeliveryFellBack, State::Queued),
        Decision::Retry { .. }
        | Decision::Park { .. }
        | Decision::Again { .. }
        | Decision::Release => return None,
    })
}

/// The same for the same event.
fn event_id(kind: EventKind, subject: &dyn Display) -> String {
    use base64::Engine as _;
    let text = format!("{kind}.{subject}");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    let digest = digest.as_ref().get(..16).unwrap_or_default();
    format!("evt_{}", base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest))
}
