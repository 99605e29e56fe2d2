//! Reads rows of the tables as the core's types.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::message::Envelope;
use postrider_core::ports::store::StoreError;
use postrider_core::{AddressHash, AddressId, DeadReason, Delivery, LaneKey, Message, Target};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::prelude::*;
use crate::embedded::index::delivery::StoredDelivery;
use crate::progress::{LOG_MAX, StoredProgress};

pub(crate) fn parse<T: DeserializeOwned>(text: &str, what: &str) -> StoreResult<T> {
    serde_json::from_str(text).map_err(|_| damaged(format!("{what} is not readable")))
}

/// An address as it was stored: only its channel is looked at.
pub(crate) fn stored_target(text: &str, what: &str) -> StoreResult<Target> {
    Target::from_stored(text).ok_or_else(|| damaged(format!("{what} is not readable")))
}

pub(crate) fn to_json(value: &impl serde::Serialize) -> StoreResult<String> {
    serde_json::to_string(value).map_err(|error| StoreError::io("cannot write JSON", error))
}

pub(crate) fn state(row: &Row<'_>) -> StoreResult<State> {
    State::from_code(get(row, "state")?).ok_or_else(|| damaged("a delivery's state"))
}

/// The id in the columns `seq` and `tail`.
pub(crate) fn row_id(row: &Row<'_>) -> StoreResult<u128> {
    Ok(from_order_key(unsigned(row, "seq")?, unsigned(row, "tail")?))
}

pub(crate) fn optional_time(row: &Row<'_>, column: &str) -> StoreResult<Option<Timestamp>> {
    Ok(get::<Option<i64>>(row, column)?.map(Timestamp))
}

/// `due` is absent once the delivery is final.
pub(crate) fn progress(row: &Row<'_>) -> StoreResult<StoredProgress> {
    let reason: Option<u8> = get(row, "reason")?;
    Ok(StoredProgress {
        state: state(row)?,
        reason: reason.and_then(DeadReason::from_code),
        due: optional_time(row, "due")?.unwrap_or(Timestamp(0)),
        attempts: get(row, "attempts")?,
        tries: get(row, "tries")?,
        last_delay: Duration::from_millis(get::<i64>(row, "last_delay_ms")?.unsigned_abs()),
        changed: Timestamp(get(row, "changed")?),
    })
}

/// A delivery as the ledger shows it, without its lease.
pub(crate) fn delivery(row: &Row<'_>, lane: &LaneKey) -> StoreResult<Delivery> {
    let message = from_order_key(unsigned(row, "message")?, unsigned(row, "message_tail")?);
    let progress = progress(row)?;
    let log: Option<String> = get(row, "log")?;
    let id = DeliveryId(row_id(row)?);
    let address: Option<[u8; 16]> = get(row, "address")?;
    Ok(Delivery {
        id,
        message: MessageId(message),
        tenant: lane.tenant.clone(),
        channel: lane.channel,
        provider: lane.provider.clone(),
        class: lane.class.clone(),
        recipient: get::<Option<String>>(row, "recipient")?.map(Arc::from),
        address: address.map(|id| AddressId(u128::from_be_bytes(id))),
        address_hash: AddressHash(get(row, "hash")?),
        state: progress.state,
        reason: progress.reason,
        discarded: get(row, "discarded")?,
        attempts: progress.attempts,
        created_at: id.created_at(),
        expires_at: Timestamp(get(row, "expires")?),
        held: progress.is_held(),
        due_at: Some(progress.due).filter(|_| progress.state.is_pending() && !progress.is_held()),
        changed_at: progress.changed,
        log: log.map_or(Ok(Vec::new()), |log| parse(&log, "a delivery's history"))?,
    })
}

/// The columns that the ledger shows: neither address nor body.
pub(crate) const DELIVERY: &str = "SELECT d.seq, d.tail, d.message, m.tail AS message_tail, d.lane, d.state, d.reason, d.due, \
     d.attempts, d.tries, d.last_delay_ms, d.expires, d.changed, d.hash, d.address, d.recipient, \
     d.log, d.reason IS NOT NULL AND NOT EXISTS (SELECT 1 FROM dead_letter l WHERE l.seq = d.seq) \
     AS discarded FROM delivery d JOIN message m ON m.seq = d.message";

/// The columns of a [`StoredDelivery`], in the order in which [`DeliveryReader`] reads them.
const STORED_DELIVERY: &str = "SELECT tail, message, lane, state, due, attempts, tries, last_delay_ms, expires, \
                   changed, hash, address_since, retry, log, target, body, alternatives FROM delivery \
                   WHERE seq = ?1 AND due IS NOT NULL";

/// Reads deliveries; a message that several of them share is read once.
pub(crate) struct DeliveryReader<'a> {
    conn: &'a Connection,
    messages: HashMap<u64, (Arc<Message>, u32)>,
}

impl<'a> DeliveryReader<'a> {
    pub(crate) fn new(conn: &'a Connection) -> Self {
        Self { conn, messages: HashMap::new() }
    }

    /// `None` if the delivery is not waiting any more.
    pub(crate) fn read(&mut self, seq: u64) -> StoreResult<Option<StoredDelivery>> {
        first_row(self.conn, STORED_DELIVERY, [seq as i64], |row| self.stored(row, seq))
    }

    fn stored(&mut self, row: &Row<'_>, seq: u64) -> StoreResult<StoredDelivery> {
        let text = |column: usize| get::<Option<String>>(row, column);
        let number = |column: usize| get::<i64>(row, column);
        let (message, siblings) = self.message(number(1)? as u64, text(15)?)?;
        let target = row.get_ref(14).map_err(sql)?.as_str_or_null().map_err(damaged)?;
        let target = target.ok_or_else(|| damaged("a waiting delivery has no address"))?;
        let since = get::<Option<i64>>(row, 11)?;
        let state = State::from_code(get(row, 3)?);
        let progress = StoredProgress {
            state: state.ok_or_else(|| damaged("a delivery's state"))?,
            reason: None,
            due: Timestamp(number(4)?),
            attempts: get(row, 5)?,
            tries: get(row, 6)?,
            last_delay: Duration::from_millis(number(7)?.unsigned_abs()),
            changed: Timestamp(number(9)?),
        };
        Ok(StoredDelivery {
            seq,
            tail: number(0)? as u64,
            lane: get(row, 2)?,
            message,
            siblings,
            target: Arc::new(stored_target(target, "a delivery's address")?),
            target_bytes: target.len(),
            hash: AddressHash(get(row, 10)?),
            address_since: since.map(Timestamp),
            expires: Timestamp(number(8)?),
            retry: text(12)?.map(|retry| parse(&retry, "a delivery's retry policy")).transpose()?,
            progress,
            log: text(13)?.map(Into::into),
            alternatives: text(16)?
                .map_or(Ok(Vec::new()), |list| parse(&list, "a delivery's other addresses"))?,
        })
    }

    fn message(&mut self, seq: u64, body: Option<String>) -> StoreResult<(Arc<Message>, u32)> {
        if let Some(known) = self.messages.get(&seq) {
            return Ok(known.clone());
        }
        let found = message(self.conn, seq)?.ok_or_else(|| damaged("a delivery has no message"))?;
        let mut message = found.message;
        if let Some(body) = body.or(found.content) {
            message.content = body.into();
        } else {
            return Err(damaged("a waiting delivery has no content"));
        }
        let read = (Arc::new(message), found.deliveries);
        if found.deliveries > 1 {
            self.messages.insert(seq, read.clone());
        }
        Ok(read)
    }
}

pub(crate) struct MessageRow {
    /// With empty content.
    pub(crate) message: Message,
    pub(crate) deliveries: u32,
    pub(crate) content: Option<String>,
}

const MESSAGE: &str = "SELECT tail, tenant, class, expires, ttl_s, envelope, deliveries, content \
                       FROM message WHERE seq = ?1";

pub(crate) fn message(conn: &Connection, seq: u64) -> StoreResult<Option<MessageRow>> {
    first_row(conn, MESSAGE, [seq as i64], |row| message_row(row, seq))
}

fn message_row(row: &Row<'_>, seq: u64) -> StoreResult<MessageRow> {
    let text = |column: usize| -> StoreResult<&str> {
        row.get_ref(column).map_err(sql)?.as_str().map_err(damaged)
    };
    let number = |column: usize| get::<i64>(row, column);
    let id = MessageId(from_order_key(seq, number(0)? as u64));
    let envelope = row.get_ref(5).map_err(sql)?.as_str_or_null().map_err(damaged)?;
    let message = Message {
        id,
        tenant: TenantId(text(1)?.into()),
        class: text(2)?.into(),
        created_at: id.created_at(),
        expires_at: Timestamp(number(3)?),
        ttl_s: get(row, 4)?,
        envelope: envelope
            .map_or(Ok(Envelope::default()), |text| parse(text, "a message's envelope"))?,
        content: "".into(),
    };
    let (deliveries, content) = (get(row, 6)?, get(row, 7)?);
    Ok(MessageRow { message, deliveries, content })
}

/// Appends attempts to a history. Parses the old ones only if there are too many.
pub(crate) fn appended(log: Option<&str>, tries: u32, attempts: &str) -> StoreResult<String> {
    let all = match log {
        None => format!("[{attempts}]"),
        Some(log) => format!("{},{attempts}]", log.strip_suffix(']').unwrap_or(log)),
    };
    if tries as usize <= LOG_MAX {
        return Ok(all);
    }
    let kept: Vec<Box<RawValue>> = parse(&all, "a delivery's history")?;
    let surplus = kept.len().saturating_sub(LOG_MAX);
    let texts: Vec<&str> = kept[surplus..].iter().map(|raw| raw.get()).collect();
    Ok(format!("[{}]", texts.join(",")))
}
