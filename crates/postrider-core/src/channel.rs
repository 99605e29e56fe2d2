//! The port that every channel implements.

use std::sync::Arc;

use async_trait::async_trait;

use crate::address::{ChannelKind, Target};
use crate::class::Class;
use crate::id::DeliveryId;
use crate::message::Message;
use crate::outcome::Report;
use crate::time::Timestamp;

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
    /// Make a new token or signature even if a cached one looks good.
    pub resign: bool,
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

    /// Makes every attempt of the batch, and calls `done` exactly once for each, as it ends and in
    /// whatever order. Preparation (encryption, signing) is done for the whole batch at once.
    /// Never fails: failure is an outcome. TTL is checked again just before the socket write.
    async fn deliver(&self, batch: Vec<Attempt>, done: &(dyn Fn(Finished) + Send + Sync));
}
