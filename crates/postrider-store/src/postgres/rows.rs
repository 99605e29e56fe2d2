//! Rows of deliveries and messages, as three tables have them: what is pending, dead letters, and the ledger.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::ports::store::Alternative;
use postrider_core::{
    AddressHash, AddressId, DeadReason, Delivery, DeliveryId, LaneKey, Message, MessageId, State,
    Strike, StrikeKind, Target, TenantId, Timestamp,
};
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use super::failure::{PgFailure, PgResult};
use super::value::{PgId, get};
use crate::history::DeliveryHistory;
use crate::progress::AddressEnd;
use crate::progress::{DeliveryMark, StoredProgress, is_held};
use crate::sharded::{LeasedRow, ShardId};

/// The columns of a delivery, in the order of the tables.
pub(super) const COLUMNS: &str = "id, message, shard, lane, tenant, state, reason, due, attempts, tries, last_delay, \
    expires, changed, hash, address, address_since, recipient, retry, log, class, ttl_s, envelope, message_expires, \
    body, shares_message, target, alternatives, bytes, crashes, started, cancelled, discarded, free_batch";

/// A delivery as it is stored.
#[derive(Debug, Clone)]
pub(super) struct StoredRow {
    pub(super) id: u128,
    pub(super) message: MessageId,
    pub(super) shard: ShardId,
    pub(super) lane: u32,
    pub(super) tenant: TenantId,
    pub(super) progress: StoredProgress,
    pub(super) expires: i64,
    pub(super) hash: AddressHash,
    pub(super) address: Option<AddressId>,
    pub(super) address_since: Option<Timestamp>,
    pub(super) recipient: Option<String>,
    pub(super) retry: Option<String>,
    pub(super) log: Option<String>,
    pub(super) class: Option<String>,
    pub(super) ttl_s: Option<i32>,
    pub(super) envelope: Option<String>,
    pub(super) message_expires: Option<i64>,
    pub(super) body: Option<String>,
    pub(super) shares_message: bool,
    pub(super) target: Option<String>,
    pub(super) alternatives: Option<String>,
    pub(super) bytes: i64,
    pub(super) mark: DeliveryMark,
    pub(super) discarded: bool,
    pub(super) free_batch: i64,
}

pub(super) fn state(code: i16) -> PgResult<State> {
    let state = u8::try_from(code).ok().and_then(State::from_code);
    state.ok_or_else(|| PgFailure::damaged("a delivery's state"))
}

pub(super) fn parse<T: DeserializeOwned>(json: &str, what: &str) -> PgResult<T> {
    serde_json::from_str(json).map_err(|_| PgFailure::damaged(what))
}

pub(super) fn hash(bytes: &[u8]) -> PgResult<AddressHash> {
    bytes.try_into().map(AddressHash).map_err(|_| PgFailure::damaged("the hash of an address"))
}

impl StoredRow {
    pub(super) fn read(row: &Row) -> PgResult<Self> {
        let reason: Option<i16> = get(row, "reason")?;
        let reason =
            reason.and_then(|code| u8::try_from(code).ok()).and_then(DeadReason::from_code);
        let number = |column: &str| -> PgResult<u32> { Ok(get::<i32>(row, column)? as u32) };
        Ok(Self {
            id: get::<PgId>(row, "id")?.0,
            message: MessageId(get::<PgId>(row, "message")?.0),
            shard: get::<i16>(row, "shard")? as ShardId,
            lane: number("lane")?,
            tenant: TenantId(get::<String>(row, "tenant")?.into()),
            progress: StoredProgress {
                state: state(get(row, "state")?)?,
                reason,
                due: Timestamp(get(row, "due")?),
                attempts: number("attempts")?,
                tries: number("tries")?,
                last_delay: Duration::from_millis(get::<i64>(row, "last_delay")?.max(0) as u64),
                changed: Timestamp(get(row, "changed")?),
            },
            expires: get(row, "expires")?,
            hash: hash(get(row, "hash")?)?,
            address: get::<Option<PgId>>(row, "address")?.map(|id| AddressId(id.0)),
            address_since: get::<Option<i64>>(row, "address_since")?.map(Timestamp),
            recipient: get(row, "recipient")?,
            retry: get(row, "retry")?,
            log: get(row, "log")?,
            class: get(row, "class")?,
            ttl_s: get(row, "ttl_s")?,
            envelope: get(row, "envelope")?,
            message_expires: get(row, "message_expires")?,
            body: get(row, "body")?,
            shares_message: get(row, "shares_message")?,
            target: get(row, "target")?,
            alternatives: get(row, "alternatives")?,
            bytes: i64::from(get::<i32>(row, "bytes")?),
            mark: DeliveryMark {
                crashes: number("crashes")?,
                started: get(row, "started")?,
                cancelled: get(row, "cancelled")?,
            },
            discarded: get(row, "discarded")?,
            free_batch: get(row, "free_batch")?,
        })
    }

    fn history(&self) -> PgResult<DeliveryHistory> {
        let history = DeliveryHistory::parse(self.log.as_deref());
        history.map_err(|_| PgFailure::damaged("a delivery's history"))
    }

    /// The message of a single delivery.
    pub(super) fn lone_message(&self, lane: &LaneKey) -> PgResult<Message> {
        let envelope = self.envelope.as_deref();
        let class = self.class.as_deref().map_or_else(|| lane.class.clone(), Arc::from);
        Ok(Message {
            id: self.message,
            tenant: self.tenant.clone(),
            class,
            created_at: self.message.created_at(),
            expires_at: Timestamp(self.message_expires.unwrap_or(self.expires)),
            ttl_s: self.ttl_s.unwrap_or(0) as u32,
            envelope: envelope.map_or(Ok(Default::default()), |json| parse(json, "an envelope"))?,
            content: self.body.as_deref().unwrap_or_default().into(),
        })
    }

    pub(super) fn leased(self, message: Arc<Message>, flags: &Row) -> PgResult<LeasedRow> {
        let target = self.target.as_deref().and_then(Target::from_stored);
        let alternatives = self.alternatives.as_deref();
        let alternatives: Vec<Alternative> =
            alternatives.map_or(Ok(Vec::new()), |json| parse(json, "a delivery's alternatives"))?;
        let retry = self.retry.as_deref().map(|json| parse(json, "a retry policy")).transpose()?;
        Ok(LeasedRow {
            id: self.id,
            lane: self.lane,
            message,
            shares_message: self.shares_message,
            target: Arc::new(target.ok_or_else(|| PgFailure::damaged("a delivery's address"))?),
            hash: self.hash,
            recipient: self.recipient.map(Into::into),
            address_since: self.address_since,
            progress: self.progress,
            mark: self.mark,
            expires: self.expires,
            retry,
            alternatives,
            log: self.log,
            bytes: self.bytes,
            end: get::<Option<i64>>(flags, "gone")?
                .map(|key| AddressEnd::of_mark(u64::try_from(key).ok())),
            strikes: strikes(get(flags, "strikes")?)?,
        })
    }

    /// As the ledger shows it. `lease_end` is the end of its last lease, if there is one.
    pub(super) fn view(
        &self,
        lane: &LaneKey,
        lease_end: Option<i64>,
        now: i64,
    ) -> PgResult<Delivery> {
        let is_pending = self.progress.state.is_pending();
        let is_leased = is_pending && lease_end.is_some_and(|end| end > now);
        let due = Timestamp(lease_end.unwrap_or(self.progress.due.0));
        let history = self.history()?;
        Ok(Delivery {
            id: DeliveryId(self.id),
            message: self.message,
            tenant: self.tenant.clone(),
            channel: lane.channel,
            provider: lane.provider.clone(),
            class: lane.class.clone(),
            recipient: self.recipient.as_deref().map(Arc::from),
            address: self.address,
            address_hash: self.hash,
            state: if is_leased { State::Sending } else { self.progress.state },
            reason: self.progress.reason,
            discarded: self.discarded,
            attempts: self.progress.attempts,
            created_at: DeliveryId(self.id).created_at(),
            expires_at: Timestamp(self.expires),
            held: self.progress.is_held(),
            due_at: Some(due).filter(|due| is_pending && !is_held(*due)),
            changed_at: self.progress.changed,
            log: history.attempts,
            receipts: history.receipts,
        })
    }
}

/// `kind,count,first,last,suspect` for each, with semicolons between.
fn strikes(text: Option<&str>) -> PgResult<Vec<Strike>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let strike = |part: &str| -> Option<Strike> {
        let numbers: Option<Vec<i64>> = part.split(',').map(|n| n.parse().ok()).collect();
        let [kind, count, first, last, suspect] = numbers?.try_into().ok()?;
        Some(Strike {
            kind: StrikeKind::from_code(u8::try_from(kind).ok()?)?,
            count: u32::try_from(count).ok()?,
            first_at: Timestamp(first),
            last_at: Timestamp(last),
            suspect: suspect == 1,
        })
    };
    let all: Option<Vec<_>> = text.split(';').map(strike).collect();
    all.ok_or_else(|| PgFailure::damaged("the strikes of an address"))
}
