//! A delivery with everything that an attempt and its settlement need, so that neither reads the disk.

use std::sync::Arc;

use postrider_core::model::id::{from_order_key, order_key};
use postrider_core::policy::backoff::RetryPolicy;
use postrider_core::ports::store::{Alternative, LeasedDelivery};
use postrider_core::{AddressHash, DeliveryId, Message, Strike, Target, Timestamp};

use crate::progress::AddressEnd;
use crate::progress::{DeliveryMark, StoredProgress};

#[derive(Debug, Clone)]
pub(crate) struct StoredDelivery {
    pub(crate) seq: u64,
    pub(crate) tail: u64,
    pub(crate) lane: u32,
    pub(crate) message: Arc<Message>,
    /// How many deliveries the message has.
    pub(crate) siblings: u32,
    pub(crate) target: Arc<Target>,
    /// The length of the stored target.
    pub(crate) target_bytes: usize,
    pub(crate) hash: AddressHash,
    pub(crate) recipient: Option<Arc<str>>,
    pub(crate) address_since: Option<Timestamp>,
    pub(crate) expires: Timestamp,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) progress: StoredProgress,
    /// The attempts so far, as a JSON array.
    pub(crate) log: Option<Box<str>>,
    pub(crate) alternatives: Vec<Alternative>,
}

/// What is known about the delivery's address.
#[derive(Debug, Default)]
pub(crate) struct AddressFlags {
    pub(crate) end: Option<AddressEnd>,
    pub(crate) strikes: Vec<Strike>,
}

impl StoredDelivery {
    pub(crate) fn id(&self) -> DeliveryId {
        DeliveryId(from_order_key(self.seq, self.tail))
    }

    pub(crate) fn message_seq(&self) -> u64 {
        order_key(self.message.id.0)
    }

    pub(crate) fn leased(
        &self,
        token: u64,
        flags: AddressFlags,
        mark: DeliveryMark,
    ) -> LeasedDelivery {
        LeasedDelivery {
            delivery: self.id(),
            token,
            message: self.message.clone(),
            target: self.target.clone(),
            hash: self.hash,
            recipient: self.recipient.clone(),
            address_since: self.address_since,
            due_at: self.progress.due,
            attempts: self.progress.attempts,
            tries: self.progress.tries,
            last_delay: self.progress.last_delay,
            expires_at: self.expires,
            retry: self.retry.clone(),
            halt: mark.halt(flags.end, self.message.id),
            crashes: mark.crashes,
            started: mark.started,
            alternatives: self.alternatives.clone(),
            strikes: flags.strikes,
        }
    }

    /// About as many as it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let log = self.log.as_ref().map_or(0, |log| log.len());
        // 900 for the structs, their allocations and the smaller strings.
        900 + self.message.content.len() + self.target.as_json().len() + log
    }
}
