//! What all parts of the store share, and what it does by itself.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use postrider_core::ports::store::{
    DocumentVersion, EngineStatus, StoreError, StoreHealth, StoreProblem, StoreResult,
};
use postrider_core::{Clock, TenantId};
use redis::Value;
use tokio::sync::Notify;

use super::changes::OutboxEntry;
use super::durability::{RedisSettings, settings};
use super::failure::RedisResult;
use super::heard::HeardShards;
use super::lanes::RedisLanes;
use super::link::{Patience, RedisLink, words};
use super::names::KeyNames;
use super::pack::{int, list, pairs, text_int};
use crate::documents::DocumentSignal;
use crate::ids::IdGenerator;
use crate::sharded::load::{LoadChange, PendingLoad};
use crate::sharded::server_time::ServerTime;
use crate::sharded::{SHARDS, ShardId, ShardNews};

/// The server's time, the load and the newest document are asked for so often.
const REFRESH: Duration = Duration::from_millis(500);
/// Others are told at most so often.
const TELL_EVERY: Duration = Duration::from_millis(5);
const RECONNECT: Duration = Duration::from_millis(500);
/// So often the load is asked for again, if something was written meanwhile.
const QUIET_TRIES: usize = 5;
/// No new work from here on, in percent of `maxmemory`.
const FULL_PERCENT: u64 = 85;

pub(super) struct RedisShared {
    pub(super) link: RedisLink,
    pub(super) names: KeyNames,
    pub(super) clock: Arc<dyn Clock>,
    /// Absent if a clock was given.
    pub(super) time: Option<ServerTime>,
    pub(super) lanes: RedisLanes,
    pub(super) ids: Mutex<IdGenerator>,
    pub(super) news: ShardNews,
    pub(super) load: PendingLoad,
    pub(super) documents: DocumentSignal,
    pub(super) news_to_tell: Notify,
    /// Whether the servers answered last.
    pub(super) is_reached: AtomicBool,
    /// Used and allowed bytes, while too little is left.
    pub(super) fullness: Mutex<Option<(u64, u64)>>,
    pub(super) settings: Mutex<KnownRedisSettings>,
    /// The periods of idempotency keys by shard, as far as this node knows.
    pub(super) key_periods: Mutex<HashMap<ShardId, BTreeSet<i64>>>,
    /// How many leases each shard had, as this node knows. Fewer mean that the server lost some.
    pub(super) lease_counts: Mutex<HashMap<ShardId, i64>>,
    /// Minutes of the ledger that were pruned in part, and when something of them is over next.
    pub(super) left_minutes: Mutex<HashMap<(ShardId, i64), i64>>,
    /// Which shards may have notes.
    pub(super) heard: HeardShards,
    /// By which this process knows what it said itself.
    pub(super) own_name: String,
    /// What messages were told, and is still in the outbox of a shard.
    pub(super) told: Mutex<HashMap<ShardId, Vec<OutboxEntry>>>,
    /// Shards of addresses that have gone marks or strikes.
    pub(super) marked: Mutex<BTreeSet<ShardId>>,
}

/// What is known of the servers' settings.
#[derive(Default)]
pub(super) struct KnownRedisSettings {
    engine: Option<EngineStatus>,
    problems: Vec<StoreProblem>,
}

impl RedisShared {
    pub(super) fn ids(&self) -> MutexGuard<'_, IdGenerator> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn new_id(&self) -> u128 {
        let now = self.clock.now();
        self.ids().next(now)
    }

    /// An error while the servers cannot be reached, or have too little memory left.
    pub(super) fn takes_work(&self) -> StoreResult<()> {
        if self.link.is_closed() {
            return Err(StoreError::Closed);
        }
        if !self.is_reached.load(Ordering::Relaxed) {
            let what = "Redis does not answer".to_owned();
            return Err(StoreError::Io { what, cause: None });
        }
        let fullness = self.fullness.lock().unwrap_or_else(PoisonError::into_inner);
        match *fullness {
            None => Ok(()),
            Some((used, allowed)) => Err(StoreError::Full {
                what: format!(
                    "Redis uses {} of {} MiB; no new work above {FULL_PERCENT} % of maxmemory",
                    used >> 20,
                    allowed >> 20
                ),
                cause: None,
            }),
        }
    }

    /// There are new notes in the queues of these shards.
    pub(super) fn tell_of_notes(&self, shards: impl IntoIterator<Item = ShardId>) {
        self.heard.note(shards);
        self.news.tell();
        self.news_to_tell.notify_one();
    }

    /// Asks all shards the same.
    pub(super) async fn of_each_shard(
        &self,
        command: &str,
        key: &str,
        rest: &[&[u8]],
    ) -> RedisResult<Vec<Value>> {
        let ask = |shard: ShardId| async move {
            let key = self.names.of(shard, key);
            let mut parts: Vec<&[u8]> = vec![command.as_bytes(), key.as_bytes()];
            parts.extend(rest);
            self.link.ask(&words(&parts)).await
        };
        try_join_all((0..SHARDS).map(ask)).await
    }

    pub(super) async fn keep_refreshing(self: Arc<Self>) {
        let mut round = 0_u32;
        loop {
            tokio::time::sleep(REFRESH).await;
            round = round.wrapping_add(1);
            let refreshed = match round % 2 {
                0 => self.refresh().await,
                _ => self.read_newest().await,
            };
            if let Err(error) = &refreshed {
                let error = format!("{error:?}");
                tracing::debug!(error, "Redis was not asked");
            }
            let reached = refreshed.is_ok();
            if self.is_reached.swap(reached, Ordering::Relaxed) != reached {
                match reached {
                    true => tracing::info!("Redis answers again"),
                    false => tracing::error!("Redis does not answer; new work is refused"),
                }
            }
        }
    }

    /// The server's time and the newest document.
    async fn read_newest(&self) -> RedisResult<()> {
        if let Some(time) = &self.time {
            let before = ServerTime::monotonic();
            let now = self.server_time().await?;
            time.observe(now, before, ServerTime::monotonic());
        }
        let state = self.names.common("doc_state");
        let asked = words(&[b"HGET", state.as_bytes(), b"newest"]);
        let newest = int(&self.link.ask_for(Patience::None, &asked).await?)?;
        self.documents.changed(DocumentVersion(newest as u64));
        Ok(())
    }

    pub(super) async fn server_time(&self) -> RedisResult<i64> {
        // In a cluster, the one of the server that has the common keys: all nodes ask the same one.
        let script = "return redis.call('TIME')";
        let key = self.names.common("time");
        let parts: [&[u8]; 4] = [b"EVAL", script.as_bytes(), b"1", key.as_bytes()];
        let answer = list(self.link.ask_for(Patience::None, &words(&parts)).await?)?;
        let part = |n: usize| answer.get(n).map_or(Ok(0), int);
        Ok(part(0)? * 1_000 + part(1)? / 1_000)
    }

    pub(super) async fn refresh(&self) -> RedisResult<()> {
        self.read_newest().await?;
        self.read_marks().await?;
        self.clear_told().await?;
        self.note_settings(settings(&self.link).await?);
        for attempt in 1..=QUIET_TRIES {
            let question = self.load.begin_question();
            if !question.is_quiet() && attempt < QUIET_TRIES {
                tokio::time::sleep(Duration::from_millis(3)).await;
                continue;
            }
            let mut loads: HashMap<TenantId, LoadChange> = HashMap::new();
            for (name, is_count) in [("tp", true), ("tb", false)] {
                for answer in self.of_each_shard("HGETALL", name, &[]).await? {
                    for (tenant, number) in pairs(answer)? {
                        let tenant = TenantId(String::from_utf8_lossy(&tenant).into_owned().into());
                        let load = loads.entry(tenant).or_default();
                        let number = text_int(&number)?;
                        if is_count {
                            load.deliveries += number;
                        } else {
                            load.bytes += number;
                        }
                    }
                }
            }
            if self.load.was_quiet(&question) || attempt == QUIET_TRIES {
                self.load.answer(loads);
                break;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        Ok(())
    }

    fn note_settings(&self, settings: RedisSettings) {
        let now = self.clock.now();
        let (used, allowed) = settings.memory;
        let is_full =
            allowed > 0 && used.saturating_mul(100) >= allowed.saturating_mul(FULL_PERCENT);
        *self.fullness.lock().unwrap_or_else(PoisonError::into_inner) =
            is_full.then_some((used, allowed));
        let mut known = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let gaps = settings.gaps();
        known.problems.retain(|problem| gaps.iter().any(|gap| gap.code == problem.code));
        for gap in gaps {
            if !known.problems.iter().any(|problem| problem.code == gap.code) {
                tracing::warn!(code = gap.code, "{}", gap.what);
                let what = format!("{}; {}", gap.what, gap.remedy);
                known.problems.push(StoreProblem { code: gap.code, since: now, what });
            }
        }
        known.engine = Some(settings.status(self.link.options()));
    }

    /// What is wrong while the store goes on.
    pub(super) fn health(&self) -> StoreHealth {
        let known = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        StoreHealth {
            engine: known.engine.clone(),
            problems: known.problems.clone(),
            ..StoreHealth::default()
        }
    }

    /// Tells other nodes of new notes.
    pub(super) async fn keep_telling(self: Arc<Self>) {
        loop {
            self.news_to_tell.notified().await;
            let shards = self.heard.take_to_tell().into_iter();
            let shards: Vec<_> = shards.map(|shard| shard.to_string()).collect();
            // Whoever is not told looks by itself a moment later.
            if self.tell(&format!("queue {}", shards.join(" "))).await.is_err() {
                tokio::time::sleep(RECONNECT).await;
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }

    pub(super) async fn tell(&self, what: &str) -> RedisResult<()> {
        let channel = self.names.channel();
        let what = format!("{} {what}", self.own_name);
        let publish = words(&[b"PUBLISH", channel.as_bytes(), what.as_bytes()]);
        self.link.ask_for(Patience::None, &publish).await.map(drop)
    }

    /// Hears what other nodes tell.
    pub(super) async fn keep_listening(self: Arc<Self>) {
        while !self.link.is_closed() {
            if let Err(error) = self.listen().await {
                let error = format!("{error:?}");
                tracing::debug!(error, "nobody hears what other nodes tell");
            }
            tokio::time::sleep(RECONNECT).await;
        }
    }

    async fn listen(&self) -> RedisResult<()> {
        let mut listening = self.link.client().await?.get_async_pubsub().await?;
        listening.subscribe(self.names.channel()).await?;
        let mut messages = listening.on_message();
        while let Some(message) = messages.next().await {
            let said = String::from_utf8_lossy(message.get_payload_bytes());
            let mut parts = said.split(' ');
            let is_ours = parts.next() == Some(self.own_name.as_str());
            match parts.next() {
                _ if is_ours => {}
                Some("document") => self.read_newest().await?,
                _ => {
                    self.heard.hear(parts.filter_map(|shard| shard.parse().ok()));
                    self.news.tell();
                }
            }
        }
        Ok(())
    }
}
