//! The filter of lists, jobs and exports of deliveries and dead letters: the same names everywhere.

use postrider_core::ports::store::DeliveryFilter;
use postrider_core::{DeadReason, MessageId, State as DeliveryState};

use super::parameters::{channel, name, optional_id, reasons, states, time};
use super::prelude::*;

const TEXT_MAX: usize = 256;
const ERROR_MAX: usize = 1_024;

/// Which deliveries or dead letters; `{}` selects all of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = DeliveryFilter)]
pub(crate) struct DeliveryFilterBody {
    /// Deliveries only: a state such as `retrying`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why they are dead letters: `permanent`, `retries_exhausted`, `ttl`, `poison`, `ambiguous` or `refused`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A channel, e.g. `webhook`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The provider of the delivery, e.g. `https://hooks.example.com`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The account that the last attempt went through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Part of the last attempt's code or detail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Exactly the last attempt's code, or its detail if it has no code; empty for those with neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_is: Option<String>,
    /// One of the tags of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub campaign: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// `msg_…`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Those of the message that was accepted under this key, while the key is remembered. Needs one tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Deliveries only: those that are held until they are released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// Not older than this (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Older than this (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl DeliveryFilterBody {
    /// The same for the store. `None` if nothing can match, because nobody knows the idempotency key.
    pub(crate) async fn read(
        self,
        app: &SharedState,
        tenant: Option<TenantId>,
    ) -> ApiResult<Option<DeliveryFilter>> {
        let mut message = optional_id("message", self.message)?;
        if let Some(key) = &self.idempotency_key {
            let found = message_of_key(app, tenant.as_ref(), key).await?;
            if found.is_none() || message.is_some_and(|message| Some(message) != found) {
                return Ok(None);
            }
            message = found;
        }
        Ok(Some(DeliveryFilter {
            tenant,
            state: name("state", self.state, DeliveryState::parse, states)?,
            reason: name("reason", self.reason, DeadReason::parse, reasons)?,
            channel: channel(self.channel)?,
            provider: text("provider", self.provider)?.map(Into::into),
            class: text("class", self.class)?.map(Into::into),
            account: text("account", self.account)?.map(Into::into),
            error: text("error", self.error)?,
            error_is: error_text(self.error_is)?,
            tag: text("tag", self.tag)?.map(Into::into),
            campaign: text("campaign", self.campaign)?.map(Into::into),
            recipient: text("recipient", self.recipient)?.map(Into::into),
            message,
            held: self.held.unwrap_or(false),
            since: time("since", self.since)?,
            until: time("until", self.until)?,
            ..DeliveryFilter::default()
        }))
    }
}

async fn message_of_key(
    app: &SharedState,
    tenant: Option<&TenantId>,
    key: &str,
) -> ApiResult<Option<MessageId>> {
    let tenant = tenant.ok_or_else(|| {
        let allowed = "a key of one tenant, or the header Postrider-Tenant";
        Problem::field("idempotency_key", "a request for all tenants", allowed)
    })?;
    Ok(app.intake.message_of_key(tenant, key).await?)
}

/// What an attempt can have, also nothing.
fn error_text(text: Option<String>) -> ApiResult<Option<String>> {
    match text {
        Some(text) if text.len() > ERROR_MAX || text.contains(char::is_control) => {
            let allowed = format!("at most {ERROR_MAX} bytes without control characters");
            Err(Problem::field("error_is", quoted(&text), allowed))
        }
        text => Ok(text),
    }
}

/// A text that something can have.
fn text(field: &str, text: Option<String>) -> ApiResult<Option<String>> {
    match text {
        Some(text)
            if text.is_empty() || text.len() > TEXT_MAX || text.contains(char::is_control) =>
        {
            let allowed = format!("1 to {TEXT_MAX} bytes without control characters");
            Err(Problem::field(field, quoted(&text), allowed))
        }
        text => Ok(text),
    }
}
