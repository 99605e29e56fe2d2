//! Idempotency keys. A key is reserved first, then its message is written, then the key is sealed. Whoever finds a
//! reserved key with the same fingerprint writes the same message under the same ids: what is there already stays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use futures_util::future::try_join_all;
use postrider_core::ports::store::{Admission, DedupKey};
use postrider_core::{DeliveryId, MessageId, Timestamp};
use redis::Value;

use super::failure::{RedisFailure, RedisResult};
use super::link::Patience;
use super::names::{KEYS_MS, shard_of_key};
use super::pack::{Packed, bytes, list, text_int};
use super::row::ByteReader;
use super::scripts::{RELEASE, RESERVE, SEAL, ServerScript};
use super::shared::RedisShared;
use crate::sharded::ShardId;

/// A key as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredDedupKey {
    pub(super) fingerprint: [u8; 16],
    pub(super) message: MessageId,
    pub(super) deliveries: u32,
    pub(super) expires: i64,
    /// Its message is written.
    pub(super) sealed: bool,
}

impl StoredDedupKey {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = self.fingerprint.to_vec();
        out.extend_from_slice(&self.message.0.to_be_bytes());
        out.extend_from_slice(&self.deliveries.to_be_bytes());
        out.extend_from_slice(&self.expires.to_be_bytes());
        out.push(u8::from(self.sealed));
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> RedisResult<Self> {
        let mut from = ByteReader(bytes);
        Ok(Self {
            fingerprint: from.array()?,
            message: MessageId(from.id()?),
            deliveries: from.small()?,
            expires: from.number()?,
            sealed: from.byte()? == 1,
        })
    }

    pub(super) fn period(&self) -> i64 {
        self.expires.div_euclid(KEYS_MS)
    }
}

/// A key that is looked for, and written if it has a value.
#[derive(Debug, Clone)]
pub(super) struct AskedKey {
    pub(super) key: [u8; 16],
    pub(super) value: Option<StoredDedupKey>,
}

impl RedisShared {
    /// For each key what is stored under it; `None` if it is new, and now written if it had a value.
    pub(super) async fn reserve(
        &self,
        asked: &[AskedKey],
    ) -> RedisResult<Vec<Option<StoredDedupKey>>> {
        let mut by_shard: BTreeMap<ShardId, Vec<usize>> = BTreeMap::new();
        for (place, each) in asked.iter().enumerate() {
            by_shard.entry(shard_of_key(&each.key)).or_default().push(place);
        }
        let calls = by_shard.into_iter().map(|(shard, places)| async move {
            let of: Vec<_> = places.iter().map(|place| &asked[*place]).collect();
            let found = self.reserve_in(shard, &of).await?;
            Ok::<_, RedisFailure>(places.into_iter().zip(found).collect::<Vec<_>>())
        });
        let mut known = vec![None; asked.len()];
        for (place, found) in try_join_all(calls).await?.into_iter().flatten() {
            known[place] = found;
        }
        Ok(known)
    }

    fn known_periods(&self, shard: ShardId, more: &[i64]) -> BTreeSet<i64> {
        let mut known = self.key_periods.lock().unwrap_or_else(PoisonError::into_inner);
        let periods = known.entry(shard).or_default();
        periods.extend(more);
        periods.clone()
    }

    async fn reserve_in(
        &self,
        shard: ShardId,
        asked: &[&AskedKey],
    ) -> RedisResult<Vec<Option<StoredDedupKey>>> {
        let over_by = self.clock.bounds().earliest.0;
        let values = asked.iter().filter_map(|each| each.value.as_ref());
        let mut more: Vec<_> = values.map(StoredDedupKey::period).collect();
        loop {
            let periods: Vec<_> = self.known_periods(shard, &more).into_iter().collect();
            let mut keys = vec![self.names.of(shard, "kb")];
            keys.extend(periods.iter().map(|period| self.names.keys(shard, *period)));
            let mut packed = Packed::new();
            packed.list(3).list(periods.len());
            for period in periods.iter() {
                packed.bytes(period.to_string());
            }
            packed.int(over_by).list(asked.len());
            for each in asked {
                packed.list(3).bytes(each.key).maybe(each.value.map(|v| v.encode()).as_deref());
                let period = each.value.map(|value| value.period());
                let place = periods.iter().position(|known| Some(*known) == period);
                packed.int(place.map_or(0, |place| place as i64 + 1));
            }
            let is_write = asked.iter().any(|each| each.value.is_some());
            let packed = packed.into_bytes();
            let answer = match is_write {
                true => self.link.call_durably(&RESERVE, &keys, &[&packed]).await?,
                false => self.link.call(Patience::Short, &RESERVE, &keys, &[&packed]).await?,
            };
            let answers = list(answer)?;
            // Another node uses periods that are not known here: they are named, and asked for again.
            if answers.first().is_some_and(|first| !matches!(first, Value::Array(_))) {
                more = answers
                    .into_iter()
                    .filter_map(bytes)
                    .map(|b| text_int(&b))
                    .collect::<RedisResult<_>>()?;
                continue;
            }
            let read = |answer: Value| {
                let value = list(answer)?.into_iter().next().and_then(bytes);
                value
                    .filter(|value| !value.is_empty())
                    .map(|v| StoredDedupKey::decode(&v))
                    .transpose()
            };
            return answers.into_iter().map(read).collect();
        }
    }

    /// The messages of these keys are written.
    pub(super) async fn seal(&self, sealed: &[([u8; 16], StoredDedupKey)]) -> RedisResult<()> {
        let mark = |value: &StoredDedupKey| value.message.0.to_be_bytes().to_vec();
        self.change_keys(&SEAL, sealed, mark).await
    }

    /// Frees keys whose message was not written, unless they changed meanwhile.
    pub(super) async fn release_keys(
        &self,
        keys: &[([u8; 16], StoredDedupKey)],
    ) -> RedisResult<()> {
        self.change_keys(&RELEASE, keys, StoredDedupKey::encode).await
    }

    /// Calls a script for keys with their places and what they are known by.
    async fn change_keys(
        &self,
        script: &ServerScript,
        changed: &[([u8; 16], StoredDedupKey)],
        known_by: impl Fn(&StoredDedupKey) -> Vec<u8>,
    ) -> RedisResult<()> {
        let known_by = &known_by;
        let mut by_shard: BTreeMap<ShardId, Vec<&([u8; 16], StoredDedupKey)>> = BTreeMap::new();
        for each in changed {
            by_shard.entry(shard_of_key(&each.0)).or_default().push(each);
        }
        let calls = by_shard.into_iter().map(|(shard, of)| async move {
            let periods: BTreeSet<_> = of.iter().map(|(_, value)| value.period()).collect();
            let periods: Vec<_> = periods.into_iter().collect();
            let keys: Vec<_> =
                periods.iter().map(|period| self.names.keys(shard, *period)).collect();
            let mut packed = Packed::new();
            packed.list(of.len());
            for (key, value) in of {
                let place = periods.iter().position(|known| *known == value.period());
                packed.list(3).bytes(key).int(place.map_or(1, |place| place as i64 + 1));
                packed.bytes(known_by(value));
            }
            self.link.call(Patience::Long, script, &keys, &[&packed.into_bytes()]).await
        });
        try_join_all(calls).await.map(drop)
    }

    /// What a stored key means for a message with this key.
    pub(super) async fn repeated(
        &self,
        key: &DedupKey,
        stored: &StoredDedupKey,
    ) -> RedisResult<Admission> {
        let message = stored.message;
        if stored.fingerprint != key.fingerprint {
            return Ok(Admission::Conflict { message });
        }
        let deliveries: Vec<DeliveryId> = self.delivery_ids(message).await?;
        Ok(Admission::Duplicate { message, deliveries })
    }

    /// Drops the periods that are over.
    pub(super) async fn prune_keys(&self, over_by: Timestamp) -> RedisResult<()> {
        let last = (over_by.0.div_euclid(KEYS_MS) - 1).to_string();
        let answers =
            self.of_each_shard("ZRANGEBYSCORE", "kb", &[b"-inf", last.as_bytes()]).await?;
        for (shard, answer) in (0..).zip(answers) {
            for period in list(answer)?.into_iter().filter_map(bytes) {
                let period = text_int(&period)?;
                let names = [self.names.keys(shard, period), self.names.of(shard, "kb")];
                self.link.ask(&super::link::words(&[b"UNLINK", names[0].as_bytes()])).await?;
                let text = period.to_string();
                let remove = [b"ZREM", names[1].as_bytes(), text.as_bytes()];
                self.link.ask(&super::link::words(&remove)).await?;
                let mut known = self.key_periods.lock().unwrap_or_else(PoisonError::into_inner);
                known.entry(shard).or_default().remove(&period);
            }
        }
        Ok(())
    }
}
