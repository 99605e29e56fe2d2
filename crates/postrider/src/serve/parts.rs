//! The parts of a server, each made from its section of the configuration.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use postrider_channels::pool::{EgressRules, OwnListeners, ProxyAccess, raise_descriptor_limit};
use postrider_channels::settings::{ChannelLimits, rate};
use postrider_channels::{CurrentAnswerTable, Pool, PoolConfig, Wiring};
use postrider_core::policy::classify::AnswerTable;
use postrider_core::policy::decide::AttemptTimes;
use postrider_core::policy::limiter::Rate;
use postrider_core::policy::work_share::WorkShare;
use postrider_core::ports::store::{Ledger as _, Store};
use postrider_core::{ChannelKind, Clock, RegionNumber, TenantId};
use postrider_dispatch::{DispatchLimits, Policy};
use postrider_store::sealed::{self, DataKeys};
use postrider_store::{
    EmbeddedStore, MemoryStore, SealedStore, StoreFailure, StoreOptions, migrate,
};

use tokio::task::JoinHandle;

use crate::config::Config;
use crate::config::sections::TenantSection;
use crate::telemetry::Metrics;
use crate::traces::{SpanReceiver, Tracer};

/// The name of a worker that has its store alone: it takes its own work back after a restart.
const ALONE: &str = "alone";

/// The store, and what says that it cannot go on.
pub(super) async fn open_store(
    config: &Config,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<(Arc<dyn Store>, Option<StoreFailure>)> {
    if config.store.url == "memory:" {
        tracing::warn!("the store is in memory: nothing survives the end of this process");
        return Ok((Arc::new(MemoryStore::new(clock)), None));
    }
    if config.store.is_shared() {
        return Ok((open_shared(config).await?, None));
    }
    let data = config.store.data.clone();
    let options = StoreOptions {
        journal_bytes_max: config.store.journal_bytes_max,
        ..StoreOptions::default()
    };
    let open = move || EmbeddedStore::open(&data, clock, options);
    let opened = tokio::task::spawn_blocking(open).await?;
    let name = config.store.data.display();
    let store = opened.with_context(|| format!("cannot open the store in {name}"))?;
    migrate::check_usable(&store)
        .await
        .with_context(|| format!("cannot use the store in {name}"))?;
    let failure = store.failure();
    Ok((Arc::new(store), Some(failure)))
}

/// The store with encryption around it, if a master key is configured.
pub(super) async fn sealed(
    config: &Config,
    store: Arc<dyn Store>,
) -> anyhow::Result<(Arc<dyn Store>, Option<Arc<DataKeys>>)> {
    let section = config.encryption.clone();
    let masters = tokio::task::spawn_blocking(move || section.masters()).await??;
    if masters.is_empty() {
        sealed::check_unsealed(&*store).await.context("cannot use the store")?;
        return Ok((store, None));
    }
    let store =
        SealedStore::open(store, masters).await.context("cannot use the encrypted store")?;
    let keys = store.keys();
    // A rotation that was interrupted goes on.
    let rewrapped = keys.rewrap().await.context("cannot wrap the data keys anew")?;
    tracing::info!(rewrapped, "the store is encrypted");
    Ok((Arc::new(store), Some(keys)))
}

/// A store that several servers share.
async fn open_shared(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    match config.store.is_redis() {
        true => open_redis(config).await,
        false => open_postgres(config).await,
    }
}

#[cfg(feature = "redis")]
async fn open_redis(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    let options = redis_options(&config.store).await?;
    let name = options.shown();
    let store = postrider_store::RedisStore::open(options).await;
    let store = store.with_context(|| format!("cannot open the store in Redis ({name})"))?;
    migrate::check_usable(&store)
        .await
        .with_context(|| format!("cannot use the store in Redis ({name})"))?;
    if let Some(engine) = store.check_health().engine {
        tracing::info!(engine = engine.name, at = name, "{}", engine.promise);
    }
    Ok(Arc::new(store))
}

#[cfg(not(feature = "redis"))]
async fn open_redis(_: &Config) -> anyhow::Result<Arc<dyn Store>> {
    anyhow::bail!("this program was built without Redis (the cargo feature redis)")
}

/// Where the store is, with the password that the configuration refers to.
#[cfg(feature = "redis")]
pub(crate) async fn redis_options(
    section: &crate::config::sections::StoreSection,
) -> anyhow::Result<postrider_store::RedisOptions> {
    let options = postrider_store::RedisOptions::parse(&section.url)?;
    let Some(password) = section.password.clone() else { return Ok(options) };
    let password = tokio::task::spawn_blocking(move || password.read()).await?;
    let password = password.map_err(|why| anyhow::anyhow!("store.password: {why}"))?;
    Ok(options.with_password(&password))
}

#[cfg(feature = "postgres")]
async fn open_postgres(config: &Config) -> anyhow::Result<Arc<dyn Store>> {
    let options = postgres_options(&config.store).await?;
    let name = options.shown();
    let store = postrider_store::PostgresStore::open(options).await;
    let store = store.with_context(|| format!("cannot open the store in PostgreSQL ({name})"))?;
    migrate::check_usable(&store)
        .await
        .with_context(|| format!("cannot use the store in PostgreSQL ({name})"))?;
    if let Some(engine) = store.check_health().engine {
        tracing::info!(engine = engine.name, at = name, "{}", engine.promise);
    }
    Ok(Arc::new(store))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(_: &Config) -> anyhow::Result<Arc<dyn Store>> {
    anyhow::bail!("this program was built without PostgreSQL (the cargo feature postgres)")
}

/// Where the store is, with the password that the configuration refers to.
#[cfg(feature = "postgres")]
pub(crate) async fn postgres_options(
    section: &crate::config::sections::StoreSection,
) -> anyhow::Result<postrider_store::PostgresOptions> {
    let options = postrider_store::PostgresOptions::parse(&section.url)?;
    let Some(password) = section.password.clone() else { return Ok(options) };
    let password = tokio::task::spawn_blocking(move || password.read()).await?;
    let password = password.map_err(|why| anyhow::anyhow!("store.password: {why}"))?;
    Ok(options.with_password(&password))
}

/// What makes spans, and the task that sends them; none if that is off.
pub(super) async fn tracer(
    config: &Config,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Option<(Arc<Tracer>, JoinHandle<()>)>> {
    let section = config.traces.clone();
    let Some(endpoint) = section.endpoint.clone() else { return Ok(None) };
    let (protocol, headers) = (section.protocol, section.headers.clone());
    let open = move || SpanReceiver::open(&endpoint, protocol, &headers);
    let receiver = tokio::task::spawn_blocking(open).await??;
    let (tracer, exporter) = Tracer::new(&section, receiver, clock.clone(), metrics.clone());
    Ok(Some((Arc::new(tracer), tokio::spawn(exporter.run()))))
}

/// The name of this server among those that share a store.
pub(super) fn node_name(config: &Config, port: u16) -> String {
    if !config.store.is_shared() {
        return ALONE.to_owned();
    }
    config.server.node.clone().unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let host = host.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
        format!("{}:{port}", host.trim())
    })
}

pub(super) fn pool(config: &Config) -> anyhow::Result<Pool> {
    raise_descriptor_limit();
    Ok(Pool::new(network_with_proxy(config)?)?)
}

/// The same with the proxy, whose credential is read. Blocks.
pub(crate) fn network_with_proxy(config: &Config) -> anyhow::Result<PoolConfig> {
    let section = &config.network;
    let credential = section.proxy_credential.as_ref().map(|secret| secret.read()).transpose();
    let credential =
        credential.map_err(|why| anyhow::anyhow!("network.proxy_credential: {why}"))?;
    let proxy = section.proxy.clone().map(|url| ProxyAccess { url, credential });
    Ok(PoolConfig { proxy, ..network(config) })
}

pub(crate) fn network(config: &Config) -> PoolConfig {
    let network = &config.network;
    PoolConfig {
        egress: EgressRules {
            private: network.allow_private_targets.clone(),
            plain_http: network.allow_plain_http.clone(),
            allow: network.allow.clone(),
            deny: network.deny.clone(),
            nat64: network.nat64_prefixes.clone(),
            own: OwnListeners::default(),
        },
        source_addresses: network.source_addresses.clone(),
        extra_ca_hosts: network.extra_ca_hosts.clone(),
        allow_plain_http: network.allow_plain_http.is_any(),
        extra_ca_file: network.extra_ca_file.clone(),
        hosts: network.hosts.clone(),
        connections_max: network.connections_max,
        http1_connections_max: network.http1_connections_max,
        connections_total_max: network.connections_total_max,
        streams_max: network.streams_max,
        ..PoolConfig::default()
    }
}

/// What every channel needs from the outside.
pub(super) fn wiring(
    pool: &Pool,
    clock: &Arc<dyn Clock>,
    answers: &Arc<CurrentAnswerTable>,
    share: &Arc<WorkShare>,
) -> Wiring {
    let (answers, share) = (answers.clone(), share.clone());
    Wiring { answers, share, ..Wiring::new(pool.clone(), clock.clone()) }
}

/// A random seed for jitter.
pub(super) fn seed() -> anyhow::Result<u64> {
    let mut seed = [0; 8];
    aws_lc_rs::rand::fill(&mut seed).ok().context("the system gives no random numbers")?;
    Ok(u64::from_le_bytes(seed))
}

/// The built-in table of answers with the operator's rows on top.
pub(crate) fn answers(config: &Config) -> AnswerTable {
    postrider_channels::answers::with_user_rows(config.classify.clone())
        .waiting_at_most(config.dispatch.retry_after_max())
}

/// The part of the configuration that can change while the server runs.
pub(crate) fn policy(config: &Config) -> Policy {
    Policy::new(config.class_list(), limits(config))
        .bounded(config.capacity.bounds(&config.tenants))
}

fn tenant_regions(config: &Config) -> HashMap<TenantId, RegionNumber> {
    let pinned = config.tenants.iter().filter_map(|(name, tenant)| {
        let region = config.region_number(tenant.region.as_deref()?)?;
        Some((TenantId::new(name), region))
    });
    pinned.collect()
}

fn limits(config: &Config) -> DispatchLimits {
    let channels = || config.channels.iter().map(|channel| (channel.kind(), channel.limits()));
    let rates = |rate: fn(&ChannelLimits) -> Option<Rate>| -> HashMap<ChannelKind, Rate> {
        channels().filter_map(|(kind, limits)| Some((kind, rate(&limits)?))).collect()
    };
    let connections = network(config).connections_that_fit();
    DispatchLimits {
        per_origin: channels().map(|(kind, limits)| (kind, limits.concurrency)).collect(),
        concurrency: config.dispatch.concurrency.min(connections),
        connections,
        lease: Duration::from_secs(config.dispatch.lease_s),
        settle_batch: config.dispatch.settle_batch,
        settle_linger: Duration::from_millis(config.dispatch.settle_linger_ms),
        breaker: config.breaker.policy(),
        rates: rates(ChannelLimits::rate),
        credential_rates: rates(ChannelLimits::credential_rate),
        address_rates: rates(ChannelLimits::address_rate),
        tenant_rates: tenant_rates(config),
        tenant_regions: tenant_regions(config),
        weights: config.tenants.iter().map(|(n, t)| (TenantId::new(n), t.weight)).collect(),
        retry_budget: config.retry_budget.policy(),
        strikes: config.strikes.rules(),
        times: AttemptTimes {
            park: Duration::from_secs(config.dispatch.park_s),
            crashes_max: config.dispatch.crashes_max,
        },
        dedup_window: Duration::from_secs(config.dispatch.dedup_window_s),
        now_or_never: Duration::from_secs(config.dispatch.now_or_never_s),
        retry_after_max: config.dispatch.retry_after_max(),
    }
}

fn tenant_rates(config: &Config) -> HashMap<TenantId, Rate> {
    let limit = |(name, tenant): (&String, &TenantSection)| {
        Some((TenantId::new(name), rate(tenant.rate_per_s, tenant.rate_burst, 0)?))
    };
    config.tenants.iter().filter_map(limit).collect()
}
