//! Statistics, capacity, health and metrics.

use std::collections::BTreeMap;

use axum::extract::{FromRequestParts as _, Request};
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

use postrider_core::policy::backpressure::Capacity;
use postrider_core::ports::store::{Load, StoreProblem};

use super::prelude::*;
use crate::telemetry::{
    CLASSIC, OPEN_METRICS, RatesBody, ScrapeFigures, TotalsBody, takes_open_metrics,
};

/// The main figures of one tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stats {
    pub version: &'static str,
    pub now: Time,
    pub uptime_s: u64,
    /// Messages in the ledger.
    pub messages: u64,
    /// Deliveries in each state.
    pub states: BTreeMap<&'static str, u64>,
    /// Dead letters by reason.
    pub dead_letters: BTreeMap<&'static str, u64>,
    /// Deliveries that are not final.
    pub depth: u64,
    /// Of these, deliveries from a backup that wait until they are released.
    pub held: u64,
    /// How much is pending, and how much may be.
    pub capacity: CapacityBody,
    /// Figures of the whole server. Only with a key for all tenants.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerStats>,
}

/// Figures of the whole server.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ServerStats {
    pub oldest_pending_s: Option<f64>,
    /// How late deliveries were taken up because this server was busy, the most of the last ten seconds.
    pub lag_s: f64,
    /// The same as `capacity`, for all tenants together.
    pub server_capacity: CapacityBody,
    /// Calls in progress.
    pub in_flight: u64,
    /// To providers, of all channels.
    pub connections: u64,
    /// The size of the store's journal.
    pub journal_bytes: u64,
    /// Deliveries set aside in this run because they cannot be read or settled.
    pub quarantined: u64,
    /// The engine of the store, if it is a server of its own, and what its settings promise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineBody>,
    /// When the last backup was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_at: Option<Time>,
    /// What is wrong in the store while it goes on.
    pub problems: Vec<StoreProblemBody>,
    /// Over the last ten seconds.
    pub rates: RatesBody,
    /// Since the start.
    pub totals: TotalsBody,
}

/// The engine of a store.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EngineBody {
    /// Such as `PostgreSQL 15.4`.
    pub name: String,
    /// What an acknowledged message survives.
    pub promise: String,
}

/// Something in the store that an operator should look at.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoreProblemBody {
    /// Such as `journal_blocked`.
    pub code: &'static str,
    pub since: Time,
    /// What was found and what helps.
    pub what: String,
}

/// How much is pending, and how much may be.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CapacityBody {
    pub deliveries: u64,
    /// Absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliveries_max: Option<u64>,
    /// Of messages and addresses.
    pub bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// The used share of deliveries or bytes, whichever is higher. At 1, new messages get 429.
    pub fill: f64,
}

/// The load and the capacity of one tenant, or of the whole server.
pub(crate) fn load_and_capacity(app: &SharedState, tenant: Option<&TenantId>) -> (Load, Capacity) {
    let policy = app.lanes.policies().now();
    let capacities = &policy.capacities;
    let capacity = tenant.map_or(capacities.server, |tenant| capacities.of(tenant));
    (app.store.load(tenant), capacity)
}

pub(crate) fn capacity_body(app: &SharedState, tenant: Option<&TenantId>) -> CapacityBody {
    let (load, capacity) = load_and_capacity(app, tenant);
    let bound = |max: u64| Some(max).filter(|max| *max > 0);
    CapacityBody {
        deliveries: load.deliveries,
        deliveries_max: bound(capacity.deliveries_max),
        bytes: load.bytes,
        bytes_max: bound(capacity.bytes_max),
        fill: (capacity.fill(load) * 1e4).round() / 1e4,
    }
}

/// Statistics.
#[utoipa::path(get, path = "/v1/stats", tag = "overview", responses((status = 200, body = Stats)))]
pub(crate) async fn stats(
    State(app): State<SharedState>,
    access: ReadAccess,
) -> ApiResult<Json<Stats>> {
    let counts = app.store.counts(access.view.as_ref()).await?;
    let now = app.clock.now();
    let depth = counts.states.iter().filter(|(s, _)| s.is_pending()).map(|(_, n)| n).sum();
    let server = if access.sees_server() { Some(server_stats(&app).await?) } else { None };
    Ok(Json(Stats {
        version: env!("CARGO_PKG_VERSION"),
        now: now.into(),
        uptime_s: now.since(app.started_at).as_secs(),
        messages: counts.messages,
        states: counts.states.into_iter().map(|(state, n)| (state.name(), n)).collect(),
        dead_letters: counts.dead.into_iter().map(|(reason, n)| (reason.name(), n)).collect(),
        depth,
        held: counts.held,
        capacity: capacity_body(&app, access.view.as_ref()),
        server,
    }))
}

async fn server_stats(app: &SharedState) -> ApiResult<ServerStats> {
    let oldest = app.store.oldest_pending().await?;
    let (pool, own) = (app.pool.stats(), app.watch.connections());
    let own_connections: usize = own.iter().map(|(_, _, count)| count).sum();
    let in_flight: usize = app.lanes.provider_figures().iter().map(|f| f.in_flight).sum();
    let health = app.health();
    let problem = |found: StoreProblem| StoreProblemBody {
        code: found.code,
        since: found.since.into(),
        what: found.what,
    };
    Ok(ServerStats {
        oldest_pending_s: oldest.map(|at| app.clock.now().since(at).as_secs_f64()),
        lag_s: app.metrics.lag.seconds(),
        server_capacity: capacity_body(app, None),
        in_flight: in_flight as u64,
        connections: (pool.connections + own_connections) as u64,
        journal_bytes: health.journal_bytes,
        quarantined: health.quarantined,
        engine: health
            .engine
            .map(|engine| EngineBody { name: engine.name, promise: engine.promise }),
        backup_at: health.backup_at.map(Into::into),
        problems: health.problems.into_iter().map(problem).collect(),
        rates: app.metrics.totals.rates(),
        totals: app.metrics.totals.body(),
    })
}

/// The process is running.
#[utoipa::path(get, path = "/healthz", tag = "overview", security(()), responses((status = 200, body = String)))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// The server accepts work: the store answers and has room, the dispatcher works, and the server is not shutting
/// down.
#[utoipa::path(get, path = "/readyz", tag = "overview", security(()), responses((status = 200, body = String), (status = 503, body = Problem)))]
pub(crate) async fn readyz(State(app): State<SharedState>) -> ApiResult<&'static str> {
    if app.is_draining() {
        let detail = "the server is shutting down";
        return Err(Problem {
            retry_after_s: Some(5),
            ..Problem::new(503, "shutting_down", "Not ready", detail)
        });
    }
    if app.has_dispatcher_ended() {
        let detail = "the dispatcher ended; the server has to be restarted";
        return Err(Problem::new(503, "not_sending", "Not ready", detail));
    }
    if !app.is_dispatching() {
        let detail = "the server starts: its dispatcher does not work yet";
        let problem = Problem::new(503, "starting", "Not ready", detail);
        return Err(Problem { retry_after_s: Some(1), ..problem });
    }
    app.store.takes_work()?;
    app.store.counts(None).await?;
    Ok("ready\n")
}

/// Metrics in the text format of Prometheus, or in OpenMetrics for a caller that accepts it. Needs a key for all
/// tenants with the scope `read`, unless `server.metrics_public`.
#[utoipa::path(get, path = "/metrics", tag = "overview",
    responses((status = 200, body = String, content_type = "text/plain"),
        (status = 401, body = Problem), (status = 403, body = Problem), (status = 429, body = Problem),
        (status = 503, body = Problem)))]
pub(crate) async fn metrics(
    State(app): State<SharedState>,
    request: Request,
) -> ApiResult<Response> {
    let (mut parts, _) = request.into_parts();
    if !app.config().server.metrics_public {
        ServerReadAccess::from_request_parts(&mut parts, &app).await?;
    }
    scrape(&app, &parts.headers).await
}

/// The same without a key, for `server.metrics_listen`.
pub(crate) async fn open_metrics(
    State(app): State<SharedState>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    scrape(&app, &headers).await
}

async fn scrape(app: &SharedState, headers: &HeaderMap) -> ApiResult<Response> {
    let now = app.clock.now();
    let oldest = app.store.oldest_pending().await?;
    let (load, capacity) = load_and_capacity(app, None);
    let figures = ScrapeFigures {
        now,
        counts: app.store.counts(None).await?,
        oldest: oldest.map(|at| now.since(at)),
        load,
        capacity,
        health: app.health(),
        clock_offset_ms: app.clock.wall_offset_ms(),
        pool: app.pool.stats(),
        accounts: app.account_views(),
        credentials: app.watch.seen(),
        providers: app.lanes.provider_figures(),
        paces: app.lanes.paces(),
        depths: app.metrics.depths.read(&*app.store).await?,
        own_connections: app.watch.connections(),
    };
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let is_open_metrics = takes_open_metrics(accept);
    let text = app.metrics.render(&figures, is_open_metrics);
    let kind = if is_open_metrics { OPEN_METRICS } else { CLASSIC };
    Ok((StatusCode::OK, [("content-type", kind)], text).into_response())
}
