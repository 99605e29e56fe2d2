//! Lanes: their state, what holds them up and until when, and what an operator can do.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::policy::breaker::BreakerOverride;
use postrider_core::ports::store::{DeliveryFilter, LaneDepth};
use postrider_core::{LaneId, LaneKey, LaneState};
use postrider_dispatch::lanes::{GateVerdict, LaneReport, OperatorOrder, OwnPlaceWait};

use super::explain::GateBody;
use super::parameters::{channel, name};
use super::prelude::*;
use crate::live::PauseError;
use crate::quotas::limits_of;

const STATES: [&str; 3] = ["ready", "waiting", "blocked"];
const REASON_MAX: usize = 200;
const PAUSED_FOR_MAX: u64 = 30 * 86_400;
/// The maximum number of lanes that a search reads.
const LANES_MAX: usize = 1_000_000;

/// A lane: tenant × provider × class.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LaneBody {
    pub id: u32,
    pub tenant: String,
    pub channel: String,
    pub provider: String,
    pub class: String,
    /// `ready`, `waiting` (until a time) or `blocked` (until something happens).
    pub state: &'static str,
    /// The gate that holds it up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<&'static str>,
    /// Until when, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// What it waits for, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    pub pending: u64,
    pub in_flight: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_due: Option<Time>,
    /// The breaker of its provider: `closed`, `open`, `half_open`, `forced_open` or `forced_closed`.
    pub breaker: &'static str,
    /// Calls in progress to its provider, of all lanes.
    pub provider_in_flight: usize,
    /// The maximum number of such calls at present.
    pub provider_limit: usize,
}

impl LaneBody {
    pub(crate) fn new(lane: LaneDepth, standing: &LaneReport) -> Self {
        let held = standing.held_by();
        Self {
            id: lane.id.0,
            tenant: lane.key.tenant.to_string(),
            channel: lane.key.channel.to_string(),
            provider: lane.key.provider.to_string(),
            class: lane.key.class.to_string(),
            state: standing.state.name(),
            held_by: held.map(|verdict| verdict.gate.name()),
            until: match standing.state {
                LaneState::Waiting { until, .. } => Some(until.into()),
                _ => None,
            },
            waits_for: held.map(|verdict| verdict.detail.clone()),
            pending: lane.pending,
            in_flight: lane.in_flight,
            next_due: lane.next_due.map(Into::into),
            breaker: standing.breaker.name(),
            provider_in_flight: standing.provider_in_flight,
            provider_limit: standing.provider_limit,
        }
    }
}

impl From<PauseError> for Problem {
    fn from(error: PauseError) -> Self {
        match error {
            PauseError::Full(excess) => excess.into(),
            PauseError::Store(error) => error.into(),
        }
    }
}

impl From<&GateVerdict> for GateBody {
    fn from(verdict: &GateVerdict) -> Self {
        let word = match (verdict.open, verdict.until) {
            (true, _) => "open",
            (false, Some(_)) => "waiting",
            (false, None) => "closed",
        };
        Self { gate: verdict.gate.name(), verdict: word, detail: verdict.detail.clone() }
    }
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct LaneQuery {
    /// `ready`, `waiting` or `blocked`.
    pub state: Option<String>,
    /// A channel, e.g. `webhook`.
    pub channel: Option<String>,
    /// The provider of the lane, e.g. `https://hooks.example.com`.
    pub provider: Option<String>,
    pub class: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LaneList {
    /// Those with the most pending first; paused lanes with nothing pending last.
    pub lanes: Vec<LaneBody>,
    /// More lanes match than `limit`.
    pub has_more: bool,
}

/// Which lanes are asked for.
struct LaneChoice {
    state: Option<&'static str>,
    keys: DeliveryFilter,
}

impl LaneChoice {
    fn read(query: LaneQuery) -> ApiResult<Self> {
        let known = |text: &str| STATES.into_iter().find(|state| *state == text);
        let keys = DeliveryFilter {
            channel: channel(query.channel)?,
            provider: query.provider.map(Into::into),
            class: query.class.map(Into::into),
            ..DeliveryFilter::default()
        };
        Ok(Self { state: name("state", query.state, known, || STATES.join(", "))?, keys })
    }

    /// Whether all lanes have to be read.
    fn is_narrow(&self) -> bool {
        let keys = &self.keys;
        let has_key = keys.channel.is_some() || keys.provider.is_some() || keys.class.is_some();
        self.state.is_some() || has_key
    }

    fn body(&self, app: &SharedState, lane: LaneDepth) -> Option<LaneBody> {
        if !self.keys.fits_lane(&lane.key) {
            return None;
        }
        let standing = app.lanes.report(&lane.key);
        let is_asked = self.state.is_none_or(|state| state == standing.state.name());
        is_asked.then(|| LaneBody::new(lane, &standing))
    }
}

/// One lane with every gate's verdict.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LaneDetail {
    #[serde(flatten)]
    pub lane: LaneBody,
    /// In the order in which they are checked.
    pub gates: Vec<GateBody>,
    /// What can be done about it.
    pub can_do: Vec<String>,
}

/// Lanes with pending deliveries, those with the most first, and paused lanes.
#[utoipa::path(get, path = "/v1/lanes", tag = "lanes", params(LaneQuery),
    responses((status = 200, body = LaneList), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<LaneQuery>,
) -> ApiResult<Json<LaneList>> {
    let view = access.view.as_ref();
    let limit = limit(query.limit)?;
    let choice = LaneChoice::read(query)?;
    let read = if choice.is_narrow() { LANES_MAX } else { limit + 1 };
    let mut lanes = app.store.lanes(view, read).await?;
    for idle in paused(&app, view).await? {
        if lanes.iter().all(|lane| lane.id != idle.id) {
            lanes.push(idle);
        }
    }
    let asked = lanes.into_iter().filter_map(|lane| choice.body(&app, lane));
    let mut lanes: Vec<_> = asked.take(limit + 1).collect();
    let has_more = lanes.len() > limit;
    lanes.truncate(limit);
    Ok(Json(LaneList { lanes, has_more }))
}

/// One lane with all its gates, and what can be done.
#[utoipa::path(get, path = "/v1/lanes/{id}", tag = "lanes", params(("id" = u32, Path)),
    responses((status = 200, body = LaneDetail), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<LaneDetail>> {
    let lane = find(&app, access.view.as_ref(), &id).await?;
    Ok(Json(detail(&app, lane)))
}

/// Why a lane is paused, and for how long.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PauseRequest {
    /// At most 200 characters.
    pub reason: Option<String>,
    /// In seconds, at most 30 days. If absent, until it is resumed.
    pub for_s: Option<u64>,
}

impl PauseRequest {
    /// The order, with its reason and its end.
    pub(crate) fn order(self, order: OperatorOrder) -> ApiResult<OperatorOrder> {
        if let Some(reason) = &self.reason
            && (reason.chars().count() > REASON_MAX || reason.chars().any(char::is_control))
        {
            let allowed = format!("at most {REASON_MAX} characters, and no control characters");
            return Err(Problem::field("reason", quoted(reason), allowed));
        }
        if let Some(for_s) = self.for_s.filter(|for_s| !(1..=PAUSED_FOR_MAX).contains(for_s)) {
            let allowed = format!("1 to {PAUSED_FOR_MAX} seconds");
            return Err(Problem::field("for_s", for_s.to_string(), allowed));
        }
        let until = self.for_s.map(|for_s| order.at + Duration::from_secs(for_s));
        let reason = self.reason.map(|reason| reason.trim().into());
        Ok(OperatorOrder { reason, until, ..order })
    }
}

/// Pause a lane: send nothing until it is resumed or the time is over, also after a restart.
#[utoipa::path(post, path = "/v1/lanes/{id}/pause", tag = "lanes", params(("id" = u32, Path)),
    request_body = PauseRequest,
    responses((status = 200, body = LaneDetail), (status = "4XX", body = Problem)))]
pub(crate) async fn pause(
    State(app): State<SharedState>,
    access: ManageAccess,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<Option<PauseRequest>>,
) -> ApiResult<Json<LaneDetail>> {
    let lane = find(&app, Some(&access.tenant), &id).await?;
    let order = request.unwrap_or_default().order(app.order(&access.caller))?;
    let noted = serde_json::json!({"reason": order.reason.as_deref(), "until": order.until.map(Time::from)});
    let max = limits_of(&app.config(), &access.tenant).pauses_max;
    app.operator.pause_lane(&lane.key, order, max).await?;
    audit(&access.caller, "lane.pause", &lane.key, 1);
    note_audit(|draft| draft.after = Some(noted));
    Ok(Json(detail(&app, lane)))
}

/// Resume a paused lane.
#[utoipa::path(post, path = "/v1/lanes/{id}/resume", tag = "lanes", params(("id" = u32, Path)),
    responses((status = 200, body = LaneDetail), (status = 404, body = Problem)))]
pub(crate) async fn resume(
    State(app): State<SharedState>,
    access: ManageAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<LaneDetail>> {
    let lane = find(&app, Some(&access.tenant), &id).await?;
    let was_paused = app.operator.resume_lane(&lane.key).await?;
    audit(&access.caller, "lane.resume", &lane.key, u64::from(was_paused));
    Ok(Json(detail(&app, lane)))
}

/// What to do with a breaker.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = BreakerOrder)]
pub(crate) struct BreakerRequest {
    pub force: BreakerForce,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = Force)]
pub(crate) enum BreakerForce {
    /// Send nothing to this provider.
    Open,
    /// Send, whatever the failures. Also ends a wait that the provider asked for.
    Closed,
    /// Decide by the counted failures.
    Auto,
}

/// Force the breaker of the lane's provider, for all its lanes.
#[utoipa::path(post, path = "/v1/lanes/{id}/breaker", tag = "lanes", params(("id" = u32, Path)), request_body = BreakerRequest,
    responses((status = 200, body = LaneDetail), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub(crate) async fn breaker(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(id): Path<String>,
    JsonBody(order): JsonBody<BreakerRequest>,
) -> ApiResult<Json<LaneDetail>> {
    let lane = find(&app, None, &id).await?;
    let (forced, action) = match order.force {
        BreakerForce::Open => (Some(BreakerOverride::Open), "breaker.open"),
        BreakerForce::Closed => (Some(BreakerOverride::Closed), "breaker.close"),
        BreakerForce::Auto => (None, "breaker.auto"),
    };
    let forced = forced.map(|forced| (forced, app.order(&access.caller)));
    app.operator.force_breaker(&lane.key, forced).await?;
    audit(&access.caller, action, &lane.key, 1);
    Ok(Json(detail(&app, lane)))
}

fn detail(app: &SharedState, lane: LaneDepth) -> LaneDetail {
    let standing = app.lanes.report(&lane.key);
    LaneDetail {
        can_do: can_do(lane.id, &standing, app.lanes.own_place_wait(&lane.key)),
        gates: standing.gates.iter().map(Into::into).collect(),
        lane: LaneBody::new(lane, &standing),
    }
}

/// The steps that help a lane that is held up. `own` says which of the server's own places it waits for.
pub(crate) fn can_do(id: LaneId, standing: &LaneReport, own: Option<OwnPlaceWait>) -> Vec<String> {
    use postrider_core::Gate;
    let or_raise = |setting: &str| vec![format!("wait, or raise {setting} in postrider.toml")];
    let lane = id;
    let id = id.0;
    match standing.held_by().map(|verdict| verdict.gate) {
        None => vec![format!("postrider lanes pause {id}")],
        Some(Gate::TenantPaused) => vec!["postrider tenants resume TENANT   (admin key)".into()],
        Some(Gate::Paused) => vec![format!("postrider lanes resume {id}")],
        Some(Gate::ProviderPaused) => vec![
            "postrider accounts resume NAME, or postrider providers resume CHANNEL PROVIDER   (admin key)"
                .into(),
        ],
        Some(Gate::Breaker | Gate::RetryAfter) => {
            vec![format!("postrider lanes breaker {id} closed   (send anyway)")]
        }
        Some(Gate::Credential) => vec![
            "check the tenant's credential; `postrider vapid rotate` makes a new VAPID key".into(),
        ],
        Some(Gate::MassGone) => mass_gone_steps(lane),
        Some(Gate::Pace) => vec![
            "wait: calls are as fast as the provider accepts; ask it for a higher limit".into(),
        ],
        Some(Gate::RateLimit) => or_raise("the channel's `rate_per_s`"),
        Some(Gate::TenantRateLimit) => or_raise("the tenant's `rate_per_s`"),
        Some(Gate::CredentialRateLimit) => or_raise("the channel's `rate_per_credential_s`"),
        Some(Gate::RetryBudget) => or_raise("[retry_budget]"),
        Some(Gate::Concurrency) => match own {
            None => or_raise("the channel's `concurrency`"),
            Some(OwnPlaceWait::Any | OwnPlaceWait::Long) => or_raise("`concurrency` of [dispatch]"),
            Some(OwnPlaceWait::Connection) => vec![
                "wait, or raise the server's limit of open files or network.connections_total_max"
                    .into(),
            ],
        },
    }
}

/// The steps that help if too many addresses are reported as gone.
pub(crate) fn mass_gone_steps(lane: LaneId) -> Vec<String> {
    vec![
        "check that the tenant's key and environment match its addresses".into(),
        format!(
            "postrider lanes breaker {} closed   (the addresses are really gone: erase them)",
            lane.0
        ),
    ]
}

async fn find(app: &SharedState, view: Option<&TenantId>, text: &str) -> ApiResult<LaneDepth> {
    let id = text.parse().map(LaneId).map_err(|_| {
        Problem::field("id", quoted(text), "the number of a lane, as /v1/lanes lists them")
    })?;
    let lanes = app.store.lanes(view, LANES_MAX).await?;
    let mut found = lanes.into_iter().find(|lane| lane.id == id);
    if found.is_none() {
        found = paused(app, view).await?.into_iter().find(|lane| lane.id == id);
    }
    found.ok_or_else(|| Problem::not_found("lane with pending deliveries", id.0))
}

/// Paused lanes as the store would show them if nothing were pending.
async fn paused(app: &SharedState, view: Option<&TenantId>) -> ApiResult<Vec<LaneDepth>> {
    let is_seen = |key: &Arc<LaneKey>| view.is_none_or(|tenant| *tenant == key.tenant);
    let paused = app.lanes.paused_lanes().into_iter().map(|lane| lane.key);
    let keys: Vec<_> = paused.filter(is_seen).collect();
    let ids = app.store.lane_ids(keys.clone()).await?;
    let idle = |(id, key)| LaneDepth { id, key, pending: 0, in_flight: 0, next_due: None };
    Ok(ids.into_iter().zip(keys).map(idle).collect())
}
