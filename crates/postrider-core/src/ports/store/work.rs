//! What goes into the queue and comes out of it: new work, leases, settlements.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::address::{AddressHash, Target};
use crate::model::decision::Decision;
use crate::model::delivery::AttemptRecord;
use crate::model::id::{AddressId, DeliveryId, MessageId};
use crate::model::lane::{LaneId, LaneKey};
use crate::model::message::{Envelope, Message, TenantId};
use crate::model::region::RegionNumber;
use crate::model::time::Timestamp;
use crate::policy::backoff::RetryPolicy;
use crate::policy::strikes::{NewStrike, Strike};

/// A key under which a second message is a repeat of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupKey {
    /// Hash of tenant and key.
    pub key: [u8; 16],
    /// Hash of what was asked for: the same key with another fingerprint is a conflict.
    pub fingerprint: [u8; 16],
    /// How long the key is kept; at least until the message expires.
    pub window: Duration,
}

/// A message as it comes from the intake. The store gives it its id and its times.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub tenant: TenantId,
    pub class: Arc<str>,
    pub ttl_s: u32,
    /// With TTL 0, how long it may wait for its one attempt.
    pub now_or_never: Duration,
    /// Not sent before this time; the TTL counts from here.
    pub send_at: Option<Timestamp>,
    pub envelope: Envelope,
    pub content: Arc<str>,
    pub dedup: Option<DedupKey>,
    /// Keys of the deliveries, one each in their order, or none at all. A delivery whose key is known is a repeat.
    /// Such a message has no key of its own, and all keys have the same fingerprint.
    pub member_keys: Vec<DedupKey>,
    /// At least one.
    pub deliveries: Vec<NewDelivery>,
}

#[derive(Debug, Clone)]
pub struct NewDelivery {
    pub lane: Arc<LaneKey>,
    pub target: Arc<Target>,
    pub hash: AddressHash,
    pub recipient: Option<Arc<str>>,
    pub address: Option<AddressId>,
    /// When the address was registered, where that is known.
    pub address_since: Option<Timestamp>,
    /// Where else it may go, in order (see [`Decision::FallBack`]).
    pub alternatives: Vec<Alternative>,
    /// All workers send to its provider, each to some of the addresses. Otherwise one worker has the provider.
    pub is_wide: bool,
    /// Only workers of this region may send it.
    pub region: Option<RegionNumber>,
}

/// Another address that a delivery may go to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alternative {
    pub lane: Arc<LaneKey>,
    pub target: Arc<Target>,
    pub hash: AddressHash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<AddressId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_since: Option<Timestamp>,
}

/// The store's answer to one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    Accepted {
        message: MessageId,
        deliveries: Vec<DeliveryId>,
    },
    /// The same key and fingerprint came before, within the window. Repeats the first answer.
    Duplicate {
        message: MessageId,
        deliveries: Vec<DeliveryId>,
    },
    /// The same key with another fingerprint.
    Conflict {
        message: MessageId,
    },
    /// The deliveries at these places are repeats by their own keys; the first of them is one of `message`. Nothing
    /// was accepted: without them, the message can be.
    RepeatedMembers {
        places: Vec<usize>,
        message: MessageId,
    },
}

/// Why a leased delivery is not to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    AddressGone,
    /// Its address was deleted after it was accepted.
    AddressDeleted,
    /// Its message was cancelled during an attempt whose result is not known.
    Cancelled,
    /// Its content or its address cannot be decrypted.
    Unreadable,
}

/// The right to attempt a delivery until the lease ends.
#[derive(Debug, Clone)]
pub struct LeasedDelivery {
    pub delivery: DeliveryId,
    /// The fencing token: a settlement with an older one is refused.
    pub token: u64,
    pub message: Arc<Message>,
    pub target: Arc<Target>,
    pub hash: AddressHash,
    /// Whose address it is, where that is known.
    pub recipient: Option<Arc<str>>,
    pub address_since: Option<Timestamp>,
    /// When it became due.
    pub due_at: Timestamp,
    /// Attempts so far that count.
    pub attempts: u32,
    /// Attempts so far, all of them.
    pub tries: u32,
    /// The wait before this attempt, for decorrelated jitter.
    pub last_delay: Duration,
    /// The delivery's own deadline: its message's, or what a replay set.
    pub expires_at: Timestamp,
    /// A policy that a replay set for this delivery alone.
    pub retry: Option<RetryPolicy>,
    pub halt: Option<Halt>,
    /// How many crashes in a row found it in flight. A clean end does not count, and an attempt that ends
    /// resets the number.
    pub crashes: u32,
    /// An attempt was started (see [`Consumer::start`](super::Consumer::start)) and its result is not known.
    pub started: bool,
    /// Where else it may go, in order.
    pub alternatives: Vec<Alternative>,
    /// The strikes of its address since its last success. Mostly empty.
    pub strikes: Vec<Strike>,
}

/// The durable write of a decision.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub delivery: DeliveryId,
    pub token: u64,
    /// The attempts under this lease, in order: often one, more if one was repeated at once, none if
    /// nothing was sent.
    pub attempts: Vec<AttemptRecord>,
    pub decision: Decision,
    pub learned: AddressLearning,
}

/// What an attempt taught about its address, written with its settlement. A success clears the strikes
/// of the address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddressLearning {
    /// The store counts it, by its own clock.
    pub strike: Option<NewStrike>,
    /// The target with new facts, for a registered address.
    pub target: Option<Arc<Target>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleResult {
    /// It is written, now or by an earlier call.
    Done,
    /// The lease had ended and the delivery moved on without it; nothing was written.
    Fenced,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyLane {
    pub id: LaneId,
    pub key: Arc<LaneKey>,
    /// When its first delivery became due.
    pub due_at: Timestamp,
}

/// What is pending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    pub deliveries: u64,
    /// Bytes of bodies, each counted once per message, and of addresses.
    pub bytes: u64,
}
