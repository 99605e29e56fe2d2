//! A store in PostgreSQL that several nodes share. The queue is split into shards, which workers hold
//! ([`crate::sharded`]); this folder has the statements.

mod accept_batch;
mod audit;
mod documents;
mod durability;
mod entries;
mod failure;
mod holders;
mod holdings;
mod intake;
mod keys;
mod lanes;
mod leasing;
mod ledger;
mod ledger_query;
mod notes;
mod operator;
mod options;
mod prune;
mod receipts;
mod registry;
mod rollups;
mod rows;
mod schema;
mod session;
mod settle;
mod settle_one;
mod settle_sent;
mod shared;
mod strikes;
mod tally;
mod tls;
mod transfer;
mod value;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use postrider_core::model::id::order_key;
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::rate_slice::{RateSlice, SharedRate};
use postrider_core::ports::store::{
    Consumer, DocumentVersion, Shares, Store, StoreError, StoreResult,
};
use postrider_core::{Clock, DeliveryId, RegionNumber};
use tokio::sync::{Notify, mpsc};

use crate::documents::DocumentSignal;
use crate::ids::IdGenerator;
use crate::sharded::ShardConsumer;
use crate::sharded::server_time::ServerTime;
use crate::sharded::worker_name::regions_of;
use failure::PgResult;
use intake::{ACCEPT_LINES, AcceptRequest};
use session::{PgSession, SessionPool};
use shared::PgShared;
use value::{PgId, get};

pub use durability::{DurabilityGap, PostgresReport, PostgresSettings, examine};
pub use options::PostgresOptions;

/// Requests to accept that wait for their turn.
const REQUESTS_MAX: usize = 1_024;

pub struct PostgresStore {
    shared: Arc<PgShared>,
    requests: mpsc::Sender<AcceptRequest>,
    tasks: Vec<tokio::task::AbortHandle>,
    slow_lanes: ledger::SlowLanes,
}

impl PostgresStore {
    /// Opens the store on the server's clock, and makes its tables if they are not there.
    pub async fn open(options: PostgresOptions) -> StoreResult<Self> {
        Self::open_with(options, None).await
    }

    /// The same on another clock, for tests.
    pub async fn open_on(options: PostgresOptions, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        Self::open_with(options, Some(clock)).await
    }

    async fn open_with(
        options: PostgresOptions,
        clock: Option<Arc<dyn Clock>>,
    ) -> StoreResult<Self> {
        let tls = tls::TlsChoice::new(&options)?;
        let pool = Arc::new(SessionPool::new(options, tls));
        let mut session = pool.durable().await?;
        refuse_unusable(&mut session).await?;
        schema::set_up(&mut session, pool.schema()).await?;
        let time = server_time(&mut session).await?;
        let is_given = clock.is_some();
        let clock = clock.unwrap_or_else(|| Arc::new(time.clock()));
        let last = last_id(&mut session).await?;
        clock.start_after(DeliveryId(last).created_at());
        let newest = session.first("SELECT newest FROM document_state", &[]).await?;
        let newest = newest.map(|row| get::<i64>(&row, "newest")).transpose();
        let newest = newest.map_err(failure::PgFailure::from)?.unwrap_or(0);
        drop(session);
        let shared = Arc::new(PgShared {
            pool,
            clock,
            time: (!is_given).then_some(time),
            lanes: lanes::KnownLaneTable::default(),
            ids: Mutex::new(IdGenerator::above(order_key(last))),
            news: Default::default(),
            load: Default::default(),
            documents: DocumentSignal::new(DocumentVersion(newest as u64)),
            notes_to_tell: Notify::new(),
            load_due: Mutex::default(),
            is_reached: AtomicBool::new(true),
            settings: Mutex::default(),
        });
        shared.refresh().await?;
        prune::make_partitions(&shared).await?;
        Ok(Self::start(shared))
    }

    fn start(shared: Arc<PgShared>) -> Self {
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
        Self { shared, requests, tasks, slow_lanes: Default::default() }
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// The oldest version of the server that is supported.
const VERSION_MIN: i32 = 150_000;

async fn refuse_unusable(session: &mut PgSession) -> StoreResult<()> {
    let select = "SELECT current_setting('server_version_num')::integer AS version, \
                  current_setting('server_version') AS name, pg_is_in_recovery() AS replica, \
                  current_setting('transaction_read_only')::boolean AS read_only";
    let row = session.first(select, &[]).await?;
    let Some(row) = row else { return Ok(()) };
    let read = || -> PgResult<(i32, String, bool, bool)> {
        let read_only = (get(&row, "replica")?, get(&row, "read_only")?);
        Ok((get(&row, "version")?, get(&row, "name")?, read_only.0, read_only.1))
    };
    let (version, name, replica, read_only) = read()?;
    let refused = |what: String| Err(StoreError::Unusable { what });
    if version < VERSION_MIN {
        return refused(format!("PostgreSQL {name} is too old: version 15 or newer is needed"));
    }
    if replica || read_only {
        let what = if replica { "a replica" } else { "read-only" };
        return refused(format!("the PostgreSQL server is {what}: the store needs the primary"));
    }
    Ok(())
}

async fn server_time(session: &mut PgSession) -> PgResult<ServerTime> {
    let select = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";
    // The first answer includes the preparation of the statement.
    session.first(select, &[]).await?;
    let before = ServerTime::monotonic();
    let row = session.first(select, &[]).await?;
    let now = row.map(|row| get::<i64>(&row, "now")).transpose()?.unwrap_or(0);
    Ok(ServerTime::new(now, before, ServerTime::monotonic()))
}

/// The highest id that was ever given out and is known.
async fn last_id(session: &mut PgSession) -> PgResult<u128> {
    let select = "SELECT (SELECT id FROM queue ORDER BY id DESC LIMIT 1) AS queue, \
                  (SELECT id FROM ledger ORDER BY id DESC LIMIT 1) AS ledger, \
                  (SELECT id FROM dead ORDER BY id DESC LIMIT 1) AS dead, \
                  (SELECT id FROM address ORDER BY id DESC LIMIT 1) AS address, \
                  (SELECT value FROM meta WHERE key = 'last_id') AS forgotten";
    let Some(row) = session.first(select, &[]).await? else { return Ok(0) };
    let mut last = 0;
    for column in ["queue", "ledger", "dead", "address"] {
        last = last.max(get::<Option<PgId>>(&row, column)?.map_or(0, |id| id.0));
    }
    let forgotten = get::<Option<i64>>(&row, "forgotten")?.unwrap_or(0) as u64;
    Ok(last.max(postrider_core::model::id::from_order_key(forgotten, 0)))
}

#[async_trait]
impl Shares for PostgresStore {
    async fn grant(&self, limit: &str, rate: Rate, want: u32) -> StoreResult<RateSlice> {
        let now = self.shared.clock.now();
        let mut session = self.shared.pool.relaxed().await?;
        session.begin().await?;
        let insert = "INSERT INTO share (name, next_us, idle_at) VALUES ($1, 0, 0) \
                      ON CONFLICT (name) DO UPDATE SET name = share.name RETURNING next_us";
        let row = session.first(insert, &[&limit]).await?;
        let next = row.map(|row| get::<f64>(&row, "next_us")).transpose();
        let next = next.map_err(failure::PgFailure::from)?.unwrap_or(0.0);
        let mut shared = SharedRate::at(next);
        let slice = shared.grant(rate, want, now);
        let update = "UPDATE share SET next_us = $2, idle_at = $3 WHERE name = $1";
        let idle_at = shared.idle_at(rate).0;
        session.run(update, &[&limit, &shared.next_us(), &idle_at]).await?;
        session.commit().await?;
        Ok(slice)
    }
}

#[async_trait]
impl Store for PostgresStore {
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
        self.shared.pool.close();
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}
