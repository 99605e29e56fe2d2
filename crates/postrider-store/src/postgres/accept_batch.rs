//! New messages as the arrays of one statement, and the answers to it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, LaneKey, MessageId, TenantId, Timestamp};
use tokio_postgres::types::ToSql;

use super::intake::delivery_range;
use super::keys::StoredKeys;
use super::shared::PgShared;
use super::value::PgId;
use crate::progress::stored_message;
use crate::sharded::load::LoadChange;
use crate::sharded::{json_unless, shard_of};

/// Which messages of a batch were accepted.
pub(super) struct AcceptedKeys {
    pub(super) won: HashSet<MessageId>,
    pub(super) known: StoredKeys,
    /// Messages with a key.
    pub(super) keyed: HashSet<MessageId>,
}

impl AcceptedKeys {
    pub(super) fn is_accepted(&self, message: MessageId) -> bool {
        !self.keyed.contains(&message) || self.won.contains(&message)
    }
}

/// Rows to insert, as arrays.
#[derive(Default)]
pub(super) struct AcceptBatch {
    receipt: Option<PgId>,
    now: i64,
    messages: Vec<BatchMessage>,
    /// Keys, each once.
    pub(super) keys: Vec<BatchKey>,
    /// Messages whose key another one of the batch has, too.
    pub(super) repeats: usize,
    key_columns: KeyColumns,
    message_columns: MessageColumns,
    delivery_columns: DeliveryColumns,
    tag_columns: TagColumns,
    pub(super) loads: Vec<(MessageId, LoadChange)>,
    pub(super) tenants: HashMap<MessageId, TenantId>,
}

struct BatchMessage {
    id: MessageId,
    deliveries: Vec<DeliveryId>,
    dedup: Option<DedupKey>,
    /// Its key is that of an earlier message of the batch.
    is_repeat: bool,
}

pub(super) struct BatchKey {
    pub(super) key: DedupKey,
    pub(super) message: MessageId,
}

#[derive(Default)]
struct KeyColumns {
    key: Vec<Vec<u8>>,
    fingerprint: Vec<Vec<u8>>,
    message: Vec<PgId>,
    deliveries: Vec<i32>,
    expires: Vec<i64>,
}

#[derive(Default)]
struct MessageColumns {
    id: Vec<PgId>,
    tenant: Vec<String>,
    class: Vec<String>,
    expires: Vec<i64>,
    ttl_s: Vec<i32>,
    deliveries: Vec<i32>,
    envelope: Vec<Option<String>>,
    content: Vec<String>,
    keyed: Vec<bool>,
}

#[derive(Default)]
struct DeliveryColumns {
    id: Vec<PgId>,
    message: Vec<PgId>,
    shard: Vec<i16>,
    lane: Vec<i32>,
    tenant: Vec<String>,
    due: Vec<i64>,
    expires: Vec<i64>,
    hash: Vec<Vec<u8>>,
    address: Vec<Option<PgId>>,
    address_since: Vec<Option<i64>>,
    recipient: Vec<Option<String>>,
    target: Vec<String>,
    alternatives: Vec<Option<String>>,
    bytes: Vec<i32>,
    class: Vec<Option<String>>,
    ttl_s: Vec<Option<i32>>,
    envelope: Vec<Option<String>>,
    body: Vec<Option<String>>,
    shares_message: Vec<bool>,
    keyed: Vec<bool>,
    first: Vec<bool>,
    load: Vec<i32>,
}

#[derive(Default)]
pub(super) struct TagColumns {
    tenant: Vec<String>,
    tag: Vec<String>,
    message: Vec<PgId>,
    first: Vec<PgId>,
    last: Vec<PgId>,
    keyed: Vec<bool>,
}

impl TagColumns {
    /// Each tag once.
    fn add(&mut self, new: &NewMessage, message: MessageId) {
        let mut tags = new.envelope.marks();
        tags.sort_unstable();
        tags.dedup();
        let (first, last) = delivery_range(message, new.deliveries.len() as u32);
        for tag in tags {
            self.tenant.push(new.tenant.as_str().to_owned());
            self.tag.push(tag.to_string());
            self.message.push(PgId(message.0));
            self.first.push(first);
            self.last.push(last);
            self.keyed.push(is_keyed(new));
        }
    }
}

impl AcceptBatch {
    pub(super) fn new(
        shared: &PgShared,
        messages: Vec<NewMessage>,
        lanes: &HashMap<Arc<LaneKey>, u32>,
        now: Timestamp,
    ) -> Self {
        let mut batch =
            Self { receipt: Some(PgId(shared.new_id())), now: now.0, ..Self::default() };
        let mut seen: HashMap<[u8; 16], MessageId> = HashMap::new();
        for new in messages {
            let is_repeat = new.dedup.as_ref().is_some_and(|dedup| seen.contains_key(&dedup.key));
            let minted = shared.mint(&new, now);
            if let Some(dedup) = new.dedup.as_ref().filter(|_| !is_repeat) {
                seen.insert(dedup.key, minted.0);
            }
            batch.add(new, minted, is_repeat, lanes, now);
        }
        batch
    }

    fn add(
        &mut self,
        new: NewMessage,
        (id, deliveries): (MessageId, Vec<DeliveryId>),
        is_repeat: bool,
        lanes: &HashMap<Arc<LaneKey>, u32>,
        now: Timestamp,
    ) {
        let dedup = new.dedup.clone();
        self.messages.push(BatchMessage {
            id,
            deliveries: deliveries.clone(),
            dedup: dedup.clone(),
            is_repeat,
        });
        if is_repeat {
            self.repeats += 1;
            return;
        }
        let stored = stored_message(&new, id, now);
        let keyed = is_keyed(&new);
        for key in dedup.into_iter().chain(new.member_keys.iter().cloned()) {
            let expires = (now + key.window).max(stored.expires_at);
            let columns = &mut self.key_columns;
            columns.key.push(key.key.to_vec());
            columns.fingerprint.push(key.fingerprint.to_vec());
            columns.message.push(PgId(id.0));
            columns.deliveries.push(deliveries.len() as i32);
            columns.expires.push(expires.0);
            self.keys.push(BatchKey { key, message: id });
        }
        self.tenants.insert(id, new.tenant.clone());
        self.tag_columns.add(&new, id);
        let envelope = json_unless(&new.envelope);
        let shares_message = deliveries.len() > 1;
        let body = new.content.len() as i32;
        if shares_message {
            let columns = &mut self.message_columns;
            columns.id.push(PgId(id.0));
            columns.tenant.push(new.tenant.as_str().to_owned());
            columns.class.push(new.class.to_string());
            columns.expires.push(stored.expires_at.0);
            columns.ttl_s.push(ttl(new.ttl_s));
            columns.deliveries.push(deliveries.len() as i32);
            columns.envelope.push(envelope.clone());
            columns.content.push(new.content.to_string());
            columns.keyed.push(keyed);
        }
        let due = new.send_at.map_or(now, |at| at.max(now)).0;
        let mut load = LoadChange { deliveries: deliveries.len() as i64, bytes: 0 };
        let columns = &mut self.delivery_columns;
        for (index, (delivery, id_)) in new.deliveries.into_iter().zip(deliveries).enumerate() {
            let target = delivery.target.as_json().to_owned();
            let own = target.len() as i32;
            let bytes = if shares_message { own } else { own + body };
            let first = index == 0;
            let counted = if shares_message && first { own + body } else { bytes };
            load.bytes += i64::from(counted);
            columns.id.push(PgId(id_.0));
            columns.message.push(PgId(id.0));
            columns.shard.push(shard_of(id_.0) as i16);
            columns.lane.push(lanes.get(&delivery.lane).copied().unwrap_or_default() as i32);
            columns.tenant.push(delivery.lane.tenant.as_str().to_owned());
            columns.due.push(due);
            columns.expires.push(stored.expires_at.0);
            columns.hash.push(delivery.hash.0.to_vec());
            columns.address.push(delivery.address.map(|id| PgId(id.0)));
            columns.address_since.push(delivery.address_since.map(|at| at.0));
            columns.recipient.push(delivery.recipient.map(|recipient| recipient.to_string()));
            columns.target.push(target);
            columns.alternatives.push(json_unless(&delivery.alternatives));
            columns.bytes.push(bytes);
            let class = (!shares_message && new.class != delivery.lane.class)
                .then(|| new.class.to_string());
            columns.class.push(class);
            columns.ttl_s.push((!shares_message).then_some(ttl(new.ttl_s)));
            columns.envelope.push(envelope.clone().filter(|_| !shares_message));
            columns.body.push((!shares_message).then(|| new.content.to_string()));
            columns.shares_message.push(shares_message);
            columns.keyed.push(keyed);
            columns.first.push(first);
            columns.load.push(counted);
        }
        self.loads.push((id, load));
    }

    /// The answer to the only message of the batch, whose deliveries have keys of their own.
    pub(super) fn list_answer(&self, accepted: &AcceptedKeys) -> Option<Admission> {
        let list = self.messages.first()?;
        let (message, deliveries) = (list.id, list.deliveries.clone());
        let (mut places, mut first) = (Vec::new(), None);
        for (place, key) in self.keys.iter().enumerate() {
            let holder = accepted.known.message_of(&key.key);
            if holder.is_some_and(|holder| holder != message) {
                places.push(place);
                first = first.or(holder);
            }
        }
        Some(match first {
            Some(message) => Admission::RepeatedMembers { places, message },
            None => Admission::Accepted { message, deliveries },
        })
    }

    pub(super) fn keyed_messages(&self) -> HashSet<MessageId> {
        self.keys.iter().map(|key| key.message).collect()
    }

    pub(super) fn values<'a>(&'a self, over_by: &'a i64) -> Vec<&'a (dyn ToSql + Sync)> {
        let (k, m, d) = (&self.key_columns, &self.message_columns, &self.delivery_columns);
        let t = &self.tag_columns;
        vec![
            &self.receipt,
            &k.key,
            &k.fingerprint,
            &k.message,
            &k.deliveries,
            &k.expires,
            over_by,
            &m.id,
            &m.tenant,
            &m.class,
            &m.expires,
            &m.ttl_s,
            &m.deliveries,
            &m.envelope,
            &m.content,
            &m.keyed,
            &d.id,
            &d.message,
            &d.shard,
            &d.lane,
            &d.tenant,
            &d.due,
            &d.expires,
            &d.hash,
            &d.address,
            &d.address_since,
            &d.recipient,
            &d.target,
            &d.alternatives,
            &d.bytes,
            &d.class,
            &d.ttl_s,
            &d.envelope,
            &d.body,
            &d.shares_message,
            &d.keyed,
            &d.first,
            &d.load,
            &self.now,
            &t.tenant,
            &t.tag,
            &t.message,
            &t.first,
            &t.last,
            &t.keyed,
        ]
    }

    pub(super) fn answers(&self, accepted: &AcceptedKeys) -> Vec<StoreResult<Admission>> {
        let answer = |message: &BatchMessage| {
            let (id, deliveries) = (message.id, message.deliveries.clone());
            match &message.dedup {
                None => Ok(Admission::Accepted { message: id, deliveries }),
                Some(_) if !message.is_repeat && accepted.won.contains(&id) => {
                    Ok(Admission::Accepted { message: id, deliveries })
                }
                // The older key ended at this moment.
                Some(key) => accepted.known.repeated(key).ok_or_else(|| StoreError::Io {
                    what: "an idempotency key ended meanwhile; send the message again".to_owned(),
                    cause: None,
                }),
            }
        };
        self.messages.iter().map(answer).collect()
    }
}

/// It has a key, or its deliveries do.
fn is_keyed(new: &NewMessage) -> bool {
    new.dedup.is_some() || !new.member_keys.is_empty()
}

fn ttl(ttl_s: u32) -> i32 {
    i32::try_from(ttl_s).unwrap_or(i32::MAX)
}
