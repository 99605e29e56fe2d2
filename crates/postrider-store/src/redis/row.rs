//! A delivery as it is stored: one value. It begins with what settlements change, at fixed places, because scripts read
//! and write that; then comes what never changes, then what a final delivery does not need, then the history.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::id::{from_order_key, order_key, random_tail};
use postrider_core::ports::store::{Alternative, NewDelivery};
use postrider_core::{
    AddressHash, AddressId, AttemptRecord, DeadReason, Delivery, DeliveryId, LaneKey, Message,
    MessageId, State, Strike, Target, TenantId, Timestamp,
};
use serde::de::DeserializeOwned;

use super::failure::{RedisFailure, RedisResult};
use crate::history::{self, DeliveryHistory};
use crate::progress::AddressEnd;
use crate::progress::{DeliveryMark, StoredProgress, is_held};
use crate::sharded::{LeasedRow, in_shard, shard_of_new};

/// Bytes that settlements replace.
pub(super) const HEAD: usize = 60;
const FORMAT: u8 = 1;
const NO_REASON: u8 = 255;
const STARTED: u8 = 1;
const CANCELLED: u8 = 2;
const DISCARDED: u8 = 4;
const SHARES: u8 = 8;

/// A delivery with everything that is stored of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RedisRow {
    pub(super) id: u128,
    pub(super) progress: StoredProgress,
    pub(super) mark: DeliveryMark,
    pub(super) discarded: bool,
    /// Its message is stored for several deliveries.
    pub(super) shares_message: bool,
    /// Grows when it ends or comes back.
    pub(super) moves: u32,
    pub(super) expires: i64,
    /// Leases of this batch and older ones have ended.
    pub(super) free_batch: i64,
    pub(super) fixed: FixedPart,
    pub(super) payload: RowPayload,
    /// JSON; empty if there is none.
    pub(super) log: String,
}

/// What settlements do not change.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FixedPart {
    pub(super) message: MessageId,
    pub(super) lane: u32,
    pub(super) tenant: TenantId,
    pub(super) hash: AddressHash,
    pub(super) bytes: i64,
    pub(super) address: Option<AddressId>,
    pub(super) address_since: Option<i64>,
    pub(super) recipient: Option<String>,
    pub(super) retry: Option<String>,
    pub(super) class: Option<String>,
    pub(super) ttl_s: Option<u32>,
    pub(super) envelope: Option<String>,
    pub(super) message_expires: Option<i64>,
}

/// What only pending deliveries and dead letters need.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RowPayload {
    pub(super) target: Option<String>,
    pub(super) body: Option<String>,
    pub(super) alternatives: Option<String>,
}

/// Writes values one after the other.
#[derive(Default)]
pub(super) struct ByteWriter(pub(super) Vec<u8>);

impl ByteWriter {
    pub(super) fn text(&mut self, text: Option<&str>) {
        let len = text.map_or(0, |text| text.len() as u32 + 1);
        self.0.extend_from_slice(&len.to_be_bytes());
        self.0.extend_from_slice(text.unwrap_or_default().as_bytes());
    }

    pub(super) fn number(&mut self, number: i64) {
        self.0.extend_from_slice(&number.to_be_bytes());
    }

    /// `None` has a value that nothing else has.
    pub(super) fn maybe(&mut self, number: Option<i64>) {
        self.number(number.unwrap_or(i64::MIN));
    }

    pub(super) fn id(&mut self, id: u128) {
        self.0.extend_from_slice(&id.to_be_bytes());
    }
}

/// Reads what a [`ByteWriter`] wrote.
pub(super) struct ByteReader<'a>(pub(super) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(super) fn take(&mut self, count: usize) -> RedisResult<&'a [u8]> {
        let damaged = || RedisFailure::damaged("a stored value is too short");
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> RedisResult<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| RedisFailure::damaged("a stored value"))
    }

    pub(super) fn byte(&mut self) -> RedisResult<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn small(&mut self) -> RedisResult<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn number(&mut self) -> RedisResult<i64> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    pub(super) fn maybe(&mut self) -> RedisResult<Option<i64>> {
        Ok(Some(self.number()?).filter(|number| *number != i64::MIN))
    }

    pub(super) fn id(&mut self) -> RedisResult<u128> {
        Ok(u128::from_be_bytes(self.array()?))
    }

    pub(super) fn text(&mut self) -> RedisResult<Option<String>> {
        let Some(len) = self.small()?.checked_sub(1) else { return Ok(None) };
        let bytes = self.take(len as usize)?.to_vec();
        String::from_utf8(bytes).map(Some).map_err(|_| RedisFailure::damaged("a stored text"))
    }
}

pub(super) fn parse<T: DeserializeOwned>(json: &str, what: &str) -> RedisResult<T> {
    serde_json::from_str(json).map_err(|_| RedisFailure::damaged(what))
}

/// What settlements replace, as bytes. The number of moves is the script's.
pub(super) fn head(
    progress: &StoredProgress,
    mark: DeliveryMark,
    flags: RowFlags,
    expires: i64,
    free_batch: i64,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD);
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    let flags = bit(mark.started, STARTED)
        | bit(mark.cancelled, CANCELLED)
        | bit(flags.discarded, DISCARDED)
        | bit(flags.shares_message, SHARES);
    let reason = progress.reason.map_or(NO_REASON, DeadReason::code);
    out.extend_from_slice(&[FORMAT, progress.state.code(), reason, flags]);
    for small in [mark.crashes, progress.attempts, progress.tries, 0] {
        out.extend_from_slice(&small.to_be_bytes());
    }
    let delay = i64::try_from(progress.last_delay.as_millis()).unwrap_or(i64::MAX);
    for number in [progress.due.0, delay, expires, progress.changed.0, free_batch] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowFlags {
    pub(super) discarded: bool,
    pub(super) shares_message: bool,
}

impl FixedPart {
    fn write(&self, out: &mut ByteWriter) {
        out.id(self.message.0);
        out.0.extend_from_slice(&self.lane.to_be_bytes());
        out.text(Some(self.tenant.as_str()));
        out.0.extend_from_slice(&self.hash.0);
        out.number(self.bytes);
        out.id(self.address.map_or(0, |address| address.0));
        out.maybe(self.address_since);
        for text in [&self.recipient, &self.retry, &self.class, &self.envelope] {
            out.text(text.as_deref());
        }
        out.maybe(self.ttl_s.map(i64::from));
        out.maybe(self.message_expires);
    }

    fn read(from: &mut ByteReader<'_>) -> RedisResult<Self> {
        let message = MessageId(from.id()?);
        let lane = from.small()?;
        let tenant = TenantId(from.text()?.unwrap_or_default().into());
        let hash = AddressHash(from.array()?);
        let bytes = from.number()?;
        let address = Some(from.id()?).filter(|id| *id != 0).map(AddressId);
        let address_since = from.maybe()?;
        let (recipient, retry, class, envelope) =
            (from.text()?, from.text()?, from.text()?, from.text()?);
        let ttl_s = from.maybe()?.and_then(|ttl| u32::try_from(ttl).ok());
        let message_expires = from.maybe()?;
        Ok(Self {
            message,
            lane,
            tenant,
            hash,
            bytes,
            address,
            address_since,
            recipient,
            retry,
            class,
            ttl_s,
            envelope,
            message_expires,
        })
    }
}

impl RedisRow {
    pub(super) fn encode(&self) -> Vec<u8> {
        let flags = RowFlags { discarded: self.discarded, shares_message: self.shares_message };
        let mut out =
            ByteWriter(head(&self.progress, self.mark, flags, self.expires, self.free_batch));
        out.0[16..20].copy_from_slice(&self.moves.to_be_bytes());
        let (mut fixed, mut payload) = (ByteWriter::default(), ByteWriter::default());
        self.fixed.write(&mut fixed);
        if self.payload != RowPayload::default() {
            payload.text(self.payload.target.as_deref());
            payload.text(self.payload.body.as_deref());
            payload.text(self.payload.alternatives.as_deref());
        }
        for part in [&fixed.0, &payload.0] {
            out.0.extend_from_slice(&(part.len() as u32).to_be_bytes());
        }
        for part in [&fixed.0[..], &payload.0, self.log.as_bytes()] {
            out.0.extend_from_slice(part);
        }
        out.0
    }

    pub(super) fn decode(id: u128, bytes: &[u8]) -> RedisResult<Self> {
        let mut from = ByteReader(bytes);
        if from.byte()? != FORMAT {
            return Err(RedisFailure::damaged("a delivery of an unknown format"));
        }
        let state = State::from_code(from.byte()?)
            .ok_or_else(|| RedisFailure::damaged("a delivery's state"))?;
        let reason = DeadReason::from_code(from.byte()?);
        let flags = from.byte()?;
        let (crashes, attempts, tries, moves) =
            (from.small()?, from.small()?, from.small()?, from.small()?);
        let (due, delay, expires) = (from.number()?, from.number()?, from.number()?);
        let (changed, free_batch) = (from.number()?, from.number()?);
        let (fixed_len, payload_len) = (from.small()? as usize, from.small()? as usize);
        let fixed = FixedPart::read(&mut ByteReader(from.take(fixed_len)?))?;
        let mut payload_bytes = ByteReader(from.take(payload_len)?);
        let payload = match payload_len {
            0 => RowPayload::default(),
            _ => RowPayload {
                target: payload_bytes.text()?,
                body: payload_bytes.text()?,
                alternatives: payload_bytes.text()?,
            },
        };
        let log = String::from_utf8(from.0.to_vec());
        Ok(Self {
            id,
            progress: StoredProgress {
                state,
                reason,
                due: Timestamp(due),
                attempts,
                tries,
                last_delay: Duration::from_millis(delay.max(0) as u64),
                changed: Timestamp(changed),
            },
            mark: DeliveryMark {
                crashes,
                started: flags & STARTED > 0,
                cancelled: flags & CANCELLED > 0,
            },
            discarded: flags & DISCARDED > 0,
            shares_message: flags & SHARES > 0,
            moves,
            expires,
            free_batch,
            fixed,
            payload,
            log: log.map_err(|_| RedisFailure::damaged("a delivery's history"))?,
        })
    }

    /// Without what a final delivery does not need.
    pub(super) fn erased(self) -> Self {
        Self { payload: RowPayload::default(), mark: DeliveryMark::default(), ..self }
    }

    fn history(&self) -> RedisResult<DeliveryHistory> {
        let history = DeliveryHistory::parse(Some(&self.log));
        history.map_err(|_| RedisFailure::damaged("a delivery's history"))
    }

    /// The message of a single delivery.
    pub(super) fn lone_message(&self, lane: &LaneKey) -> RedisResult<Message> {
        let fixed = &self.fixed;
        let envelope = fixed.envelope.as_deref();
        Ok(Message {
            id: fixed.message,
            tenant: fixed.tenant.clone(),
            class: fixed.class.as_deref().map_or_else(|| lane.class.clone(), Arc::from),
            created_at: fixed.message.created_at(),
            expires_at: Timestamp(fixed.message_expires.unwrap_or(self.expires)),
            ttl_s: fixed.ttl_s.unwrap_or(0),
            envelope: envelope.map_or(Ok(Default::default()), |json| parse(json, "an envelope"))?,
            content: self.payload.body.as_deref().unwrap_or_default().into(),
        })
    }

    pub(super) fn leased(
        self,
        message: Arc<Message>,
        end: Option<AddressEnd>,
        strikes: Vec<Strike>,
    ) -> RedisResult<LeasedRow> {
        let target = self.payload.target.as_deref().and_then(Target::from_stored);
        let alternatives = self.payload.alternatives.as_deref();
        let alternatives: Vec<Alternative> =
            alternatives.map_or(Ok(Vec::new()), |json| parse(json, "a delivery's alternatives"))?;
        let retry = self.fixed.retry.as_deref();
        let retry = retry.map(|json| parse(json, "a retry policy")).transpose()?;
        Ok(LeasedRow {
            id: self.id,
            lane: self.fixed.lane,
            message,
            shares_message: self.shares_message,
            target: Arc::new(target.ok_or_else(|| RedisFailure::damaged("a delivery's address"))?),
            hash: self.fixed.hash,
            recipient: self.fixed.recipient.map(Into::into),
            address_since: self.fixed.address_since.map(Timestamp),
            progress: self.progress,
            mark: self.mark,
            expires: self.expires,
            retry,
            alternatives,
            log: Some(self.log).filter(|log| !log.is_empty()),
            bytes: self.fixed.bytes,
            end,
            strikes,
        })
    }

    /// As the ledger shows it. `lease_end` is the end of its last lease, if there is one.
    pub(super) fn view(
        &self,
        lane: &LaneKey,
        lease_end: Option<i64>,
        now: i64,
    ) -> RedisResult<Delivery> {
        let is_pending = self.progress.state.is_pending();
        let is_leased = is_pending && lease_end.is_some_and(|end| end > now);
        let due = Timestamp(lease_end.unwrap_or(self.progress.due.0));
        let history = self.history()?;
        Ok(Delivery {
            id: DeliveryId(self.id),
            message: self.fixed.message,
            tenant: self.fixed.tenant.clone(),
            channel: lane.channel,
            provider: lane.provider.clone(),
            class: lane.class.clone(),
            recipient: self.fixed.recipient.as_deref().map(Arc::from),
            address: self.fixed.address,
            address_hash: self.fixed.hash,
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

/// The history with new attempts, as JSON; the oldest are dropped.
pub(super) fn longer_log(known: &str, new: &[AttemptRecord]) -> RedisResult<String> {
    let log = history::longer(Some(known), new);
    Ok(log.map_err(|_| RedisFailure::damaged("a delivery's history"))?.unwrap_or_default())
}

/// The place of a delivery among those of its message.
pub(super) fn place_in_message(message: u128, delivery: u128) -> u32 {
    let between = order_key(delivery).saturating_sub(order_key(message) + 1);
    u32::try_from(between).unwrap_or(u32::MAX)
}

/// The id that a delivery of a message has: its message leads to it.
pub(super) fn delivery_id(message: u128, place: u32, delivery: &NewDelivery) -> u128 {
    let id = from_order_key(order_key(message) + 1 + u64::from(place), random_tail(message));
    in_shard(id, shard_of_new(delivery))
}

/// The only delivery of a message that was accepted here: it is in the same shard.
pub(super) fn lone_delivery_id(message: u128) -> u128 {
    from_order_key(order_key(message) + 1, random_tail(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_read_as_it_was_written() {
        let row = RedisRow {
            id: 77,
            progress: StoredProgress {
                state: State::Retrying,
                reason: None,
                due: Timestamp(1_790_000_000_123),
                attempts: 2,
                tries: 3,
                last_delay: Duration::from_millis(1_500),
                changed: Timestamp(1_790_000_000_100),
            },
            mark: DeliveryMark { crashes: 1, started: true, cancelled: false },
            discarded: false,
            shares_message: true,
            moves: 4,
            expires: 1_790_000_900_000,
            free_batch: 1 << 40,
            fixed: FixedPart {
                message: MessageId(76),
                lane: 9,
                tenant: TenantId::new("acme"),
                hash: AddressHash([7; 16]),
                bytes: 12,
                address: None,
                address_since: Some(5),
                recipient: Some("ann".to_owned()),
                retry: None,
                class: Some(String::new()),
                ttl_s: Some(60),
                envelope: None,
                message_expires: None,
            },
            payload: RowPayload { target: Some("{}".to_owned()), ..RowPayload::default() },
            log: "[]".to_owned(),
        };
        let bytes = row.encode();
        assert_eq!(RedisRow::decode(77, &bytes).unwrap(), row);
        assert_eq!(bytes[16..20], [0, 0, 0, 4]);
        for short in 0..HEAD + 8 {
            assert!(RedisRow::decode(77, &bytes[..short]).is_err());
        }
    }

    #[test]
    fn a_message_leads_to_its_deliveries() {
        let message = in_shard(from_order_key(12_345, u64::MAX), 17);
        let delivery = lone_delivery_id(message);
        assert_eq!(crate::sharded::shard_of(delivery), 17);
        assert_eq!(place_in_message(message, delivery), 0);
    }
}
