//! Everything in the store as records of the port, for another store and from one.

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, Timestamp};
use serde::{Deserialize, Serialize};

use super::RedisStore;
use super::failure::{RedisFailure, RedisResult};
use super::keys::StoredDedupKey;
use super::link::words;
use super::marks::{address_end, field_parts, strikes};
use super::names::RowPlace;
use super::pack::{byte_list, pairs, text_int};
use super::registry::StoredAddress;
use super::row::RedisRow;
use super::shared::RedisShared;
use crate::progress::HELD_MS;
use crate::sharded::{SHARDS, ShardId};

/// Where a copy goes on: a part of the store, a shard, and the last of it that is copied.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct CopyPosition {
    part: usize,
    shard: ShardId,
    /// A minute, or the end of an id as text, because JSON has no such numbers.
    after: String,
}

impl CopyPosition {
    fn read(text: Option<&str>) -> RedisResult<Self> {
        let damaged = |_| RedisFailure::damaged("a position of a copy");
        text.map_or_else(|| Ok(Self::default()), |text| serde_json::from_str(text).map_err(damaged))
    }

    fn write(&self) -> RedisResult<String> {
        serde_json::to_string(self).map_err(|_| RedisFailure::damaged("a position of a copy"))
    }

    /// The next shard, or the next part.
    fn next_shard(&mut self) {
        self.after.clear();
        self.shard += 1;
        if self.shard >= SHARDS {
            self.shard = 0;
            self.part += 1;
        }
    }
}

/// How many parts each kind has.
fn parts(kind: RecordKind) -> usize {
    match kind {
        // Shared messages, and deliveries with their own.
        RecordKind::Message => 1 + RowPlace::ALL.len(),
        RecordKind::Delivery => RowPlace::ALL.len(),
        _ => 1,
    }
}

impl RedisShared {
    async fn export(
        &self,
        kind: RecordKind,
        after: Option<&str>,
        limit: usize,
        over_by: Timestamp,
    ) -> RedisResult<RecordPage> {
        let mut position = CopyPosition::read(after)?;
        let mut records = Vec::new();
        while records.len() < limit && position.part < parts(kind) {
            match kind {
                RecordKind::Message if position.part == 0 => {
                    self.export_messages(&mut position, limit, &mut records).await?;
                }
                RecordKind::Message => {
                    let place = RowPlace::ALL[position.part - 1];
                    self.export_rows(kind, place, &mut position, &mut records).await?;
                }
                RecordKind::Delivery => {
                    let place = RowPlace::ALL[position.part];
                    self.export_rows(kind, place, &mut position, &mut records).await?;
                }
                _ => {
                    self.export_shard(kind, position.shard, over_by, &mut records).await?;
                    position.next_shard();
                }
            }
        }
        let is_end = position.part >= parts(kind);
        let next = if is_end { None } else { Some(position.write()?) };
        Ok(RecordPage { records, next })
    }

    /// Addresses, marks and keys of a shard.
    async fn export_shard(
        &self,
        kind: RecordKind,
        shard: ShardId,
        over_by: Timestamp,
        records: &mut Vec<StoreRecord>,
    ) -> RedisResult<()> {
        let all = async |name: &str| {
            let key = self.names.of(shard, name);
            pairs(self.link.ask(&words(&[b"HGETALL", key.as_bytes()])).await?)
        };
        match kind {
            RecordKind::Address => {
                for (_, value) in all("ad").await? {
                    records.push(StoreRecord::Address(StoredAddress::decode(&value)?.address()));
                }
            }
            RecordKind::GoneMark => {
                for (field, value) in all("ga").await? {
                    let (tenant, hash) = field_parts(&field)?;
                    let deleted_before = address_end(&value)?.deleted_before();
                    records.push(StoreRecord::GoneMark { tenant, hash, deleted_before });
                }
            }
            RecordKind::Strike => {
                for (field, value) in all("st").await? {
                    let (tenant, hash) = field_parts(&field)?;
                    for strike in strikes(&value)? {
                        records.push(StoreRecord::Strike { tenant: tenant.clone(), hash, strike });
                    }
                }
            }
            _ => self.export_keys(shard, over_by, records).await?,
        }
        Ok(())
    }

    async fn export_keys(
        &self,
        shard: ShardId,
        over_by: Timestamp,
        records: &mut Vec<StoreRecord>,
    ) -> RedisResult<()> {
        let periods = self.names.of(shard, "kb");
        let asked = words(&[b"ZRANGE", periods.as_bytes(), b"0", b"-1"]);
        for period in byte_list(self.link.ask(&asked).await?)?.into_iter().flatten() {
            let key = self.names.keys(shard, text_int(&period)?);
            for (field, value) in
                pairs(self.link.ask(&words(&[b"HGETALL", key.as_bytes()])).await?)?
            {
                let stored = StoredDedupKey::decode(&value)?;
                if stored.expires <= over_by.0 {
                    continue;
                }
                let key =
                    field.try_into().map_err(|_| RedisFailure::damaged("an idempotency key"))?;
                records.push(StoreRecord::IdempotencyKey(IdempotencyRecord {
                    key,
                    fingerprint: stored.fingerprint,
                    message: stored.message,
                    expires_at: Timestamp(stored.expires),
                }));
            }
        }
        Ok(())
    }

    async fn export_messages(
        &self,
        position: &mut CopyPosition,
        limit: usize,
        records: &mut Vec<StoreRecord>,
    ) -> RedisResult<()> {
        let after = u128::from_str_radix(&position.after, 16).unwrap_or(0);
        let ids = self.message_ids(position.shard, after, limit).await?;
        for id in &ids {
            if let Some(shared) = self.shared_message(*id).await? {
                let (message, is_lone) = (shared.message, shared.count == 1);
                records.push(StoreRecord::Message(Box::new(StoredMessageRecord {
                    id: message.id,
                    tenant: message.tenant,
                    class: (*message.class).into(),
                    expires_at: message.expires_at,
                    ttl_s: message.ttl_s,
                    deliveries: shared.count,
                    envelope: shared.envelope.map(String::into_boxed_str),
                    content: (shared.has_content && !is_lone).then(|| (*message.content).into()),
                })));
            }
        }
        match ids.last().filter(|_| ids.len() == limit) {
            Some(last) => position.after = format!("{last:032x}"),
            None => position.next_shard(),
        }
        Ok(())
    }

    /// The rows of the next minute.
    async fn export_rows(
        &self,
        kind: RecordKind,
        place: RowPlace,
        position: &mut CopyPosition,
        records: &mut Vec<StoreRecord>,
    ) -> RedisResult<()> {
        let key = self.names.minutes(position.shard, place);
        let from = if position.after.is_empty() {
            "-inf".to_owned()
        } else {
            format!("({}", position.after)
        };
        let parts: [&[u8]; 7] =
            [b"ZRANGEBYSCORE", key.as_bytes(), from.as_bytes(), b"+inf", b"LIMIT", b"0", b"1"];
        let found = byte_list(self.link.ask(&words(&parts)).await?)?;
        let Some(minute) = found.into_iter().flatten().next() else {
            position.next_shard();
            return Ok(());
        };
        let minute = text_int(&minute)?;
        let mut ids = self.ids_of_minute(position.shard, place, minute).await?;
        ids.sort_unstable();
        for chunk in ids.chunks(1_000) {
            for (row, _) in self.rows(position.shard, place, minute, chunk).await? {
                if kind == RecordKind::Delivery {
                    records.push(self.delivery_record(row, place == RowPlace::Dead).await?);
                } else if !row.shares_message {
                    records.push(self.lone_record(&row).await?);
                }
            }
        }
        position.after = minute.to_string();
        Ok(())
    }

    async fn lone_record(&self, row: &RedisRow) -> RedisResult<StoreRecord> {
        let lane = self.lane_of(row.fixed.lane).await?;
        let message = row.lone_message(&lane)?;
        Ok(StoreRecord::Message(Box::new(StoredMessageRecord {
            id: message.id,
            tenant: message.tenant,
            class: (*message.class).into(),
            expires_at: message.expires_at,
            ttl_s: message.ttl_s,
            deliveries: 1,
            envelope: row.fixed.envelope.as_deref().map(Into::into),
            content: None,
        })))
    }

    async fn delivery_record(&self, row: RedisRow, dead_letter: bool) -> RedisResult<StoreRecord> {
        let boxed = |text: Option<String>| text.map(String::into_boxed_str);
        let lane = self.lane_of(row.fixed.lane).await?;
        // A message that came from another store has its body even if it has one delivery.
        let body = match row.shares_message
            && crate::progress::needs_body(row.progress.state, !dead_letter)
        {
            true => {
                let shared = self.shared_message(row.fixed.message.0).await?;
                let lone = shared.filter(|shared| shared.count == 1 && shared.has_content);
                lone.map(|shared| (*shared.message.content).into())
            }
            false => boxed(row.payload.body),
        };
        let progress = row.progress;
        let held = progress.is_held();
        let due = Timestamp(if held { progress.due.0 - HELD_MS } else { progress.due.0 });
        Ok(StoreRecord::Delivery(Box::new(StoredDeliveryRecord {
            id: DeliveryId(row.id),
            message: row.fixed.message,
            lane,
            state: progress.state,
            reason: progress.reason,
            dead_letter,
            due: Some(due).filter(|_| progress.state.is_pending()),
            held,
            attempts: progress.attempts,
            tries: progress.tries,
            last_delay_ms: progress.last_delay.as_millis() as i64,
            expires_at: Timestamp(row.expires),
            changed_at: progress.changed,
            hash: row.fixed.hash,
            address: row.fixed.address,
            address_since: row.fixed.address_since.map(Timestamp),
            recipient: boxed(row.fixed.recipient),
            retry: boxed(row.fixed.retry),
            log: Some(row.log).filter(|log| !log.is_empty()).map(String::into_boxed_str),
            target: boxed(row.payload.target),
            body,
            alternatives: boxed(row.payload.alternatives),
            crashes: row.mark.crashes,
            started: row.mark.started,
            cancelled: row.mark.cancelled,
        })))
    }
}

#[async_trait]
impl StoreTransfer for RedisStore {
    async fn export(
        &self,
        kind: RecordKind,
        after: Option<&str>,
        limit: usize,
        over_by: Timestamp,
    ) -> StoreResult<RecordPage> {
        match kind {
            RecordKind::Document => {
                let all = self.documents("").await?.into_iter();
                let records = all.filter_map(|document| {
                    let Document { name, json, expires_at, .. } = document;
                    Some(StoreRecord::Document(DocumentRecord { name, json: json?, expires_at }))
                });
                Ok(RecordPage { records: records.collect(), next: None })
            }
            RecordKind::Lane => {
                let lanes = self.shared.all_lanes().await?;
                let records = lanes.into_iter().map(StoreRecord::Lane).collect();
                Ok(RecordPage { records, next: None })
            }
            RecordKind::Audit => crate::audit_pages::export(self, after, limit.max(1)).await,
            RecordKind::Entry => crate::entry_pages::export(self, after, limit.max(1)).await,
            RecordKind::Rollup => crate::rollup_pages::export(self, after, limit.max(1)).await,
            _ => Ok(self.shared.export(kind, after, limit.max(1), over_by).await?),
        }
    }

    async fn import(&self, records: Vec<StoreRecord>) -> StoreResult<()> {
        self.shared.import(&records).await?;
        self.shared.tell_of_notes(0..SHARDS);
        Ok(self.shared.refresh().await?)
    }
}
