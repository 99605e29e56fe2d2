//! Messages that several deliveries share. They are in the shard of their own id; their deliveries tell them what they
//! still need, by way of an outbox in the shard of the delivery, so that a crash between the two loses nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

use futures_util::future::try_join_all;
use postrider_core::{DeliveryId, Message, MessageId, TenantId, Timestamp};

use super::changes::{ShardChange, ShardChanges};
use super::failure::{RedisFailure, RedisResult};
use super::link::words;
use super::names::{RowPlace, minute};
use super::pack::{Packed, bytes, id, int, list, pairs};
use super::row::{ByteReader, ByteWriter, RedisRow, lone_delivery_id, parse};
use super::scripts::{MESSAGE, NEEDS};
use super::shared::RedisShared;
use crate::sharded::load::LoadChange;
use crate::sharded::{ShardId, shard_of};

/// What a delivery needs of a shared message.
pub(super) const NEEDS_PENDING: u8 = 7;
pub(super) const NEEDS_DEAD: u8 = 6;
pub(super) const NEEDS_FINAL: u8 = 4;
pub(super) const NEEDS_NOTHING: u8 = 0;
/// Entries of an outbox that are deleted at once.
const TOLD_AT_ONCE: usize = 500;

/// A message with its own record.
#[derive(Debug, Clone)]
pub(super) struct SharedMessage {
    pub(super) message: Message,
    pub(super) envelope: Option<String>,
    pub(super) deliveries: Vec<u128>,
    /// How many it had when it was accepted.
    pub(super) count: u32,
    pub(super) has_content: bool,
}

impl SharedMessage {
    pub(super) fn record(&self) -> Vec<u8> {
        let message = &self.message;
        let mut out = ByteWriter::default();
        out.text(Some(message.tenant.as_str()));
        out.text(Some(&message.class));
        out.number(message.expires_at.0);
        out.number(i64::from(message.ttl_s));
        out.number(i64::from(self.count));
        out.text(self.envelope.as_deref());
        self.deliveries.iter().for_each(|id| out.id(*id));
        out.0
    }

    fn read(id: u128, record: &[u8], content: Option<Vec<u8>>) -> RedisResult<Self> {
        let mut from = ByteReader(record);
        let tenant = TenantId(from.text()?.unwrap_or_default().into());
        let class = from.text()?.unwrap_or_default();
        let (expires, ttl_s, count) = (from.number()?, from.number()?, from.number()?);
        let envelope = from.text()?;
        let mut deliveries = Vec::with_capacity(from.0.len() / 16);
        while !from.0.is_empty() {
            deliveries.push(from.id()?);
        }
        let parsed = envelope.as_deref();
        let parsed = parsed.map_or(Ok(Default::default()), |json| parse(json, "an envelope"))?;
        let has_content = content.is_some();
        let content = String::from_utf8(content.unwrap_or_default());
        let id = MessageId(id);
        let message = Message {
            id,
            tenant,
            class: class.into(),
            created_at: id.created_at(),
            expires_at: Timestamp(expires),
            ttl_s: u32::try_from(ttl_s).unwrap_or(0),
            envelope: parsed,
            content: content.map_err(|_| RedisFailure::damaged("a body"))?.into(),
        };
        let count = u32::try_from(count).unwrap_or(0);
        Ok(Self { message, envelope, deliveries, count, has_content })
    }
}

/// A tag of a message, as it is listed.
pub(super) fn tag_members(tenant: &TenantId, tags: &[Box<str>], message: u128) -> Vec<Vec<u8>> {
    let mut tags: Vec<_> = tags.iter().collect();
    tags.sort_unstable();
    tags.dedup();
    tags.into_iter().map(|tag| tag_member(tenant, tag, Some(message))).collect()
}

pub(super) fn tag_member(tenant: &TenantId, tag: &str, message: Option<u128>) -> Vec<u8> {
    let mut member = tenant.as_str().as_bytes().to_vec();
    member.push(0);
    member.extend_from_slice(tag.as_bytes());
    member.push(0);
    if let Some(message) = message {
        member.extend_from_slice(&message.to_be_bytes());
    }
    member
}

impl RedisShared {
    fn message_keys(&self, message: u128) -> Vec<String> {
        let (shard, names) = (shard_of(message), &self.names);
        let mut keys = vec![names.message(shard, message), names.needs(shard, message)];
        keys.extend(["t", "tb", "mi", "g", "mu"].map(|name| names.of(shard, name)));
        keys
    }

    /// Writes a message for several deliveries, before these. `needs` is what each of them needs.
    pub(super) async fn put_message(
        &self,
        new: &SharedMessage,
        needs: Option<&[u8]>,
        unsealed_until: Option<Timestamp>,
    ) -> RedisResult<()> {
        let message = &new.message;
        let mut packed = Packed::new();
        packed.list(9).bytes(message.id.0.to_be_bytes()).bytes(new.record());
        packed.maybe(new.has_content.then(|| message.content.as_bytes()));
        packed.int(if needs.is_some() { 0 } else { i64::from(new.count) });
        let all = [NEEDS_PENDING, 0, 0, 0, 0].repeat(new.count as usize);
        packed.bytes(needs.unwrap_or(&all)).bytes(message.tenant.as_str());
        let tags = tag_members(&message.tenant, &message.envelope.marks(), message.id.0);
        packed.list(tags.len());
        for tag in tags.iter() {
            packed.bytes(tag);
        }
        match unsealed_until {
            Some(at) => packed.int(at.0),
            None => packed.flag(false),
        };
        packed.int(if needs.is_some() { 0 } else { i64::from(new.count) });
        let keys = self.message_keys(message.id.0);
        self.link.call_durably(&MESSAGE, &keys, &[&packed.into_bytes()]).await.map(drop)
    }

    pub(super) async fn shared_message(&self, message: u128) -> RedisResult<Option<SharedMessage>> {
        let key = self.names.message(shard_of(message), message);
        let asked = words(&[b"HMGET", key.as_bytes(), b"record", b"content"]);
        let mut found = list(self.link.ask(&asked).await?)?.into_iter();
        let Some(record) = found.next().and_then(bytes) else { return Ok(None) };
        let content = found.next().and_then(bytes);
        SharedMessage::read(message, &record, content).map(Some)
    }

    pub(super) async fn shared_messages(
        &self,
        messages: impl IntoIterator<Item = MessageId>,
    ) -> RedisResult<HashMap<MessageId, SharedMessage>> {
        let mut asked: Vec<_> = messages.into_iter().collect();
        asked.sort_unstable();
        asked.dedup();
        let found = try_join_all(asked.iter().map(|id| self.shared_message(id.0))).await?;
        let known = asked.into_iter().zip(found);
        Ok(known.filter_map(|(id, message)| Some((id, message?))).collect())
    }

    /// Tells shared messages what their deliveries need, and empties the outbox of that.
    pub(super) async fn tell_messages(
        &self,
        shard: ShardId,
        outbox: Vec<(Vec<u8>, Vec<u8>)>,
    ) -> RedisResult<()> {
        if outbox.is_empty() {
            return Ok(());
        }
        let mut by_message: BTreeMap<u128, Vec<(u32, &[u8])>> = BTreeMap::new();
        for (field, needs) in &outbox {
            let mut from = ByteReader(field);
            let (message, place) = (from.id()?, from.small()?);
            by_message.entry(message).or_default().push((place, needs));
        }
        let tell = |(message, items): (&u128, &Vec<(u32, &[u8])>)| {
            let mut packed = Packed::new();
            packed.list(2).bytes(message.to_be_bytes()).list(items.len());
            for (place, needs) in items {
                packed.list(2).int(i64::from(*place)).bytes(needs);
            }
            let (message, packed) = (*message, packed.into_bytes());
            async move {
                let keys = self.message_keys(message);
                let change = int(&self.link.call_durably(&NEEDS, &keys, &[&packed]).await?)?;
                match change {
                    0 => Ok::<_, RedisFailure>(None),
                    bytes => Ok(Some((message, bytes))),
                }
            }
        };
        let freed = try_join_all(by_message.iter().map(tell)).await?;
        self.note_told(shard, outbox);
        for (message, bytes) in freed.into_iter().flatten() {
            self.note_freed(message, bytes).await?;
        }
        Ok(())
    }

    fn note_told(&self, shard: ShardId, outbox: Vec<(Vec<u8>, Vec<u8>)>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.entry(shard).or_default().extend(outbox);
    }

    /// What can be taken out of the outbox of a shard, some of it.
    pub(super) fn take_told(&self, shard: ShardId) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of) = told.get_mut(&shard) else { return Vec::new() };
        let rest = of.split_off(of.len().min(TOLD_AT_ONCE));
        std::mem::replace(of, rest)
    }

    /// Takes what messages were told out of the outboxes.
    pub(super) async fn clear_told(&self) -> RedisResult<()> {
        for shard in 0..crate::sharded::SHARDS {
            loop {
                let told = self.take_told(shard);
                if told.is_empty() {
                    break;
                }
                let mut changes = ShardChanges::new(self, shard);
                let key = changes.key(self.names.of(shard, "o"));
                for (field, needs) in &told {
                    let mut change = ShardChange::default();
                    change.if_field(key, field, Some(needs)).run("HDEL", key, &[field]);
                    changes.push(change);
                }
                self.apply(changes).await?;
            }
        }
        Ok(())
    }

    /// The load of the message's tenant changed; it is read again if the message is gone.
    async fn note_freed(&self, message: u128, bytes: i64) -> RedisResult<()> {
        if let Some(found) = self.shared_message(message).await? {
            self.load.change(&found.message.tenant, LoadChange { deliveries: 0, bytes });
        }
        Ok(())
    }

    /// Sends what a crash left in the outbox of a shard.
    pub(super) async fn empty_outbox(&self, shard: ShardId) -> RedisResult<()> {
        let key = self.names.of(shard, "o");
        let left = pairs(self.link.ask(&words(&[b"HGETALL", key.as_bytes()])).await?)?;
        self.tell_messages(shard, left).await
    }

    /// Where a delivery is, and its row.
    pub(super) async fn find_row(
        &self,
        delivery: u128,
    ) -> RedisResult<Option<(RowPlace, RedisRow)>> {
        // Twice, because it may move from one place to the next between the questions.
        for _ in 0..2 {
            for place in RowPlace::ALL {
                if let Some(bytes) = self.row_bytes(place, delivery).await? {
                    return Ok(Some((place, RedisRow::decode(delivery, &bytes)?)));
                }
            }
        }
        Ok(None)
    }

    pub(super) async fn row_bytes(
        &self,
        place: RowPlace,
        delivery: u128,
    ) -> RedisResult<Option<Vec<u8>>> {
        let key = self.names.rows(shard_of(delivery), place, minute(delivery));
        let asked = words(&[b"HGET", key.as_bytes(), &delivery.to_be_bytes()]);
        Ok(bytes(self.link.ask(&asked).await?))
    }

    /// The deliveries of a message that are not forgotten, with their rows.
    pub(super) async fn rows_of_message(
        &self,
        message: MessageId,
    ) -> RedisResult<(Option<SharedMessage>, Vec<(RowPlace, RedisRow)>)> {
        let shared = self.shared_message(message.0).await?;
        let ids = match &shared {
            Some(shared) => shared.deliveries.clone(),
            None => vec![lone_delivery_id(message.0)],
        };
        let mut rows = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(256) {
            let found = try_join_all(chunk.iter().map(|id| self.find_row(*id))).await?;
            let ours = |(_, row): &(RowPlace, RedisRow)| row.fixed.message == message;
            rows.extend(found.into_iter().flatten().filter(ours));
        }
        Ok((shared, rows))
    }

    pub(super) async fn delivery_ids(&self, message: MessageId) -> RedisResult<Vec<DeliveryId>> {
        let (_, rows) = self.rows_of_message(message).await?;
        Ok(rows.into_iter().map(|(_, row)| DeliveryId(row.id)).collect())
    }

    /// The ids of shared messages of a shard.
    pub(super) async fn message_ids(
        &self,
        shard: ShardId,
        after: u128,
        limit: usize,
    ) -> RedisResult<Vec<u128>> {
        let key = self.names.of(shard, "mi");
        let mut from = b"(".to_vec();
        from.extend_from_slice(&after.to_be_bytes());
        let limit = limit.to_string();
        let parts: [&[u8]; 7] =
            [b"ZRANGEBYLEX", key.as_bytes(), &from, b"+", b"LIMIT", b"0", limit.as_bytes()];
        let found = list(self.link.ask(&words(&parts)).await?)?;
        found.into_iter().filter_map(bytes).map(|bytes| id(&bytes)).collect()
    }
}
