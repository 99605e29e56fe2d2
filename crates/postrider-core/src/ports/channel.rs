//! The ports that every channel implements: [`ChannelIntake`] for messages that come in, [`Channel`]
//! for deliveries that go out.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::value::RawValue;

use crate::model::address::Target;
use crate::model::channel::{ChannelKind, ChannelTraits};
use crate::model::class::Class;
use crate::model::content::{Content, PartCheck};
use crate::model::id::DeliveryId;
use crate::model::message::{Message, TenantId};
use crate::model::outcome::Report;
use crate::model::time::Timestamp;
use crate::model::trace::TraceParent;
use crate::policy::account::AccountOffer;

/// One call to be made to a provider.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub delivery: DeliveryId,
    pub message: Arc<Message>,
    pub class: Arc<Class>,
    pub target: Arc<Target>,
    /// 1 for the first.
    pub number: u32,
    /// The present by the system's clock, when the dispatcher hands the attempt over.
    pub now: Timestamp,
    /// Nothing is written to a socket at or after this time of the system's clock.
    pub expires_at: Timestamp,
    /// Its TTL is 0: there is this attempt and no retry.
    pub is_one_shot: bool,
    /// When the address was registered, where it is a registered one.
    pub address_since: Option<Timestamp>,
    /// Make a new token or signature even if a cached one looks good.
    pub resign: bool,
    /// How often it was repeated at once already, because the provider had not processed it.
    pub replays: u32,
    /// The account that the call was permitted for, if the channel has accounts. Another one is used only if this
    /// one cannot be.
    pub account: Option<Arc<str>>,
    /// The span that this attempt is in the caller's trace, if spans are made of it.
    pub span: Option<u64>,
    /// The dispatcher's own handle; comes back in [`Finished`].
    pub slot: usize,
}

impl Attempt {
    /// The `traceparent` that a receiver gets: of this attempt's span, or the caller's own if there is none.
    pub fn traceparent(&self) -> Option<Cow<'_, str>> {
        let own = self.message.envelope.traceparent.as_deref()?;
        let parent = self.span.and_then(|span| Some(TraceParent::parse(own)?.with_span(span)));
        Some(parent.map_or(Cow::Borrowed(own), |parent| parent.to_string().into()))
    }
}

/// The end of one attempt.
#[derive(Debug)]
pub struct Finished {
    pub slot: usize,
    pub report: Report,
    /// From the start of the attempt to its end.
    pub latency_ms: u32,
    /// From the start until the request was written: waiting for a connection of ours, lookups and handshakes.
    /// Equal to `latency_ms` if nothing was written.
    pub waited_ms: u32,
}

/// Speaks to one kind of provider.
#[async_trait]
pub trait Channel: Send + Sync {
    fn kind(&self) -> ChannelKind;

    fn traits(&self) -> &'static ChannelTraits;

    /// What one call counts for in rate limits, e.g. the segments of a text message.
    fn weight(&self, _target: &Target, _message: &Message) -> u32 {
        1
    }

    /// The accounts that may send a tenant's messages, the one to be used first before the others. None if the
    /// channel has no accounts.
    fn accounts(&self, _tenant: &TenantId) -> Vec<AccountOffer> {
        Vec::new()
    }

    /// Whether an account of the message's tenant can send it to this target.
    fn fits(&self, _account: &str, _target: &Target, _message: &Message) -> bool {
        true
    }

    /// Makes every attempt of the batch, and calls `done` exactly once for each, as it ends and in
    /// whatever order. Preparation (encryption, signing) is done for the whole batch at once.
    /// Never fails: failure is an outcome. TTL is checked again just before the socket write.
    async fn deliver(&self, batch: Vec<Attempt>, done: &(dyn Fn(Finished) + Send + Sync));
}

/// What is wrong with one field of a request, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FieldError {
    /// A path such as `to.address.keys.p256dh`.
    pub field: String,
    pub found: String,
    pub allowed: String,
}

impl FieldError {
    pub fn new(
        field: impl Into<String>,
        found: impl Into<String>,
        allowed: impl Into<String>,
    ) -> Self {
        let found = Some(found.into()).filter(|found: &String| !found.is_empty());
        let found = found.unwrap_or_else(|| "an empty text".to_owned());
        Self { field: field.into(), found, allowed: allowed.into() }
    }

    /// The same with its field named below another one.
    pub fn below(self, prefix: &str) -> Self {
        let field = match self.field.as_str() {
            "" => prefix.to_owned(),
            field => format!("{prefix}.{field}"),
        };
        Self { field, ..self }
    }
}

impl From<FieldError> for Vec<FieldError> {
    fn from(error: FieldError) -> Self {
        vec![error]
    }
}

/// An address that a caller wrote, as its channel understands it.
#[derive(Debug)]
pub struct CheckedAddress {
    pub target: Target,
    /// The text that names this one address: a URL, a device's token, a phone number. Never shown;
    /// an [`AddressHash`](crate::AddressHash) is made from it.
    pub locator: String,
    /// The provider behind it: the lane's middle part.
    pub provider: Arc<str>,
}

/// What a channel knows about addresses and content before anything is queued. Pure: resolves no
/// name and opens no connection.
pub trait ChannelIntake: Send + Sync {
    fn kind(&self) -> ChannelKind;

    fn traits(&self) -> &'static ChannelTraits;

    /// Whether anything is configured to send this tenant's messages with.
    fn serves(&self, _tenant: &TenantId) -> bool {
        true
    }

    /// Reads an address as a caller writes it (`{"channel": …, …}`). Fields are named relative to it.
    fn address(&self, json: &str) -> Result<CheckedAddress, Vec<FieldError>>;

    /// The same for one tenant, where what may be written depends on it.
    fn address_for(
        &self,
        _tenant: &TenantId,
        json: &str,
    ) -> Result<CheckedAddress, Vec<FieldError>> {
        self.address(json)
    }

    /// The locator of a stored target.
    fn locator<'a>(&self, target: &'a Target) -> Cow<'a, str>;

    /// The provider behind a stored target.
    fn provider(&self, target: &Target) -> Arc<str>;

    /// Checks the form of this channel's part of a content.
    fn part_check(&self) -> PartCheck;

    /// Refuses content that this channel could never deliver. Fields are named relative to `content`.
    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let _ = content;
        Ok(())
    }

    /// Refuses content that this one target could never be sent, where targets of a channel differ.
    fn check_for(&self, _target: &Target, _content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        Ok(())
    }

    /// The body that a caller wrote for this channel. Decides whether two messages have the same
    /// content; without one, the whole content does.
    fn own_body<'a>(&self, _content: &Content<'a>) -> Option<&'a RawValue> {
        None
    }

    /// Keeps messages to the same locator apart that are sent in different ways.
    fn method<'a>(&self, target: &'a Target) -> Cow<'a, str> {
        let _ = target;
        self.kind().name().to_owned().into()
    }
}
