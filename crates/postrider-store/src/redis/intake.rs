//! The way in. What several callers hand in at the same time goes to the servers together.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, LaneKey, MessageId, TenantId, Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::RedisStore;
use super::accept_plan::{PlannedAccept, PlannedDelivery, put_call};
use super::failure::{RedisFailure, RedisResult};
use super::keys::{AskedKey, StoredDedupKey};
use super::link::words;
use super::lists::{KeyHolder, contested};
use super::scripts::PUT;
use super::shared::RedisShared;
use crate::sharded::load::LoadChange;
use crate::sharded::{ShardId, in_shard, shard_of, shard_of_new};

/// Messages that go together, as far as whole requests allow.
const GROUP_MESSAGES: usize = 512;
/// Groups that are under way at once.
pub(super) const ACCEPT_LINES: usize = 4;
/// Deliveries of one call of a script.
const PUT_AT_ONCE: usize = 1_000;

/// Messages of one caller.
pub(super) struct RedisRequest {
    messages: Vec<NewMessage>,
    answer: oneshot::Sender<Vec<StoreResult<Admission>>>,
}

/// The numbers of lanes.
pub(super) type NumbersOfLanes = HashMap<Arc<LaneKey>, u32>;

pub(super) type RedisRequests = Arc<tokio::sync::Mutex<mpsc::Receiver<RedisRequest>>>;

#[async_trait]
impl Intake for RedisStore {
    async fn accept(&self, messages: Vec<NewMessage>) -> Vec<StoreResult<Admission>> {
        let count = messages.len();
        if count == 0 {
            return Vec::new();
        }
        let (answer, answered) = oneshot::channel();
        let request = RedisRequest { messages, answer };
        let closed = || vec![Err(StoreError::Closed); count];
        if self.shared.link.is_closed() || self.requests.send(request).await.is_err() {
            return closed();
        }
        answered.await.unwrap_or_else(|_| closed())
    }

    async fn repeats(&self, keys: Vec<DedupKey>) -> StoreResult<Vec<Option<Admission>>> {
        let asked: Vec<_> = keys.iter().map(|key| AskedKey { key: key.key, value: None }).collect();
        let known = self.shared.reserve(&asked).await?;
        let mut answers = Vec::with_capacity(keys.len());
        for (key, stored) in keys.iter().zip(known) {
            // A key that is reserved, but whose message is not written, is free to its owner.
            answers.push(
                match stored.filter(|stored| stored.sealed || stored.fingerprint != key.fingerprint)
                {
                    Some(stored) => Some(self.shared.repeated(key, &stored).await?),
                    None => self.shared.unsealed_repeat(key, stored).await?,
                },
            );
        }
        Ok(answers)
    }

    fn takes_work(&self) -> StoreResult<()> {
        self.shared.takes_work()
    }

    fn load(&self, tenant: Option<&TenantId>) -> Load {
        self.shared.load.load(tenant)
    }
}

/// Accepts for as long as the store lives.
pub(super) async fn keep_accepting(shared: Arc<RedisShared>, requests: RedisRequests) {
    loop {
        let mut group = Vec::new();
        {
            let mut requests = requests.lock().await;
            let Some(first) = requests.recv().await else { return };
            let mut count = first.messages.len();
            group.push(first);
            while count < GROUP_MESSAGES {
                let Ok(next) = requests.try_recv() else { break };
                count += next.messages.len();
                group.push(next);
            }
        }
        let mut messages = Vec::new();
        let mut callers = Vec::new();
        for request in group {
            callers.push((request.messages.len(), request.answer));
            messages.extend(request.messages);
        }
        let (answers, written) = shared.accept(messages).await;
        let mut answers = answers.into_iter();
        for (count, caller) in callers {
            // A caller that went away wants no answer.
            let _ = caller.send(answers.by_ref().take(count).collect());
        }
        if !written.is_empty() {
            // An unsealed key is checked by whoever repeats it.
            tokio::spawn(shared.clone().close_writes(written));
        }
    }
}

/// Messages that are written as a whole.
#[derive(Default)]
pub(super) struct WrittenMessages {
    pub(super) keys: Vec<([u8; 16], StoredDedupKey)>,
    pub(super) shared: Vec<u128>,
}

impl WrittenMessages {
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.shared.is_empty()
    }
}

impl RedisShared {
    async fn accept(
        &self,
        messages: Vec<NewMessage>,
    ) -> (Vec<StoreResult<Admission>>, WrittenMessages) {
        // Messages with keys of their deliveries go one by one, behind the others.
        let (lists, plain): (Vec<_>, Vec<_>) =
            messages.into_iter().enumerate().partition(|(_, new)| !new.member_keys.is_empty());
        if lists.is_empty() {
            return self.accept_plain(plain.into_iter().map(|(_, new)| new).collect()).await;
        }
        let mut answers = vec![Err(StoreError::Closed); lists.len() + plain.len()];
        let (places, plain): (Vec<_>, Vec<_>) = plain.into_iter().unzip();
        let (given, mut written) = self.accept_plain(plain).await;
        for (place, answer) in places.into_iter().zip(given) {
            answers[place] = answer;
        }
        for (place, list) in lists {
            match self.accept_list(&list).await {
                Ok((answer, more)) => {
                    answers[place] = answer;
                    written.keys.extend(more.keys);
                    written.shared.extend(more.shared);
                }
                Err(failure) => answers[place] = Err(failure.into()),
            }
        }
        (answers, written)
    }

    async fn accept_plain(
        &self,
        messages: Vec<NewMessage>,
    ) -> (Vec<StoreResult<Admission>>, WrittenMessages) {
        let count = messages.len();
        match self.try_to_accept(messages).await {
            Ok(answers) => answers,
            Err(failure) => {
                (vec![Err(StoreError::from(failure)); count], WrittenMessages::default())
            }
        }
    }

    async fn close_writes(self: Arc<Self>, written: WrittenMessages) {
        let sealed = self.seal(&written.keys).await;
        for message in written.shared {
            let key = self.names.of(shard_of(message), "mu");
            let done = words(&[b"ZREM", key.as_bytes(), &message.to_be_bytes()]);
            if self.link.ask(&done).await.is_err() {
                break;
            }
        }
        if let Err(failure) = sealed {
            tracing::debug!(?failure, "some idempotency keys are not sealed");
        }
    }

    /// Ids of a message and its deliveries, so that the message leads to them.
    pub(super) fn mint(&self, new: &NewMessage, now: Timestamp) -> MessageId {
        let mut ids = self.ids();
        let id = ids.next(now);
        // The deliveries have the numbers that follow.
        for _ in new.deliveries.iter() {
            ids.next(now);
        }
        match new.deliveries.as_slice() {
            [lone] => MessageId(in_shard(id, shard_of_new(lone))),
            _ => MessageId(id),
        }
    }

    async fn try_to_accept(
        &self,
        messages: Vec<NewMessage>,
    ) -> RedisResult<(Vec<StoreResult<Admission>>, WrittenMessages)> {
        let _write = self.load.begin_write();
        let lanes = self.lanes_of(&messages).await?;
        let now = self.clock.now();
        let mut answers: Vec<Option<StoreResult<Admission>>> = vec![None; messages.len()];
        let mut firsts: HashMap<[u8; 16], usize> = HashMap::new();
        let (mut asked, mut askers) = (Vec::new(), Vec::new());
        let mut ids: Vec<_> = messages.iter().map(|new| self.mint(new, now)).collect();
        let mut repeats = Vec::new();
        for (place, new) in messages.iter().enumerate() {
            let Some(dedup) = &new.dedup else { continue };
            if let Some(first) = firsts.get(&dedup.key) {
                repeats.push((place, *first));
                continue;
            }
            firsts.insert(dedup.key, place);
            let value = StoredDedupKey {
                fingerprint: dedup.fingerprint,
                message: ids[place],
                deliveries: new.deliveries.len() as u32,
                expires: (now + dedup.window).max(expires_at(new, now)).0,
                sealed: false,
            };
            asked.push(AskedKey { key: dedup.key, value: Some(value) });
            askers.push(place);
        }
        let known = self.reserve(&asked).await?;
        let mut written = WrittenMessages::default();
        let mut adopted = vec![false; messages.len()];
        let count = |place: usize| messages[place].deliveries.len() as u32;
        for ((place, each), stored) in askers.into_iter().zip(&asked).zip(known) {
            let Some(dedup) = &messages[place].dedup else { continue };
            match stored {
                None => written.keys.extend(each.value.map(|value| (each.key, value))),
                // The key of one delivery of a list, which is not written yet.
                Some(stored) if !stored.sealed && stored.deliveries != count(place) => {
                    answers[place] = Some(match self.holder_of(&stored).await? {
                        KeyHolder::Message => Ok(self.repeated(dedup, &stored).await?),
                        KeyHolder::Writer => Err(contested()),
                        KeyHolder::Nobody => {
                            self.release_keys(&[(each.key, stored)]).await?;
                            Err(contested())
                        }
                    });
                }
                Some(stored) if !stored.sealed && stored.fingerprint == dedup.fingerprint => {
                    ids[place] = stored.message;
                    adopted[place] = true;
                    written.keys.push((each.key, stored));
                }
                Some(stored) => {
                    answers[place] = Some(Ok(self.repeated(dedup, &stored).await?));
                }
            }
        }
        let is_new =
            |place: &usize| answers[*place].is_none() && !repeats.iter().any(|(r, _)| r == place);
        let new: Vec<_> = (0..messages.len()).filter(is_new).collect();
        let planned: Vec<_> = new
            .iter()
            .map(|place| PlannedAccept::new(&messages[*place], ids[*place], &lanes, now))
            .collect();
        self.write(&planned).await?;
        written.shared.extend(planned.iter().filter(|m| m.shared.is_some()).map(|m| m.id.0));
        for (place, planned) in new.into_iter().zip(planned) {
            let deliveries: Vec<_> = planned.deliveries.iter().map(|d| DeliveryId(d.id)).collect();
            let message = planned.id;
            answers[place] = Some(Ok(match adopted[place] {
                true => Admission::Duplicate { message, deliveries },
                false => Admission::Accepted { message, deliveries },
            }));
        }
        for (place, first) in repeats {
            answers[place] = answers[first]
                .clone()
                .map(|answer| repeat(answer, &messages[first], &messages[place]));
        }
        let unanswered = || Err(StoreError::from(RedisFailure::damaged("a message has no answer")));
        let answers = answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered));
        Ok((answers.collect(), written))
    }

    pub(super) async fn lanes_of(&self, messages: &[NewMessage]) -> RedisResult<NumbersOfLanes> {
        let mut keys: Vec<_> = messages
            .iter()
            .flat_map(|message| message.deliveries.iter().map(|delivery| delivery.lane.clone()))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let numbers = self.lane_numbers(&keys).await?;
        Ok(keys.into_iter().zip(numbers).collect())
    }

    /// Writes messages: those that several deliveries share first, then the deliveries, one call for each shard.
    pub(super) async fn write(&self, messages: &[PlannedAccept]) -> RedisResult<()> {
        let shared = messages.iter().filter_map(|message| {
            let shared = message.shared.as_ref()?;
            Some(self.put_message(shared, None, Some(message.repeated_until)))
        });
        try_join_all(shared).await?;
        let mut by_shard: BTreeMap<ShardId, Vec<(&PlannedAccept, &PlannedDelivery)>> =
            BTreeMap::new();
        for message in messages {
            for delivery in &message.deliveries {
                by_shard.entry(shard_of(delivery.id)).or_default().push((message, delivery));
            }
        }
        let parts = by_shard.iter().flat_map(|(shard, of)| {
            of.chunks(PUT_AT_ONCE).map(move |part| async move {
                let (keys, packed) = put_call(self, *shard, part);
                self.link.call_durably(&PUT, &keys, &[&packed]).await
            })
        });
        try_join_all(parts).await?;
        self.tell_of_notes(by_shard.into_keys());
        for message in messages {
            let deliveries = message.deliveries.len() as i64;
            self.load.change(&message.tenant, LoadChange { deliveries, bytes: message.bytes });
        }
        Ok(())
    }

    /// A key that is reserved: a repeat if its message is written.
    pub(super) async fn unsealed_repeat(
        &self,
        key: &DedupKey,
        stored: Option<StoredDedupKey>,
    ) -> RedisResult<Option<Admission>> {
        let Some(stored) = stored else { return Ok(None) };
        let deliveries = self.delivery_ids(stored.message).await?;
        match deliveries.len() == stored.deliveries as usize {
            true => self.repeated(key, &stored).await.map(Some),
            false => Ok(None),
        }
    }
}

pub(super) fn expires_at(new: &NewMessage, now: Timestamp) -> Timestamp {
    postrider_core::policy::ttl::expires_at(now, new.send_at, new.ttl_s, new.now_or_never)
}

/// The answer to a message whose key an earlier one of the batch has, too.
fn repeat(
    first: StoreResult<Admission>,
    before: &NewMessage,
    again: &NewMessage,
) -> StoreResult<Admission> {
    let fingerprint = |new: &NewMessage| new.dedup.as_ref().map(|dedup| dedup.fingerprint);
    let is_same = fingerprint(before) == fingerprint(again);
    Ok(match first? {
        Admission::Accepted { message, deliveries }
        | Admission::Duplicate { message, deliveries }
            if is_same =>
        {
            Admission::Duplicate { message, deliveries }
        }
        Admission::Accepted { message, .. }
        | Admission::Duplicate { message, .. }
        | Admission::Conflict { message }
        | Admission::RepeatedMembers { message, .. } => Admission::Conflict { message },
    })
}
