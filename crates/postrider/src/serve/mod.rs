//! A whole server: starts store, keys, intake, dispatcher and API, and shuts them down in order.

mod caller_stream;
pub(crate) mod channels;
mod connection;
mod counted_body;
mod follow;
pub(crate) mod handover;
mod listen;
pub(crate) mod parts;
pub(crate) mod regions;
pub(crate) mod service_manager;
mod teamwork;
mod timed_stream;
mod tls;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use postrider_channels::CurrentAnswerTable;
use postrider_channels::accounts::AccountListing;
use postrider_core::ports::store::{Consumer, DocumentVersion, Store};
use postrider_dispatch::{Dispatcher, DispatcherConfig, Lanes, MessageIntake, Policies};
use postrider_store::{SteadyClock, StoreFailure};
use tokio::task::JoinHandle;

use crate::api::{self, ApiState, SharedState};
use crate::audit::AuditTrail;
use crate::config::Config;
use crate::dashboard;
use crate::events::{self, EventLog, EventRecorder, EventSubscriptions, RelayState};
use crate::jobs;
use crate::keys::session::SignIn;
use crate::keys::{ApiKeys, SigningKeys};
use crate::live::{
    self, AudienceSettings, ConfigReader, ConfigSources, LiveConfig, NoteBoard, OperatorActions,
    TemplateStore,
};
use crate::problems;
use crate::quotas;
use crate::receipts::{ReceiptRecorder, ReceiptTokens};
use crate::rehash;
use crate::rollups::{self, CountingObserver, RollupCounter};
use crate::telemetry::Metrics;
use follow::DocumentFollower;
use listen::Listening;
use regions::RegionWatch;
use tls::ServerTls;
pub use watch::CredentialMonitor;

const PRUNE_EVERY: Duration = Duration::from_secs(3600);
/// Last uses of keys are looked at this often, and written if they are so much newer than the written ones.
const KEY_USES_EVERY: Duration = Duration::from_secs(60);
const KEY_USES_OLDER_BY: Duration = Duration::from_secs(600);
/// How long a shutdown waits for the last uses to be written. They are only shown.
const KEY_USES_AT_END: Duration = Duration::from_secs(1);
/// How long a shutdown waits for the last entries of the audit log.
const AUDIT_AT_END: Duration = Duration::from_secs(1);
/// How long a shutdown waits for the last spans.
const SPANS_AT_END: Duration = Duration::from_secs(2);
/// How long a shutdown waits for open requests.
const REQUESTS_AT_END: Duration = Duration::from_secs(5);

/// A running server. [`Running::shutdown`] stops it in order; dropping it does not.
pub struct Running {
    pub addr: SocketAddr,
    /// The admin key, if this start had to make one. It is shown nowhere else.
    pub new_admin_key: Option<String>,
    pub app: SharedState,
    listening: Listening,
    /// The address of the metrics, if they have their own.
    metrics: Option<Listening>,
    has_tls: bool,
    /// Absent if the server sends nothing.
    dispatcher: Option<Dispatcher>,
    /// Absent if the store cannot fail.
    failure: Option<StoreFailure>,
    chores: Vec<JoinHandle<()>>,
    /// Sends spans, if they are made.
    exporter: Option<JoinHandle<()>>,
}

/// Starts everything. On return the API answers.
pub async fn start(config: Config) -> anyhow::Result<Running> {
    start_from(live::fixed(config)).await
}

/// The same with a configuration that can be reloaded while the server runs.
pub async fn start_from(read: ConfigReader) -> anyhow::Result<Running> {
    start_on(read, None).await
}

/// The same on a socket that listens already.
pub async fn start_on(
    read: ConfigReader,
    given: Option<std::net::TcpListener>,
) -> anyhow::Result<Running> {
    let config = read()?;
    let clock = Arc::new(SteadyClock::of_system());
    let (store, failure) = parts::open_store(&config, clock).await?;
    start_all(config, read, store, failure, given).await
}

/// The same over a store of the caller's choice.
pub async fn start_with(config: Config, store: Arc<dyn Store>) -> anyhow::Result<Running> {
    start_all(config.clone(), live::fixed(config), store, None, None).await
}

async fn start_all(
    base: Config,
    read: ConfigReader,
    store: Arc<dyn Store>,
    failure: Option<StoreFailure>,
    given: Option<std::net::TcpListener>,
) -> anyhow::Result<Running> {
    let clock = store.clock();
    let (store, data_keys) = parts::sealed(&base, store).await?;
    // Before anything is read, so that no change in between is missed.
    let followed = store.changes(DocumentVersion::NONE, Duration::ZERO).await?.upto;
    let (config, sources) = ConfigSources::open(base, read, &*store).await?;
    let keys = ApiKeys::load(
        store.clone(),
        clock.clone(),
        config.admin.key.as_ref().map(|key| key.reveal()),
    )
    .await?;
    let new_admin_key = keys.ensure_admin().await?;
    let signing = SigningKeys::load(
        store.clone(),
        clock.clone(),
        Duration::from_secs(config.channels.webhook.secret_overlap_s),
        config.channels.webpush.vapid_private_key.as_ref().map(|key| key.reveal()),
    )
    .await?;
    let signing = Arc::new(signing);
    keys.sign_sessions_with(&signing.hash_key());
    if !config.names("webpush.subject") {
        let subject = &config.channels.webpush.subject;
        tracing::info!(
            subject,
            "webpush.subject is a placeholder; before using Web Push, set an address of yours"
        );
    }
    let metrics = Metrics::new();
    let pool = parts::pool(&config)?;
    let answers = CurrentAnswerTable::new(parts::answers(&config));
    let policies = Policies::new(parts::policy(&config));
    let lanes = Lanes::new(policies.clone(), clock.clone(), parts::seed()?);
    let wiring = parts::wiring(&pool, &clock, &answers, lanes.work_share());
    let receipt_tokens = Arc::new(ReceiptTokens::new(&signing.hash_keys()));
    let built = channels::build(&config, &wiring, &signing, &receipt_tokens).await?;
    let callbacks = built
        .iter()
        .filter_map(|built| Some((built.channel.kind(), built.callbacks.clone()?)))
        .collect();
    let accounts: Vec<_> = built.iter().filter_map(|built| built.accounts.clone()).collect();
    let watch = Arc::new(CredentialMonitor::new(accounts.clone(), wiring));
    let books: Vec<_> =
        accounts.iter().map(|book| book.clone() as Arc<dyn AccountListing>).collect();
    let templates = Arc::new(TemplateStore::load(store.clone(), &config).await?);
    let intake = MessageIntake::new(
        store.clone(),
        built.iter().map(|built| built.intake.clone()).collect(),
        policies,
        &signing.hash_keys(),
    )
    .with_templates(templates.templates());
    lanes.use_channels(built.iter().map(|built| built.channel.clone()));
    let is_shared = config.store.is_shared();
    let mut region_count = 0;
    if is_shared {
        teamwork::restore(&*store, &lanes).await?;
        region_count = regions::agree(&*store, &config.store.regions).await?;
    }
    let regions = Arc::new(RegionWatch::new(&config.store.regions));
    let (audit, audit_writer) = AuditTrail::start(store.clone(), clock.clone(), metrics.clone());
    let mut chores = vec![audit_writer, tokio::spawn(audit.clone().keep_counting())];
    let (writer, lanes_max) = (parts::seed()?, config.rollups.lanes_max);
    let counter = Arc::new(RollupCounter::new(clock.clone(), writer, lanes_max));
    let log = EventLog::new(store.clone(), writer, is_shared, RelayState::latest(&*store).await?);
    let subscriptions = EventSubscriptions::load(store.clone()).await?;
    let events = Arc::new(EventRecorder::new(log, subscriptions, metrics.clone()));
    let (receipts, receipt_writer) =
        ReceiptRecorder::start(store.clone(), metrics.clone(), events.clone());
    chores.push(receipt_writer);
    let (tracer, exporter) = parts::tracer(&config, &clock, &metrics).await?.unzip();
    let app = Arc::new(ApiState::new(api::ApiParts {
        tracer: tracer.clone(),
        events: events.clone(),
        receipts,
        receipt_tokens,
        callbacks,
        audit,
        data_keys,
        live: LiveConfig::new(
            sources,
            config.clone(),
            store.clone(),
            lanes.clone(),
            answers,
            templates.clone(),
        )
        .with_accounts(books.clone()),
        notes: NoteBoard::open(store.clone()).await?,
        audience: AudienceSettings::open(store.clone(), lanes.clone()).await?,
        operator: OperatorActions::restore(store.clone(), lanes.clone(), books.clone()).await?,
        templates,
        store: store.clone(),
        intake: Arc::new(intake),
        lanes: lanes.clone(),
        channels: built.iter().map(|built| built.channel.clone()).collect(),
        clock: clock.clone(),
        keys,
        signing,
        metrics: metrics.clone(),
        rollups: counter.clone(),
        pool: pool.clone(),
        books,
        watch: watch.clone(),
        regions: regions.clone(),
    }));
    let tls = ServerTls::open(&config.server)?;
    let has_tls = tls.is_some();
    let router = dashboard::router(app.clone(), api::router(app.clone()));
    let listening = listen(&config, router, &metrics, tls.clone(), given).await?;
    app.listens_on(listening.addr);
    let metrics_listening = listen_for_metrics(&config, &app, &metrics).await?;
    // Before anything is sent.
    let own = [Some(&listening), metrics_listening.as_ref()];
    own.into_iter().flatten().for_each(|own| pool.refuse_own(own.addr));
    let mut dispatcher = None;
    let mut consumer = None;
    chores.extend(tls.map(|tls| tokio::spawn(tls.follow())));
    if config.server.role.sends() {
        let region = config.server.region.as_deref().and_then(|name| config.region_number(name));
        let own = parts::node_name(&config, listening.addr.port());
        let own = store.consumer_in(&own, region, region_count).await?;
        if is_shared {
            chores.extend(teamwork::start(&store, &lanes));
        }
        let started = Dispatcher::start(DispatcherConfig {
            consumer: own.clone(),
            channels: built.into_iter().map(|built| built.channel).collect(),
            lanes,
            clock,
            observer: Arc::new(CountingObserver {
                metrics,
                counter,
                events: events.clone(),
                tracer,
            }),
            log: Some(events),
            seed: parts::seed()?,
        });
        app.watch_dispatcher(started.status());
        (dispatcher, consumer) = (Some(started), Some(own));
    }
    if is_shared {
        chores.push(tokio::spawn(regions.run(store, consumer.clone())));
    }
    chores.extend([
        tokio::spawn(sample_rates(app.clone())),
        tokio::spawn(write_key_uses(app.clone())),
        tokio::spawn(quotas::watch(app.clone())),
        tokio::spawn(rollups::write_every_second(app.clone())),
        tokio::spawn(rollups::keep_hours(app.clone(), consumer.clone(), is_shared)),
        tokio::spawn(jobs::run_jobs(app.clone(), consumer.clone(), is_shared)),
        tokio::spawn(problems::watch(app.clone(), consumer.clone(), is_shared)),
        tokio::spawn(events::relay(app.clone(), consumer.clone(), is_shared)),
        tokio::spawn(rehash::rehash_if_needed(app.clone())),
        tokio::spawn(prune(app.clone(), consumer, is_shared)),
        tokio::spawn(watch.run()),
        tokio::spawn(DocumentFollower::new(app.clone(), followed).run()),
    ]);
    Ok(Running {
        addr: listening.addr,
        new_admin_key,
        chores,
        exporter,
        app,
        listening,
        metrics: metrics_listening,
        has_tls,
        dispatcher,
        failure,
    })
}

async fn listen(
    config: &Config,
    router: axum::Router,
    metrics: &Arc<Metrics>,
    tls: Option<Arc<ServerTls>>,
    given: Option<std::net::TcpListener>,
) -> anyhow::Result<Listening> {
    let given_at = given.as_ref().and_then(|given| given.local_addr().ok());
    let at = given_at.unwrap_or(config.server.listen);
    if tls.is_none() && !at.ip().is_loopback() {
        tracing::warn!(
            listen = %at,
            "the API speaks HTTP without TLS on an address that other machines reach (server.allow_plain_http): keys \
             and messages can be read on the way"
        );
    }
    let listening = Listening::start(router, at, &config.server, metrics.clone(), tls, given).await;
    listening.with_context(|| format!("cannot listen on {at} (server.listen)"))
}

async fn listen_for_metrics(
    config: &Config,
    app: &SharedState,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Option<Listening>> {
    let Some(at) = config.server.metrics_listen else { return Ok(None) };
    let router = api::metrics_router(app.clone());
    let listening = Listening::start(router, at, &config.server, metrics.clone(), None, None).await;
    let context = || format!("cannot listen on {at} (server.metrics_listen)");
    listening.with_context(context).map(Some)
}

impl Running {
    pub fn url(&self) -> String {
        format!("{}://{}", if self.has_tls { "https" } else { "http" }, self.addr)
    }

    /// The socket of the API, for a process that takes this one's place. None if what is stored would be lost.
    pub fn socket(&self) -> std::io::Result<Option<std::net::TcpListener>> {
        match self.app.config().store.url.as_str() {
            "memory:" => Ok(None),
            _ => self.listening.socket.try_clone().map(Some),
        }
    }

    /// A link that opens the status page once, for an admin.
    pub async fn sign_in_link(&self) -> anyhow::Result<String> {
        let valid = Duration::from_secs(self.app.config().server.sign_in_code_s);
        let admin = self.app.keys.first_admin();
        let sign_in = SignIn { key: admin.map(|key| key.0), tenant: None };
        let code = self.app.sign_in_codes.make(&*self.app.store, &sign_in, valid).await?;
        Ok(format!("{}/#code={code}", self.url()))
    }

    /// Returns the cause when the server cannot go on: its store failed, or its dispatcher ended. The process
    /// must then end at once, without a shutdown: the next start reads what is on disk.
    pub async fn failed(&mut self) -> String {
        let (store, dispatcher) = (self.failure.clone(), &mut self.dispatcher);
        let store_failed = async {
            match &store {
                Some(failure) => failure.wait().await,
                None => std::future::pending().await,
            }
        };
        let dispatcher_failed = async {
            match dispatcher {
                Some(dispatcher) => dispatcher.failed().await,
                None => std::future::pending().await,
            }
        };
        let cause = tokio::select! {
            biased;
            cause = store_failed => cause,
            cause = dispatcher_failed => cause,
        };
        // The dispatcher ends if the store does.
        store.and_then(|failure| failure.cause()).unwrap_or(cause)
    }

    /// Accepts nothing new, lets running attempts finish within the configured time, gives back the rest
    /// and writes everything. True if every attempt finished.
    pub async fn shutdown(self) -> bool {
        let drain = Duration::from_secs(self.app.config().dispatch.drain_s);
        self.app.begin_drain();
        self.listening.stop(REQUESTS_AT_END).await;
        if let Some(metrics) = self.metrics {
            metrics.stop(Duration::ZERO).await;
        }
        let in_time = match self.dispatcher {
            Some(dispatcher) => dispatcher.drain(drain).await,
            None => true,
        };
        let uses = self.app.keys.write_uses(Duration::ZERO);
        if let Ok(Err(error)) = tokio::time::timeout(KEY_USES_AT_END, uses).await {
            tracing::warn!(%error, "the last uses of keys could not be written");
        }
        rollups::write_at_end(&self.app).await;
        if tokio::time::timeout(AUDIT_AT_END, self.app.audit.flush()).await.is_err() {
            tracing::warn!("the last refused calls could not be written to the audit log");
        }
        if let Some(tracer) = &self.app.tracer {
            tracer.end();
        }
        if let Some(mut exporter) = self.exporter
            && tokio::time::timeout(SPANS_AT_END, &mut exporter).await.is_err()
        {
            exporter.abort();
        }
        for chore in self.chores {
            chore.abort();
            // It releases the store only when it has ended.
            let _ = chore.await;
        }
        in_time
    }
}

async fn sample_rates(app: SharedState) {
    let mut every_second = tokio::time::interval(Duration::from_secs(1));
    loop {
        every_second.tick().await;
        app.metrics.totals.sample(app.clock.now());
        app.metrics.lag.sample();
        // Problems are logged when they are noticed.
        app.store.check_health();
    }
}

async fn write_key_uses(app: SharedState) {
    let mut every = tokio::time::interval(KEY_USES_EVERY);
    loop {
        every.tick().await;
        if let Err(error) = app.keys.write_uses(KEY_USES_OLDER_BY).await {
            tracing::debug!(%error, "the last uses of keys could not be written; will try again");
        }
    }
}

/// Of several workers, the one that leads does it. A server that sends nothing does it only if it has its store alone.
async fn prune(app: SharedState, consumer: Option<Arc<dyn Consumer>>, is_shared: bool) {
    let mut every_hour = tokio::time::interval(PRUNE_EVERY);
    loop {
        every_hour.tick().await;
        if consumer.as_ref().map_or(is_shared, |consumer| !consumer.leads()) {
            continue;
        }
        let retention = {
            let config = app.config();
            config.retention.times(&config.tenants)
        };
        let mut forgotten = 0;
        loop {
            match app.store.prune(&retention).await {
                Ok(progress) => {
                    forgotten += progress.deleted;
                    if !progress.has_more {
                        break;
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "old deliveries could not be deleted");
                    break;
                }
            }
            tokio::task::yield_now().await;
        }
        if forgotten > 0 {
            tracing::info!(forgotten, "old deliveries were deleted");
        }
        prune_audit(&app).await;
    }
}

async fn prune_audit(app: &SharedState) {
    let Some(retention) = app.config().retention.audit() else { return };
    match app.audit.prune(retention).await {
        Ok(0) => {}
        Ok(deleted) => tracing::info!(deleted, "old entries of the audit log were deleted"),
        Err(error) => tracing::error!(%error, "old entries of the audit log could not be deleted"),
    }
}
