//! Who holds which shard.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use postrider_core::ports::store::StoreResult;
use postrider_core::{Clock, LaneKey};
use redis::Value;

use super::failure::{RedisFailure, RedisResult};
use super::link::{Patience, words};
use super::names::{RowPlace, minute, receipt_period};
use super::pack::{Packed, bytes, id, int, list, pairs, text, text_int};
use super::row::ByteReader;
use super::scripts::{BEAT, HAND_OVER, LEAVE, TAKE, TURN};
use super::shared::RedisShared;
use crate::sharded::{
    HeartbeatReport, HeldShard, LanePlace, LeaseOrder, LeaseRecord, LeasedRow, QueueEntry,
    QueueNote, SHARDS, SettleOrder, SettledPlace, ShardContent, ShardEngine, ShardId, ShardNews,
    TERM, shard_of,
};

/// Tokens that a worker gets at once.
const TOKENS: i64 = 1 << 20;
/// So often a shard is tried whose holder writes at the same moment.
const TAKE_TRIES: usize = 5;

/// The holder of a shard as it is stored.
#[derive(Debug, Clone, Default)]
struct StoredHolder {
    node: Option<String>,
    number: i64,
    /// As text, because it is only compared. Empty if nobody holds it.
    nonce: String,
    acts: i64,
    leases: i64,
}

/// Workers that were heard of, each with its number and its last heartbeat.
struct KnownWorkers(HashMap<String, (i64, i64)>);

/// A lease as it is stored.
#[derive(Debug, Clone)]
pub(super) struct StoredLease {
    pub(super) batch: i64,
    pub(super) until: i64,
    pub(super) ids: Vec<u128>,
}

impl StoredLease {
    pub(super) fn read(batch: &[u8], value: &[u8]) -> RedisResult<Self> {
        let mut from = ByteReader(value);
        let until = from.number()?;
        let mut ids = Vec::with_capacity(from.0.len() / 16);
        while !from.0.is_empty() {
            ids.push(from.id()?);
        }
        Ok(Self { batch: text_int(batch)?, until, ids })
    }

    fn value(until: i64, ids: &[u128]) -> Vec<u8> {
        let mut value = until.to_be_bytes().to_vec();
        ids.iter().for_each(|id| value.extend_from_slice(&id.to_be_bytes()));
        value
    }
}

impl RedisShared {
    fn random_number(&self) -> i64 {
        let mut bytes = [0; 8];
        if aws_lc_rs::rand::fill(&mut bytes).is_err() {
            tracing::error!("the system gives no random numbers");
        }
        // Never 0, which stands for nobody.
        i64::from_le_bytes(bytes) | 1
    }

    async fn holders(
        &self,
        shards: impl IntoIterator<Item = ShardId>,
    ) -> RedisResult<Vec<(ShardId, StoredHolder)>> {
        let ask = |shard: ShardId| async move {
            let key = self.names.of(shard, "h");
            let fields: [&[u8]; 7] =
                [b"HMGET", key.as_bytes(), b"node", b"number", b"nonce", b"acts", b"leases"];
            let answer = self.link.ask_for(Patience::None, &words(&fields)).await?;
            let mut fields = list(answer)?.into_iter().map(text);
            let mut field = || fields.next().flatten();
            let (node, number, nonce) = (field(), field(), field());
            let number_of =
                |text: Option<String>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
            let holder = StoredHolder {
                node,
                number: number_of(number),
                nonce: nonce.unwrap_or_default(),
                acts: number_of(field()),
                leases: number_of(field()),
            };
            Ok::<_, RedisFailure>((shard, holder))
        };
        try_join_all(shards.into_iter().map(ask)).await
    }

    /// Says that a worker lives. `None` if it was replaced.
    async fn say(
        &self,
        node: &str,
        number: &str,
    ) -> RedisResult<Option<(i64, KnownWorkers, Option<(u128, i64)>)>> {
        let keys = ["workers", "turn", "counters"].map(|name| self.names.common(name));
        let now = self.clock.now().0.to_string();
        let arguments = [node.as_bytes(), number.as_bytes(), now.as_bytes()];
        let mut answer =
            list(self.link.call(Patience::None, &BEAT, &keys, &arguments).await?)?.into_iter();
        let Some(number) = answer.next() else { return Ok(None) };
        let workers = KnownWorkers::read(answer.next().unwrap_or(Value::Nil))?;
        let mut turn = list(answer.next().unwrap_or(Value::Nil))?.into_iter();
        let turn = match (turn.next().and_then(bytes), turn.next()) {
            (Some(of), Some(until)) => Some((id(&of)?, int(&until)?)),
            _ => None,
        };
        Ok(Some((int(&number)?, workers, turn)))
    }

    /// The names of the workers that live.
    pub(super) async fn workers(&self) -> RedisResult<Vec<String>> {
        let key = self.names.common("workers");
        let found = self.link.ask(&words(&[b"HGETALL", key.as_bytes()])).await?;
        let began = self.term_began();
        let alive = KnownWorkers::read(found)?.0.into_iter();
        Ok(alive.filter(|(_, (_, beat))| *beat > began).map(|(name, _)| name).collect())
    }

    fn term_began(&self) -> i64 {
        (self.clock.now() - TERM).0
    }

    async fn beat(&self, node: &str, number: i64) -> RedisResult<HeartbeatReport> {
        let Some((_, workers, turn)) = self.say(node, &number.to_string()).await? else {
            return Ok(HeartbeatReport::default());
        };
        let began = self.term_began();
        let mut report = HeartbeatReport::default();
        let mut held = Vec::new();
        for (shard, holder) in self.holders(0..SHARDS).await? {
            if holder.is_of(node, number) {
                report.lost_leases |= self.has_lost_leases(shard, holder.leases);
                held.push(holder.held(shard));
            } else if holder.is_free(node, &workers, began) {
                report.free.push(shard);
            }
        }
        report.held = Some(held);
        let alive = workers.0.into_iter().filter(|(_, (_, beat))| *beat > began);
        report.workers = alive.map(|(name, _)| name).collect();
        report.suspect_until = turn.map(|(_, until)| until);
        Ok(report)
    }

    /// The server went back to a state before the last lease that it acknowledged.
    fn has_lost_leases(&self, shard: ShardId, found: i64) -> bool {
        let counts = self.lease_counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(&shard).is_some_and(|known| found < *known)
    }

    pub(super) fn note_leases(&self, shard: ShardId, count: i64) {
        let mut counts = self.lease_counts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = counts.entry(shard).or_default();
        *known = (*known).max(count);
    }

    async fn take_shards(
        &self,
        node: &str,
        number: i64,
        shards: &[ShardId],
    ) -> RedisResult<Vec<HeldShard>> {
        let Some((_, workers, turn)) = self.say(node, &number.to_string()).await? else {
            return Ok(Vec::new());
        };
        let take = |shard: ShardId| self.take_shard(node, number, shard, &workers);
        let taken = try_join_all(shards.iter().map(|shard| take(*shard))).await?;
        let taken: Vec<_> = taken.into_iter().flatten().collect();
        self.end_turn_of(&taken, turn).await?;
        Ok(taken)
    }

    async fn take_shard(
        &self,
        node: &str,
        number: i64,
        shard: ShardId,
        workers: &KnownWorkers,
    ) -> RedisResult<Option<HeldShard>> {
        for _ in 0..TAKE_TRIES {
            let Some((_, holder)) = self.holders([shard]).await?.pop() else { return Ok(None) };
            if holder.is_of(node, number) || !holder.is_free(node, workers, self.term_began()) {
                return Ok(None);
            }
            let leases = match holder.node {
                Some(_) => self.leases(shard).await?,
                None => Vec::new(),
            };
            let nonce = self.random_number();
            let mut keys: Vec<_> = ["h", "le", "cr"].map(|name| self.names.of(shard, name)).into();
            let mut minutes = BTreeMap::new();
            let mut leased = Packed::new();
            let count = leases.iter().map(|lease| lease.ids.len()).sum();
            leased.list(count);
            for lease in &leases {
                for id in &lease.ids {
                    let at = *minutes.entry(minute(*id)).or_insert_with_key(|minute| {
                        keys.push(self.names.rows(shard, RowPlace::Queue, *minute));
                        keys.len() as i64
                    });
                    leased.list(3).bytes(id.to_be_bytes()).int(at).int(lease.batch);
                }
            }
            let mut packed = Packed::new();
            packed.list(6).bytes(&holder.nonce).bytes(holder.leases.to_string()).bytes(node);
            packed.bytes(number.to_string()).bytes(nonce.to_string()).append(&leased);
            let answer = self.link.call_durably(&TAKE, &keys, &[&packed.into_bytes()]).await?;
            if let Some(acts) = text(answer) {
                self.lease_counts
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(shard, holder.leases);
                let acts = acts.parse().unwrap_or(0);
                return Ok(Some(HeldShard { shard, nonce, acts }));
            }
        }
        Ok(None)
    }

    /// A suspect of these shards that had the turn is not leased any more.
    async fn end_turn_of(
        &self,
        shards: &[HeldShard],
        turn: Option<(u128, i64)>,
    ) -> RedisResult<()> {
        let of_ours = |(id, _): &(u128, i64)| shards.iter().any(|held| held.shard == shard_of(*id));
        match turn.filter(of_ours) {
            Some((id, _)) => self.turn(id, None).await.map(drop),
            None => Ok(()),
        }
    }

    async fn end_holding(&self, shards: &[HeldShard]) -> RedisResult<()> {
        let end = |held: HeldShard| async move {
            let keys = ["h", "le"].map(|name| self.names.of(held.shard, name));
            let nonce = held.nonce.to_string();
            self.link.call_durably(&HAND_OVER, &keys, &[nonce.as_bytes()]).await
        };
        try_join_all(shards.iter().map(|held| end(*held))).await?;
        let turn = self.names.common("turn");
        let asked = words(&[b"HMGET", turn.as_bytes(), b"id", b"until"]);
        let mut turn = list(self.link.ask(&asked).await?)?.into_iter();
        let turn = turn.next().and_then(bytes).map(|of| id(&of)).transpose()?;
        self.end_turn_of(shards, turn.map(|id| (id, 0))).await
    }

    async fn write_leases(&self, shards: &[HeldShard], leases: &[LeaseRecord]) -> RedisResult<()> {
        for held in shards {
            let mut changes =
                super::changes::ShardChanges::new(self, held.shard).by_holder(held.nonce);
            let ours = leases.iter().filter(|lease| lease.shard == held.shard);
            let count = {
                let counts = self.lease_counts.lock().unwrap_or_else(PoisonError::into_inner);
                counts.get(&held.shard).copied().unwrap_or(0)
            };
            let mut change = super::changes::ShardChange::default();
            for lease in ours {
                let value = StoredLease::value(lease.until, &lease.ids);
                change.run("HSETNX", 2, &[lease.batch.to_string().as_bytes(), &value]);
            }
            change.run("HSET", 1, &[b"leases", count.to_string().as_bytes()]);
            changes.push(change);
            self.apply(changes).await?;
        }
        Ok(())
    }

    async fn held_now(&self, shards: &[HeldShard]) -> RedisResult<Vec<HeldShard>> {
        let present = self.holders(shards.iter().map(|held| held.shard)).await?;
        let same = shards.iter().zip(present);
        let same = same.filter(|(asked, (_, holder))| holder.nonce == asked.nonce.to_string());
        Ok(same.map(|(asked, (_, holder))| HeldShard { acts: holder.acts, ..*asked }).collect())
    }

    /// The leases of a shard.
    pub(super) async fn leases(&self, shard: ShardId) -> RedisResult<Vec<StoredLease>> {
        let key = self.names.of(shard, "le");
        let found = pairs(self.link.ask(&words(&[b"HGETALL", key.as_bytes()])).await?)?;
        found.iter().map(|(batch, value)| StoredLease::read(batch, value)).collect()
    }

    /// Asks for the turn of a suspect, or ends it. Answers when the turn of another one ends.
    async fn turn(&self, id: u128, until: Option<i64>) -> RedisResult<i64> {
        let keys = [self.names.common("turn")];
        let until = until.map(|until| until.to_string()).unwrap_or_default();
        let now = self.clock.now().0.to_string();
        let arguments = [&id.to_be_bytes()[..], until.as_bytes(), now.as_bytes()];
        int(&self.link.call(Patience::Short, &TURN, &keys, &arguments).await?)
    }

    async fn new_tokens(&self) -> RedisResult<Range<u64>> {
        let (key, by) = (self.names.common("counters"), TOKENS.to_string());
        let asked = words(&[b"HINCRBY", key.as_bytes(), b"token", by.as_bytes()]);
        let first = int(&self.link.ask(&asked).await?)? as u64;
        Ok(first..first + TOKENS as u64)
    }

    async fn known_receipts(&self, receipts: &[u128]) -> RedisResult<Vec<u128>> {
        let mut known = Vec::new();
        for receipt in receipts {
            let period = receipt_period(*receipt);
            for shard in 0..SHARDS {
                let key = self.names.receipts(shard, period);
                let asked = words(&[b"HEXISTS", key.as_bytes(), &receipt.to_be_bytes()]);
                if int(&self.link.ask(&asked).await?)? == 1 {
                    known.push(*receipt);
                    break;
                }
            }
        }
        Ok(known)
    }
}

impl KnownWorkers {
    fn read(found: Value) -> RedisResult<Self> {
        let mut workers = HashMap::new();
        for (name, said) in pairs(found)? {
            let said = String::from_utf8_lossy(&said).into_owned();
            let (number, beat) = said.split_once(' ').unwrap_or(("0", "0"));
            let known = (number.parse().unwrap_or(0), beat.parse().unwrap_or(0));
            workers.insert(String::from_utf8_lossy(&name).into_owned(), known);
        }
        Ok(Self(workers))
    }
}

impl StoredHolder {
    fn is_of(&self, node: &str, number: i64) -> bool {
        self.node.as_deref() == Some(node) && self.number == number
    }

    fn is_free(&self, node: &str, workers: &KnownWorkers, began: i64) -> bool {
        let Some(holder) = &self.node else { return true };
        let known = workers.0.get(holder).filter(|(number, _)| *number == self.number);
        holder == node || known.is_none_or(|(_, beat)| *beat <= began)
    }

    fn held(&self, shard: ShardId) -> HeldShard {
        HeldShard { shard, nonce: self.nonce.parse().unwrap_or(0), acts: self.acts }
    }
}

#[async_trait]
impl ShardEngine for RedisShared {
    fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn news(&self) -> &ShardNews {
        &self.news
    }

    async fn join(&self, node: &str) -> StoreResult<i64> {
        let joined = self.say(node, "").await?;
        let unknown = || RedisFailure::damaged("a worker has no number");
        Ok(joined.map(|(number, ..)| number).ok_or_else(unknown)?)
    }

    async fn heartbeat(&self, node: &str, number: i64) -> StoreResult<HeartbeatReport> {
        Ok(self.beat(node, number).await?)
    }

    async fn take(
        &self,
        node: &str,
        number: i64,
        shards: &[ShardId],
    ) -> StoreResult<Vec<HeldShard>> {
        Ok(self.take_shards(node, number, shards).await?)
    }

    async fn hand_over(&self, shards: &[HeldShard]) -> StoreResult<()> {
        self.end_holding(shards).await?;
        self.tell_of_notes(shards.iter().map(|held| held.shard));
        Ok(())
    }

    async fn leave(&self, node: &str, number: i64) -> StoreResult<()> {
        let (keys, number) = ([self.names.common("workers")], number.to_string());
        let arguments = [node.as_bytes(), number.as_bytes()];
        self.link.call(Patience::Short, &LEAVE, &keys, &arguments).await?;
        Ok(())
    }

    async fn write_again(&self, shards: &[HeldShard], leases: &[LeaseRecord]) -> StoreResult<()> {
        Ok(self.write_leases(shards, leases).await?)
    }

    async fn still_held(&self, shards: &[HeldShard]) -> StoreResult<Vec<HeldShard>> {
        Ok(self.held_now(shards).await?)
    }

    async fn content(&self, shards: &[ShardId]) -> StoreResult<ShardContent> {
        Ok(self.shard_content(shards).await?)
    }

    async fn notes(&self, shards: &[HeldShard]) -> StoreResult<Vec<QueueNote>> {
        Ok(self.read_notes(shards).await?)
    }

    async fn confirm(&self, shards: &[HeldShard], notes: &[QueueNote]) -> StoreResult<()> {
        Ok(self.confirm_notes(shards, notes).await?)
    }

    async fn due(
        &self,
        shards: &[ShardId],
        lane: u32,
        after: LanePlace,
        limit: usize,
    ) -> StoreResult<Vec<QueueEntry>> {
        Ok(self.due_entries(shards, lane, after, limit).await?)
    }

    async fn expiring(&self, shards: &[ShardId], limit: usize) -> StoreResult<Vec<QueueEntry>> {
        Ok(self.expiring_entries(shards, limit).await?)
    }

    async fn lease(&self, order: &LeaseOrder) -> StoreResult<Option<Vec<LeasedRow>>> {
        Ok(self.write_lease(order).await?)
    }

    async fn start(&self, shards: &[HeldShard], started: &[u128]) -> StoreResult<Vec<u128>> {
        Ok(self.start_attempts(shards, started).await?)
    }

    fn writes_across_shards(&self) -> bool {
        false
    }

    async fn settle(&self, order: &SettleOrder) -> StoreResult<bool> {
        Ok(self.settle_many(order).await?)
    }

    async fn settle_one(&self, order: &SettleOrder) -> StoreResult<SettledPlace> {
        Ok(self.settle_single(order).await?)
    }

    async fn receipts(&self, receipts: &[u128]) -> StoreResult<Vec<u128>> {
        Ok(self.known_receipts(receipts).await?)
    }

    async fn take_turn(&self, id: u128, until: i64) -> StoreResult<Result<(), i64>> {
        let busy = self.turn(id, Some(until)).await?;
        Ok(if busy == 0 { Ok(()) } else { Err(busy) })
    }

    async fn end_turn(&self, id: u128) -> StoreResult<()> {
        self.turn(id, None).await?;
        Ok(())
    }

    async fn tokens(&self) -> StoreResult<Range<u64>> {
        Ok(self.new_tokens().await?)
    }

    fn new_receipt(&self) -> u128 {
        self.new_id()
    }

    fn lane_key(&self, lane: u32) -> Option<Arc<LaneKey>> {
        self.lanes.key(lane)
    }

    async fn learn_lanes(&self, lanes: &[u32]) -> StoreResult<()> {
        Ok(self.learn(lanes).await?)
    }
}
