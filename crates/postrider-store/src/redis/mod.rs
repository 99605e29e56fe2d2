//! A store in Redis that several nodes share: one server, Sentinel or a cluster. The queue is split into shards, which
//! workers hold ([`crate::sharded`]). All keys of a shard are in one slot, and scripts on the server make each change
//! of a shard whole. This folder has the scripts and what is between shards.

mod accept_plan;
mod audit;
mod changes;
mod cluster_way;
mod documents;
mod durability;
mod entries;
mod failure;
mod heard;
mod holders;
mod holdings;
mod import;
mod intake;
mod keys;
mod lanes;
mod layout;
mod leasing;
mod ledger;
mod link;
mod lists;
mod marks;
mod messages;
mod names;
mod operator;
mod options;
mod pack;
mod pages;
mod prune;
mod receipts;
mod registry;
mod rollups;
mod row;
mod scripts;
mod settle;
mod settle_one;
mod shard_reads;
mod shared;
mod tally;
mod transfer;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use postrider_core::model::id::{from_order_key, order_key};
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::rate_slice::{RateSlice, SharedRate};
use postrider_core::ports::store::{Consumer, DocumentVersion, Shares, Store, StoreResult};
use postrider_core::{Clock, DeliveryId, RegionNumber};
use tokio::sync::{Notify, mpsc};

use crate::documents::DocumentSignal;
use crate::ids::IdGenerator;
use crate::sharded::ShardConsumer;
use crate::sharded::server_time::ServerTime;
use crate::sharded::worker_name::regions_of;
use changes::{ChangeResult, ShardChange, ShardChanges};
use failure::{RedisFailure, RedisResult};
use intake::{ACCEPT_LINES, RedisRequest};
use link::{RedisLink, words};
use names::{KeyNames, RowPlace};
use shared::RedisShared;

pub use durability::{RedisGap, RedisReport, RedisSettings, examine};
pub use options::RedisOptions;

/// Requests to accept that wait for their turn.
const REQUESTS_MAX: usize = 1_024;

pub struct RedisStore {
    shared: Arc<RedisShared>,
    requests: mpsc::Sender<RedisRequest>,
    tasks: Vec<tokio::task::AbortHandle>,
}

impl RedisStore {
    /// Opens the store on the server's clock.
    pub async fn open(options: RedisOptions) -> StoreResult<Self> {
        Self::open_with(options, None).await
    }

    /// The same on another clock, for tests.
    pub async fn open_on(options: RedisOptions, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        Self::open_with(options, Some(clock)).await
    }

    async fn open_with(options: RedisOptions, clock: Option<Arc<dyn Clock>>) -> StoreResult<Self> {
        let names = KeyNames::new(&options.prefix);
        let link = RedisLink::new(options)?;
        durability::settings(&link).await?.refuse_unusable(link.options())?;
        layout::set_up(&link).await?;
        let is_given = clock.is_some();
        let time = ServerTime::new(0, 0, 0);
        let clock = clock.unwrap_or_else(|| Arc::new(time.clock()));
        let mut shared = RedisShared {
            link,
            names,
            clock,
            time: None,
            lanes: Default::default(),
            ids: Mutex::new(IdGenerator::above(0)),
            news: Default::default(),
            load: Default::default(),
            documents: DocumentSignal::new(DocumentVersion::NONE),
            news_to_tell: Notify::new(),
            is_reached: AtomicBool::new(true),
            fullness: Mutex::default(),
            settings: Mutex::default(),
            key_periods: Mutex::default(),
            lease_counts: Mutex::default(),
            left_minutes: Mutex::default(),
            heard: Default::default(),
            own_name: names::random_name(),
            told: Mutex::default(),
            marked: Mutex::default(),
        };
        if !is_given {
            // The first answer includes the way there.
            shared.server_time().await?;
            let before = ServerTime::monotonic();
            let now = shared.server_time().await?;
            let time = ServerTime::new(now, before, ServerTime::monotonic());
            shared.clock = Arc::new(time.clock());
            shared.time = Some(time);
        }
        let last = shared.last_id().await?;
        shared.clock.start_after(DeliveryId(last).created_at());
        shared.ids().raise(order_key(last));
        shared.refresh().await?;
        Ok(Self::start(Arc::new(shared)))
    }

    fn start(shared: Arc<RedisShared>) -> Self {
        let (requests, waiting) = mpsc::channel(REQUESTS_MAX);
        let waiting = Arc::new(tokio::sync::Mutex::new(waiting));
        let mut tasks = vec![
            tokio::spawn(shared.clone().keep_refreshing()).abort_handle(),
            tokio::spawn(shared.clone().keep_telling()).abort_handle(),
            tokio::spawn(shared.clone().keep_listening()).abort_handle(),
        ];
        for _ in 0..ACCEPT_LINES {
            let accepting = intake::keep_accepting(shared.clone(), waiting.clone());
            tasks.push(tokio::spawn(accepting).abort_handle());
        }
        Self { shared, requests, tasks }
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl RedisShared {
    /// The highest id that was ever given out and is known.
    async fn last_id(&self) -> RedisResult<u128> {
        let mut last = 0;
        for place in RowPlace::ALL {
            for (shard, minute) in self.newest_minutes(place).await? {
                let ids = self.ids_of_minute(shard, place, minute).await?;
                last = ids.into_iter().max().unwrap_or(0).max(last);
            }
        }
        let key = self.names.common("counters");
        let asked = words(&[b"HGET", key.as_bytes(), b"last_id"]);
        let forgotten = durability::count(pack::bytes(self.link.ask(&asked).await?))?;
        Ok(last.max(from_order_key(forgotten as u64, 0)))
    }

    async fn grant(&self, limit: &str, rate: Rate, want: u32) -> RedisResult<RateSlice> {
        let now = self.clock.now();
        for _ in 0..100 {
            let mut all = ShardChanges::common(self);
            let name = self.names.common("shares");
            let asked = words(&[b"HGET", name.as_bytes(), limit.as_bytes()]);
            let known = pack::bytes(self.link.ask(&asked).await?);
            let next = known
                .as_deref()
                .and_then(|value| std::str::from_utf8(value).ok()?.split(' ').next()?.parse().ok());
            let mut shared = SharedRate::at(next.unwrap_or(0.0));
            let slice = shared.grant(rate, want, now);
            let value = format!("{} {}", shared.next_us(), shared.idle_at(rate).0);
            let key = all.key(name);
            let mut change = ShardChange::default();
            change.if_field(key, limit.as_bytes(), known.as_deref());
            change.run("HSET", key, &[limit.as_bytes(), value.as_bytes()]);
            all.push(change);
            if self.apply(all).await?.first() == Some(&ChangeResult::Written) {
                return Ok(slice);
            }
        }
        Err(RedisFailure::Busy)
    }
}

#[async_trait]
impl Shares for RedisStore {
    async fn grant(&self, limit: &str, rate: Rate, want: u32) -> StoreResult<RateSlice> {
        Ok(self.shared.grant(limit, rate, want).await?)
    }
}

#[async_trait]
impl Store for RedisStore {
    fn clock(&self) -> Arc<dyn Clock> {
        self.shared.clock.clone()
    }

    async fn consumer(&self, node: &str) -> StoreResult<Arc<dyn Consumer>> {
        self.consumer_in(node, None, 0).await
    }

    async fn consumer_in(
        &self,
        node: &str,
        region: Option<RegionNumber>,
        regions: usize,
    ) -> StoreResult<Arc<dyn Consumer>> {
        Ok(Arc::new(ShardConsumer::join(self.shared.clone(), node, region, regions).await?))
    }

    async fn worker_regions(&self) -> StoreResult<Vec<RegionNumber>> {
        Ok(regions_of(&self.shared.workers().await?))
    }

    async fn close(&self) {
        self.shared.link.close();
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}
