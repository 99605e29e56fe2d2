//! Response bodies for messages, deliveries and addresses. They show no endpoint, no token and no payload.

use std::collections::BTreeMap;
use std::fmt::Display;

use postrider_core::ports::store::{MessageView, Page};
use postrider_core::{
    Address, AddressStatus, AttemptRecord, Delivery, ReceiptRecord, State, StrikeKind, Timestamp,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::audience::facts::FactsBody;
use super::cursor;
use super::strikes::StrikeBody;

/// RFC 3339 in UTC, e.g. `2026-11-15T06:00:00.000Z`.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(value_type = String, format = DateTime)]
#[serde(transparent)]
pub(crate) struct Time(pub String);

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Self(at.to_string())
    }
}

/// The items of a page as bodies, and where the next page starts.
pub(crate) fn page<T, C: Display, B: From<T>>(page: Page<T, C>) -> (Vec<B>, Option<String>) {
    let next = page.next.map(|place| cursor::encode(&place));
    (page.items.into_iter().map(B::from).collect(), next)
}

/// A delivery's id and state.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DeliveryRef {
    /// `dlv_…`
    pub id: String,
    pub state: &'static str,
}

/// A message with the states of its deliveries.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct MessageBody {
    /// `msg_…`
    pub id: String,
    pub tenant: String,
    pub class: String,
    pub created_at: Time,
    pub expires_at: Time,
    pub ttl_s: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collapse_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub campaign: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub campaign_run: Option<String>,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    pub tags: Vec<String>,
    pub compliance: Vec<String>,
    /// The number of deliveries in each state.
    pub states: BTreeMap<&'static str, u64>,
    /// The first hundred; `GET /v1/deliveries?message=` lists all.
    pub deliveries: Vec<DeliveryRef>,
    /// Whether the body is still kept.
    pub has_content: bool,
}

impl From<MessageView> for MessageBody {
    fn from(view: MessageView) -> Self {
        let text = |t: Option<Box<str>>| t.map(String::from);
        let texts = |list: Vec<Box<str>>| list.into_iter().map(String::from).collect();
        Self {
            id: view.id.to_string(),
            tenant: view.tenant.to_string(),
            class: view.class.to_string(),
            created_at: view.created_at.into(),
            expires_at: view.expires_at.into(),
            ttl_s: view.ttl_s,
            collapse_key: text(view.envelope.collapse_key),
            idempotency_key: text(view.envelope.idempotency_key),
            campaign: text(view.envelope.campaign),
            campaign_run: text(view.envelope.campaign_run),
            category: text(view.envelope.category),
            tags: texts(view.envelope.tags),
            compliance: texts(view.envelope.compliance),
            states: view.states.into_iter().map(|(state, n)| (state.name(), n)).collect(),
            deliveries: view
                .deliveries
                .into_iter()
                .map(|(id, state)| DeliveryRef { id: id.to_string(), state: state.name() })
                .collect(),
            has_content: view.has_content,
        }
    }
}

/// One call to a provider.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct AttemptBody {
    pub number: u32,
    pub at: Time,
    pub latency_ms: u32,
    pub outcome: &'static str,
    pub decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The account that it went through, where the channel has accounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Time>,
    /// Whether it counts against the retry policy.
    pub counted: bool,
    /// The strike against the address that follows from the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strike: Option<&'static str>,
}

impl From<AttemptRecord> for AttemptBody {
    fn from(record: AttemptRecord) -> Self {
        Self {
            number: record.number,
            at: record.at.into(),
            latency_ms: record.latency_ms,
            outcome: record.outcome.name(),
            decision: record.decision.name(),
            status: record.status,
            code: record.code,
            detail: record.detail,
            retry_after: record.retry_after,
            provider_id: record.provider_id,
            account: record.account.map(String::from),
            next_at: record.next_at.map(Into::into),
            counted: record.counted,
            strike: record.strike.map(StrikeKind::name),
        }
    }
}

/// One message to one address, with its history.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DeliveryBody {
    /// `dlv_…`: the correlation id of all attempts.
    pub id: String,
    /// `msg_…`
    pub message: String,
    pub tenant: String,
    pub channel: String,
    /// The provider's origin.
    pub provider: String,
    pub class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// A keyed hash: the endpoint itself is not shown.
    pub address_hash: String,
    pub state: &'static str,
    /// Why it is a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Attempts that count against the retry policy.
    pub attempts: u32,
    pub created_at: Time,
    pub changed_at: Time,
    pub expires_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Time>,
    /// Parked until it is released, because it comes from a backup.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    pub log: Vec<AttemptBody>,
    /// What the far end reported, in the order in which it came; each kind once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub receipts: Vec<ReceiptBody>,
}

/// What the far end reported about a delivery after its provider accepted it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct ReceiptBody {
    /// `delivered`, `displayed`, `clicked`, `dismissed`, `late`, `bounced` or `undelivered`.
    pub event: &'static str,
    /// When it happened.
    pub at: Time,
    pub recorded_at: Time,
}

impl From<ReceiptRecord> for ReceiptBody {
    fn from(receipt: ReceiptRecord) -> Self {
        let ReceiptRecord { kind, at, recorded_at } = receipt;
        Self { event: kind.name(), at: at.into(), recorded_at: recorded_at.into() }
    }
}

impl From<Delivery> for DeliveryBody {
    fn from(delivery: Delivery) -> Self {
        Self {
            id: delivery.id.to_string(),
            message: delivery.message.to_string(),
            tenant: delivery.tenant.to_string(),
            channel: delivery.channel.to_string(),
            provider: delivery.provider.to_string(),
            class: delivery.class.to_string(),
            recipient: delivery.recipient.map(|r| r.to_string()),
            address: delivery.address.map(|a| a.to_string()),
            address_hash: delivery.address_hash.to_string(),
            state: delivery.state.name(),
            reason: delivery.reason.filter(|_| delivery.state == State::Failed).map(|r| r.name()),
            attempts: delivery.attempts,
            created_at: delivery.created_at.into(),
            changed_at: delivery.changed_at.into(),
            expires_at: delivery.expires_at.into(),
            due_at: delivery.due_at.map(Into::into),
            held: delivery.held,
            log: delivery.log.into_iter().map(Into::into).collect(),
            receipts: delivery.receipts.into_iter().map(Into::into).collect(),
        }
    }
}

/// A page of deliveries, newest first.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct DeliveryPage {
    pub items: Vec<DeliveryBody>,
    /// Where the next page starts: pass it as `cursor`. Also a page that is not full can have a next one.
    pub next: Option<String>,
}

/// A registered address. The endpoint and its keys are not shown.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct AddressBody {
    /// `adr_…`
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    pub channel: String,
    /// `active`, `suspect`, `gone` or `expired`.
    #[schema(value_type = String)]
    pub status: AddressStatus,
    pub hash: String,
    pub created_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<Time>,
    /// Strikes against it since it last worked. Only when one address is requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub strikes: Vec<StrikeBody>,
    /// Zone, locale and consents. Only when one address is requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<FactsBody>,
}

impl From<Address> for AddressBody {
    fn from(address: Address) -> Self {
        Self {
            id: address.id.to_string(),
            recipient: address.recipient.map(|r| r.to_string()),
            channel: address.channel.to_string(),
            status: address.status,
            hash: address.hash.to_string(),
            created_at: address.created_at.into(),
            gone_at: address.gone_at.map(Into::into),
            strikes: Vec::new(),
            facts: None,
        }
    }
}

/// A page of addresses, oldest first.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct AddressPage {
    pub items: Vec<AddressBody>,
    pub next: Option<String>,
}
