//! Everything that a store has, as records that every engine can write and read. For moving a store to another engine.
//! JSON is carried as text, so that it arrives byte for byte.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;

use super::{AuditRecord, EntryKey, EntryKind, EntryVersion, RollupPart, StoreResult, StoredEntry};
use crate::model::address::{Address, AddressHash};
use crate::model::delivery::{DeadReason, State};
use crate::model::id::{AddressId, DeliveryId, MessageId};
use crate::model::lane::LaneKey;
use crate::model::message::TenantId;
use crate::model::time::Timestamp;
use crate::policy::strikes::Strike;

/// The kinds of records, in the order in which they are moved: a delivery comes after its message and its lane.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    Document,
    Lane,
    Address,
    GoneMark,
    Strike,
    Message,
    Delivery,
    IdempotencyKey,
    Audit,
    Rollup,
    Entry,
}

impl RecordKind {
    pub const ALL: &'static [Self] = &[
        Self::Document,
        Self::Lane,
        Self::Address,
        Self::GoneMark,
        Self::Strike,
        Self::Message,
        Self::Delivery,
        Self::IdempotencyKey,
        Self::Audit,
        Self::Rollup,
        Self::Entry,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Document => "documents",
            Self::Lane => "lanes",
            Self::Address => "addresses",
            Self::GoneMark => "gone marks",
            Self::Strike => "strikes",
            Self::Message => "messages",
            Self::Delivery => "deliveries",
            Self::IdempotencyKey => "idempotency keys",
            Self::Audit => "audit entries",
            Self::Rollup => "parts of rollups",
            Self::Entry => "entries about people",
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum StoreRecord {
    /// A setting, an order, a template or keys. Its version is the new store's.
    Document(DocumentRecord),
    Lane(Arc<LaneKey>),
    Address(Address),
    GoneMark {
        tenant: TenantId,
        hash: AddressHash,
        /// The address was deleted: only messages whose order key is below this one are halted.
        deleted_before: Option<u64>,
    },
    Strike {
        tenant: TenantId,
        hash: AddressHash,
        strike: Strike,
    },
    Message(Box<StoredMessageRecord>),
    Delivery(Box<StoredDeliveryRecord>),
    IdempotencyKey(IdempotencyRecord),
    /// An entry of the audit log, with its number.
    Audit(AuditRecord),
    Rollup(RollupPart),
    /// An entry with its text. Its version is kept.
    Entry(Box<EntryRecord>),
}

#[derive(Clone, PartialEq, Serialize)]
pub struct EntryRecord {
    pub tenant: TenantId,
    pub kind: EntryKind,
    pub key: Arc<str>,
    pub version: EntryVersion,
    pub json: Arc<str>,
}

/// Without key and text, which may be about a person.
impl std::fmt::Debug for EntryRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntryRecord").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl From<StoredEntry> for EntryRecord {
    fn from(entry: StoredEntry) -> Self {
        let StoredEntry { key: EntryKey { tenant, kind, key }, version, json } = entry;
        Self { tenant, kind, key, version, json }
    }
}

#[derive(Clone, PartialEq, Serialize)]
pub struct DocumentRecord {
    pub name: String,
    pub json: String,
    pub expires_at: Option<Timestamp>,
}

/// Without the text, which may have a secret.
impl std::fmt::Debug for DocumentRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DocumentRecord").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredMessageRecord {
    pub id: MessageId,
    pub tenant: TenantId,
    pub class: Box<str>,
    pub expires_at: Timestamp,
    pub ttl_s: u32,
    /// How many it had when it was accepted.
    pub deliveries: u32,
    /// JSON; absent if nothing is set.
    pub envelope: Option<Box<str>>,
    /// The body, while it is kept and if several deliveries share it.
    pub content: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredDeliveryRecord {
    pub id: DeliveryId,
    pub message: MessageId,
    pub lane: Arc<LaneKey>,
    pub state: State,
    pub reason: Option<DeadReason>,
    /// It is a dead letter that nobody discarded.
    pub dead_letter: bool,
    /// Absent once it is final.
    pub due: Option<Timestamp>,
    /// It is [held](super::HeldDeliveries); `due` is then when it was due before.
    pub held: bool,
    pub attempts: u32,
    pub tries: u32,
    pub last_delay_ms: i64,
    pub expires_at: Timestamp,
    pub changed_at: Timestamp,
    pub hash: AddressHash,
    pub address: Option<AddressId>,
    pub address_since: Option<Timestamp>,
    pub recipient: Option<Box<str>>,
    /// JSON, as are `log`, `target` and `alternatives`.
    pub retry: Option<Box<str>>,
    pub log: Option<Box<str>>,
    pub target: Option<Box<str>>,
    /// The body of a message with a single delivery, while it is kept.
    pub body: Option<Box<str>>,
    pub alternatives: Option<Box<str>>,
    /// How many crashes in a row found it in flight.
    pub crashes: u32,
    /// An attempt was started, and its result is not known.
    pub started: bool,
    /// Its message was cancelled while it was in flight.
    pub cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct IdempotencyRecord {
    pub key: [u8; 16],
    pub fingerprint: [u8; 16],
    pub message: MessageId,
    pub expires_at: Timestamp,
}

/// Some records of one kind.
#[derive(Debug, Clone, Default)]
pub struct RecordPage {
    pub records: Vec<StoreRecord>,
    /// Where to go on, as the store names it; absent at the end.
    pub next: Option<String>,
}

#[async_trait]
pub trait StoreTransfer: Send + Sync {
    /// Records of one kind after a position, in an order of the store's own, each once. Idempotency keys that are
    /// over by `over_by` are left out. Nothing may change meanwhile.
    async fn export(
        &self,
        kind: RecordKind,
        after: Option<&str>,
        limit: usize,
        over_by: Timestamp,
    ) -> StoreResult<RecordPage>;

    /// Writes records: all of them or none, durable on return. None may be there already, except documents, which
    /// are replaced.
    async fn import(&self, records: Vec<StoreRecord>) -> StoreResult<()>;
}
