//! The ports that every channel implements: [`ChannelIntake`] at the intake, [`Channel`] at dispatch.

use std::sync::Arc;

use async_trait::async_trait;

use crate::model::address::{ChannelKind, Target};
use crate::model::class::Class;
use crate::model::content::Content;
use crate::model::id::DeliveryId;
use crate::model::message::{Message, TenantId};
use crate::model::outcome::Report;
use crate::model::time::Timestamp;

/// One call to be made to a provider.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub delivery: DeliveryId,
    pub message: Arc<Message>,
    pub class: Arc<Class>,
    pub target: Arc<Target>,
    /// 1 for the first.
    pub number: u32,
    /// The present, as the dispatcher sees it when it hands the attempt over.
    pub now: Timestamp,
    /// Nothing is written to a socket at or after this.
    pub expires_at: Timestamp,
    /// When the address was registered, where it is a registered one.
    pub address_since: Option<Timestamp>,
    /// Make a new token or signature even if a cached one looks good.
    pub resign: bool,
    /// How often it was repeated at once already, because the provider had not processed it.
    pub replays: u32,
    /// The dispatcher's own handle; comes back in [`Finished`].
    pub slot: usize,
}

/// The end of one attempt.
#[derive(Debug)]
pub struct Finished {
    pub slot: usize,
    pub report: Report,
    pub latency_ms: u32,
}

/// Speaks to one kind of provider.
#[async_trait]
pub trait Channel: Send + Sync {
    fn kind(&self) -> ChannelKind;

    /// What one call counts for in rate limits, e.g. the segments of a text message.
    fn weight(&self, target: &Target, message: &Message) -> u32 {
        let _ = (target, message);
        1
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
}

/// What a channel knows about addresses and content before anything is queued. Pure: resolves no
/// name and opens no connection.
pub trait ChannelIntake: Send + Sync {
    fn kind(&self) -> ChannelKind;

    /// Whether anything is configured to send this tenant's messages with.
    fn serves(&self, _tenant: &TenantId) -> bool {
        true
    }

    /// Reads an address as a caller writes it (`{"channel": …, …}`). Fields are named relative to it.
    fn target(&self, address: &str) -> Result<Target, Vec<FieldError>>;

    /// The provider behind a target: the lane's middle part.
    fn provider(&self, target: &Target) -> Arc<str>;

    /// Refuses content that this channel could never deliver. Fields are named relative to `content`.
    fn check(&self, content: &Content<'_>) -> Result<(), Vec<FieldError>>;

    /// Refuses content that this one target could never be sent, where targets of a channel differ.
    fn check_for(&self, target: &Target, content: &Content<'_>) -> Result<(), Vec<FieldError>> {
        let _ = (target, content);
        Ok(())
    }

    /// The longest TTL that the provider takes.
    fn ttl_s_max(&self) -> u32;
}
