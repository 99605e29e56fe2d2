//! The port that every store implements: three small traits over one home, all batched, with no
//! engine's type in any signature. Signatures take durations: each store owns its clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::address::{Address, AddressHash, ChannelKind, Target};
use crate::backoff::RetryPolicy;
use crate::delivery::{AttemptRecord, DeadReason, Delivery, State};
use crate::id::{AddressId, DeliveryId, KeyId, MessageId};
use crate::lane::{LaneId, LaneKey};
use crate::message::{Envelope, Message, TenantId};
use crate::time::Timestamp;

#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// No room: new work is refused, what is there is kept, and it heals when there is room again.
    #[error("the store is full: {0}")]
    Full(String),
    #[error("the store cannot write or read: {0}")]
    Io(String),
    #[error("the store's content is damaged: {0}")]
    Corrupt(String),
    #[error("another process holds the store: {0}")]
    Locked(String),
    #[error("the store is shutting down")]
    Closed,
}

pub type StoreResult<T> = Result<T, StoreError>;

/// A key under which a second message is a repeat of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupKey {
    /// Hash of tenant and key.
    pub key: [u8; 16],
    /// Hash of what was asked for: the same key with another fingerprint is a conflict.
    pub fingerprint: [u8; 16],
    pub window: Duration,
}

/// A message as it comes from the gate. The store gives it its id and its times.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub tenant: TenantId,
    pub class: Arc<str>,
    pub ttl_s: u32,
    /// Not before; the TTL counts from here.
    pub send_at: Option<Timestamp>,
    pub envelope: Envelope,
    pub content: Arc<str>,
    pub dedup: Option<DedupKey>,
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
}

/// What became of one message at the store's door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    Accepted {
        message: MessageId,
        deliveries: Vec<DeliveryId>,
    },
    /// The same key and fingerprint were seen inside the window: the first answer again.
    Duplicate {
        message: MessageId,
        deliveries: Vec<DeliveryId>,
    },
    /// The same key with another fingerprint.
    Conflict {
        message: MessageId,
    },
}

/// Why a leased delivery is not to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    AddressGone,
}

/// The right to attempt a delivery until the lease ends.
#[derive(Debug, Clone)]
pub struct Leased {
    pub delivery: DeliveryId,
    /// The fencing token: a settlement with an older one is refused.
    pub token: u64,
    pub message: Arc<Message>,
    pub target: Arc<Target>,
    pub hash: AddressHash,
    pub address_since: Option<Timestamp>,
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
}

/// What a decision changes, to be written down.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Final: `Sent`, `Expired`, `Cancelled` or `Suppressed`.
    Finish(State),
    /// Final: the address is gone; so is everything else queued for it. Endpoint and keys are
    /// erased, the hash stays.
    Gone,
    /// Final: to the dead letters.
    DeadLetter(DeadReason),
    /// Due again after a while.
    Retry { after: Duration },
    /// Due again after a while; waits for something that is not the message's fault.
    Park { after: Duration },
    /// Give the lease back; nothing happened.
    Release,
}

/// The durable write of a decision.
#[derive(Debug, Clone)]
pub struct Settlement {
    pub delivery: DeliveryId,
    pub token: u64,
    /// What was tried under this lease, in order: often one, more where an attempt went again at
    /// once, none where nothing was sent.
    pub attempts: Vec<AttemptRecord>,
    pub change: Change,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
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

#[async_trait]
pub trait Queue: Send + Sync {
    /// Takes messages in: message, deliveries and dedup key, atomic per message, all of them durable
    /// on return. One admission each, in order. A key repeated within the batch counts too.
    async fn accept(&self, messages: Vec<NewMessage>) -> StoreResult<Vec<Admission>>;

    /// Why new work is refused at present, if it is known to be.
    fn takes_work(&self) -> StoreResult<()> {
        Ok(())
    }

    /// Lanes with something due now, longest due first, at most `limit`.
    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>>;

    /// Leases up to `max` due deliveries of a lane, in order of due time.
    async fn lease(&self, lane: LaneId, max: usize, duration: Duration)
    -> StoreResult<Vec<Leased>>;

    /// Writes decisions down: state and ledger entry, atomic each, fenced. One answer each, in order.
    async fn settle(&self, settlements: Vec<Settlement>) -> StoreResult<Vec<Settled>>;

    /// Returns when something became due since the last `ready_lanes` (by arrival or by time), or
    /// after `at_most`. What was already due then does not wake.
    async fn wait_for_work(&self, at_most: Duration);
}

/// A message as the ledger shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageView {
    pub id: MessageId,
    pub tenant: TenantId,
    pub class: Arc<str>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    pub ttl_s: u32,
    pub envelope: Envelope,
    pub states: BTreeMap<State, u64>,
    /// The first hundred.
    pub deliveries: Vec<(DeliveryId, State)>,
    /// Whether the body is still there.
    pub has_content: bool,
}

/// Which deliveries to show; newest first.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    pub tenant: Option<TenantId>,
    pub state: Option<State>,
    pub channel: Option<ChannelKind>,
    pub recipient: Option<Arc<str>>,
    pub message: Option<MessageId>,
    /// Dead letters only.
    pub reason: Option<DeadReason>,
    /// Dead letters only: part of the last attempt's code or detail.
    pub error: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// The last id of the page before.
    pub cursor: Option<DeliveryId>,
    pub limit: usize,
}

/// A page may hold fewer than asked for and still have a successor: a rare match costs several
/// short reads, never one long one.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T, C> {
    pub items: Vec<T>,
    pub next: Option<C>,
}

/// Which dead letters to act upon.
#[derive(Debug, Clone)]
pub enum Selection {
    Ids(Vec<DeliveryId>),
    Filter(DeliveryFilter),
}

#[derive(Debug, Clone, Default)]
pub struct Replay {
    /// The replayed delivery's new TTL; its message's own if absent.
    pub ttl_s: Option<u32>,
    /// At most this many become due per second; all at once if absent.
    pub rate_per_s: Option<f64>,
    pub retry: Option<RetryPolicy>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cancelled {
    pub cancelled: u64,
    /// Being sent at this moment, so no longer to be stopped.
    pub in_flight: u64,
    /// Already final.
    pub already_final: u64,
}

/// Maintained, never counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub messages: u64,
    pub states: BTreeMap<State, u64>,
    pub dead: BTreeMap<DeadReason, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneDepth {
    pub id: LaneId,
    pub key: Arc<LaneKey>,
    pub pending: u64,
    pub in_flight: u64,
    pub next_due: Option<Timestamp>,
}

#[async_trait]
pub trait Ledger: Send + Sync {
    /// `tenant` limits what can be seen; `None` sees all.
    async fn message(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<MessageView>>;

    /// The stored body, while it is kept.
    async fn content(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<Arc<str>>>;

    async fn delivery(
        &self,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> StoreResult<Option<Delivery>>;

    async fn deliveries(&self, filter: DeliveryFilter) -> StoreResult<Page<Delivery, DeliveryId>>;

    /// Deliveries in state `Failed`, newest first.
    async fn dead_letters(&self, filter: DeliveryFilter)
    -> StoreResult<Page<Delivery, DeliveryId>>;

    /// Puts dead letters back into the queue with their attempts reset; answers how many.
    async fn replay(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        how: Replay,
    ) -> StoreResult<u64>;

    /// Gives dead letters up for good: body and address are erased, the history stays, the delivery
    /// no longer counts as a dead letter to act upon. Answers how many.
    async fn discard(&self, tenant: Option<&TenantId>, which: Selection) -> StoreResult<u64>;

    /// Cancels what is not yet sent of a message; `None` if there is no such message.
    async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<Cancelled>>;

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts>;

    /// The deepest lanes first, at most `limit`.
    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>>;

    /// When the oldest pending delivery was accepted.
    async fn oldest_pending(&self) -> StoreResult<Option<Timestamp>>;

    /// Forgets final deliveries (dead letters not discarded excepted) and their messages older than
    /// `keep`, and dedup keys outside their window. Bounded work per call; answers how many
    /// deliveries went, 0 when there is nothing left to do.
    async fn prune(&self, keep: Duration) -> StoreResult<u64>;
}

/// What a caller may do with an API key.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Everything, for every tenant.
    Admin,
    /// Send, look, act, within one tenant.
    Tenant,
    /// Look, within one tenant.
    Read,
    /// Look, and read stored bodies, within one tenant.
    Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    pub id: KeyId,
    pub tenant: TenantId,
    pub name: Box<str>,
    pub scope: KeyScope,
    /// SHA-256 of the secret: the secret itself is shown once and kept nowhere.
    pub secret_hash: [u8; 32],
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SigningKind {
    /// P-256 private key, PKCS#8.
    Vapid,
    /// Standard Webhooks secret: the raw bytes behind `whsec_`.
    Webhook,
    /// Key under which endpoints are hashed. Belongs to no tenant.
    Hash,
}

/// A key of ours, kept to sign with.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    pub id: KeyId,
    pub tenant: TenantId,
    pub kind: SigningKind,
    pub secret: Vec<u8>,
    pub created_at: Timestamp,
    /// When it stopped being the active one.
    pub retired_at: Option<Timestamp>,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub struct NewAddress {
    pub tenant: TenantId,
    pub recipient: Option<Arc<str>>,
    pub target: Target,
    pub hash: AddressHash,
}

#[async_trait]
pub trait Registry: Send + Sync {
    /// Registers an address; the same endpoint of the same tenant keeps its id, takes the new keys
    /// and recipient, and is active again. The flag says whether it is new.
    async fn put_address(&self, new: NewAddress) -> StoreResult<(Address, bool)>;
    async fn address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<Option<Address>>;
    async fn delete_address(&self, tenant: &TenantId, id: AddressId) -> StoreResult<bool>;
    /// By creation, oldest first.
    async fn addresses(
        &self,
        tenant: &TenantId,
        recipient: Option<&str>,
        cursor: Option<AddressId>,
        limit: usize,
    ) -> StoreResult<Page<Address, AddressId>>;

    async fn put_api_key(&self, key: ApiKey) -> StoreResult<()>;
    async fn revoke_api_key(&self, id: KeyId) -> StoreResult<bool>;
    async fn api_keys(&self) -> StoreResult<Vec<ApiKey>>;

    /// Adds a key and, with it, retires the active one of the same tenant and kind.
    async fn put_signing_key(&self, key: SigningKey) -> StoreResult<()>;
    async fn signing_keys(&self) -> StoreResult<Vec<SigningKey>>;

    /// A fresh id for what the store keeps but does not name itself.
    fn new_key_id(&self) -> KeyId;
}

/// A whole store.
pub trait Store: Queue + Ledger + Registry {}

impl<T: Queue + Ledger + Registry> Store for T {}
