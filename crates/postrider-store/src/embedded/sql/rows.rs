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
use crate::history::{DeliveryHistory, LOG_MAX};
use crate::progress::StoredProgress;

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
    let history = DeliveryHistory::parse(log.as_deref());
    let history = history.map_err(|_| damaged("a delivery's history is not readable"))?;
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
        log: history.attempts,
        receipts: history.receipts,
    })
}

/// The columns that the ledger shows: neither address nor body.
macro_rules! shown_columns {
    () => {
        "SELECT d.seq, d.tail, d.message, m.tail AS message_tail, d.lane, d.state, d.reason, d.due, \
         d.attempts, d.tries, d.last_delay_ms, d.expires, d.changed, d.hash, d.address, d.recipient, \
         d.log, d.reason IS NOT NULL AND NOT EXISTS (SELECT 1 FROM dead_letter l WHERE l.seq = d.seq) \
         AS discarded"
    };
}
pub(crate) const SHOWN_COLUMNS: &str = shown_columns!();
pub(crate) const DELIVERY: &str =
    concat!(shown_columns!(), " FROM delivery d JOIN message m ON m.seq = d.message");

/// One delivery, by its sequence.
pub(crate) const ONE_DELIVERY: &str = concat!(
    shown_columns!(),
    " FROM delivery d JOIN message m ON m.seq = d.message WHERE d.seq = ?1"
);

/// The columns of a [`StoredDelivery`] and its message, in the order in which [`DeliveryReader`] reads them. A content
/// that deliveries share is read once, on its own.
macro_rules! stored_delivery {
    ($which:literal) => {
        concat!(
            "SELECT d.due, d.seq, d.tail, d.message, d.lane, d.state, d.attempts, d.tries, d.last_delay_ms, \
             d.expires, d.changed, d.hash, d.address_since, d.retry, d.log, d.target, d.body, d.alternatives, \
             m.deliveries, m.tail, m.tenant, m.class, m.expires, m.ttl_s, m.envelope, d.recipient \
             FROM delivery d CROSS JOIN message m ON m.seq = d.message WHERE ",
            $which
        )
    };
}
const ONE: &str = stored_delivery!("d.seq = ?1 AND d.due IS NOT NULL");
const FROM: &str = stored_delivery!("d.seq >= ?1 ORDER BY d.seq LIMIT ?2");
/// Where the columns of the message begin.
const MESSAGE_COLUMNS: usize = 18;

/// What was read in the order of the file.
pub(crate) struct DeliveriesAhead {
    pub(crate) found: Vec<StoredDelivery>,
    /// Where to go on.
    pub(crate) end: u64,
    /// Also those that do not wait any more.
    pub(crate) rows: usize,
}

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
        let found = first_row(self.conn, ONE, [seq as i64], |row| self.stored(row))?;
        if found.is_none() && self.lacks_message(seq)? {
            return Err(damaged("a delivery has no message"));
        }
        Ok(found)
    }

    fn lacks_message(&self, seq: u64) -> StoreResult<bool> {
        let select = "SELECT 1 FROM delivery WHERE seq = ?1 AND due IS NOT NULL";
        Ok(value::<i64>(self.conn, select, [seq as i64])?.is_some())
    }

    /// Reads on from a sequence, over so many deliveries, until they have so many bytes. Returns those that wait.
    /// Ends early at one that cannot be read.
    pub(crate) fn read_from(&mut self, seq: u64, rows: usize, bytes: usize) -> DeliveriesAhead {
        let (mut found, mut end, mut rows_read) = (Vec::new(), seq, 0);
        let mut left = bytes;
        let mut read = || -> StoreResult<()> {
            let mut statement = self.conn.prepare_cached(FROM).map_err(sql)?;
            let mut all = statement.query([seq as i64, rows as i64]).map_err(sql)?;
            while let Some(row) = all.next().map_err(sql)? {
                end = unsigned(row, 1)? + 1;
                rows_read += 1;
                if get::<Option<i64>>(row, 0)?.is_none() {
                    continue;
                }
                let delivery = self.stored(row)?;
                let size = delivery.bytes();
                found.push(delivery);
                if size >= left {
                    break;
                }
                left -= size;
            }
            Ok(())
        };
        // What is not read here is read when it is leased, and its errors are found then.
        let _ = read();
        DeliveriesAhead { found, end, rows: rows_read }
    }

    fn stored(&mut self, row: &Row<'_>) -> StoreResult<StoredDelivery> {
        let text = |column: usize| get::<Option<String>>(row, column);
        let number = |column: usize| get::<i64>(row, column);
        let (message, siblings) = self.message(row)?;
        let target = row.get_ref(15).map_err(sql)?.as_str_or_null().map_err(damaged)?;
        let target = target.ok_or_else(|| damaged("a waiting delivery has no address"))?;
        let since = get::<Option<i64>>(row, 12)?;
        let state = State::from_code(get(row, 5)?);
        let progress = StoredProgress {
            state: state.ok_or_else(|| damaged("a delivery's state"))?,
            reason: None,
            due: Timestamp(number(0)?),
            attempts: get(row, 6)?,
            tries: get(row, 7)?,
            last_delay: Duration::from_millis(number(8)?.unsigned_abs()),
            changed: Timestamp(number(10)?),
        };
        Ok(StoredDelivery {
            seq: unsigned(row, 1)?,
            tail: number(2)? as u64,
            lane: get(row, 4)?,
            message,
            siblings,
            target: Arc::new(stored_target(target, "a delivery's address")?),
            target_bytes: target.len(),
            hash: AddressHash(get(row, 11)?),
            recipient: text(25)?.map(Into::into),
            address_since: since.map(Timestamp),
            expires: Timestamp(number(9)?),
            retry: text(13)?.map(|retry| parse(&retry, "a delivery's retry policy")).transpose()?,
            progress,
            log: text(14)?.map(Into::into),
            alternatives: text(17)?
                .map_or(Ok(Vec::new()), |list| parse(&list, "a delivery's other addresses"))?,
        })
    }

    /// The message of a row, and how many deliveries it has.
    fn message(&mut self, row: &Row<'_>) -> StoreResult<(Arc<Message>, u32)> {
        let (seq, deliveries) = (unsigned(row, 3)?, get(row, MESSAGE_COLUMNS)?);
        if let Some(known) = self.messages.get(&seq) {
            return Ok(known.clone());
        }
        let content = match row.get_ref(16).map_err(sql)?.as_str_or_null().map_err(damaged)? {
            Some(body) => Some(body.into()),
            None => {
                let select = "SELECT content FROM message WHERE seq = ?1";
                value::<Option<String>>(self.conn, select, [seq as i64])?.flatten().map(Into::into)
            }
        };
        let content = content.ok_or_else(|| damaged("a waiting delivery has no content"))?;
        let message = Message { content, ..message_columns(row, MESSAGE_COLUMNS + 1, seq)? };
        let read = (Arc::new(message), deliveries);
        if deliveries > 1 {
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
    let (deliveries, content) = (get(row, 6)?, get(row, 7)?);
    Ok(MessageRow { message: message_columns(row, 0, seq)?, deliveries, content })
}

/// A message with empty content, whose columns begin at `at`.
fn message_columns(row: &Row<'_>, at: usize, seq: u64) -> StoreResult<Message> {
    let text = |column: usize| -> StoreResult<&str> {
        row.get_ref(at + column).map_err(sql)?.as_str().map_err(damaged)
    };
    let number = |column: usize| get::<i64>(row, at + column);
    let id = MessageId(from_order_key(seq, number(0)? as u64));
    let envelope = row.get_ref(at + 5).map_err(sql)?.as_str_or_null().map_err(damaged)?;
    Ok(Message {
        id,
        tenant: TenantId(text(1)?.into()),
        class: text(2)?.into(),
        created_at: id.created_at(),
        expires_at: Timestamp(number(3)?),
        ttl_s: get(row, at + 4)?,
        envelope: envelope
            .map_or(Ok(Envelope::default()), |text| parse(text, "a message's envelope"))?,
        content: "".into(),
    })
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
