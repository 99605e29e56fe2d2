//! Problems: what is wrong, for whom, since when, what Postrider does about it, and what can be done.

use std::time::Duration;

use postrider_channels::registry;
use postrider_core::policy::problems::{
    Acknowledgement, Mute, ProblemKey, ProblemKind, ProblemRecord, ProblemSeverity,
};
use postrider_core::{TenantId, Timestamp};

use super::auth::ProblemAccess;
use super::parameters::name;
use super::prelude::*;
use crate::keys::Caller;
use crate::problems::{change_kept, kept_problems, status_pages};

const MUTED_FOR: u64 = 3_600;
const MUTED_FOR_MAX: u64 = 30 * 86_400;
const STATES: [&str; 6] = ["unresolved", "open", "acknowledged", "muted", "resolved", "all"];

/// Something that an operator should know of.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProblemBody {
    /// `prb_…`
    pub id: String,
    /// Such as `breaker_open`.
    pub kind: &'static str,
    /// The kind in a few words.
    pub title: &'static str,
    /// `notice`, `warning` or `critical`.
    pub severity: &'static str,
    /// `open`, `acknowledged`, `muted` or `resolved`.
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// An origin, an account, or the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// If the provider is an account: its name. Deliveries, lanes and the history have the channel as its provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What was found.
    pub what: String,
    /// How many deliveries, attempts or seconds it is about at the last look.
    pub count: u64,
    /// The highest count.
    pub peak: u64,
    /// When its first sign was seen.
    pub since: Time,
    pub opened_at: Time,
    /// When its sign was seen last; written every half minute.
    pub seen_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Time>,
    /// How often it opened again soon after it was resolved.
    pub reopened: u32,
    /// Whom it concerns, at most 20; empty if it is about the whole server. A tenant sees itself only.
    pub tenants: Vec<ConcernedTenant>,
    /// What Postrider already does about it.
    pub doing: &'static str,
    /// What can be done.
    pub remedy: &'static str,
    /// Where the provider says whether it works, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_page: Option<&'static str>,
    /// The page of this problem on this server.
    pub link: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<AcknowledgedBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub muted: Option<MutedBody>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConcernedTenant {
    pub tenant: String,
    /// Failures in the last two minutes.
    pub count: u64,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AcknowledgedBody {
    /// The id of a key.
    pub by: String,
    pub at: Time,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MutedBody {
    /// The id of a key.
    pub by: String,
    pub at: Time,
    /// No alerts before then.
    pub until: Time,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProblemListing {
    /// Unresolved ones first, the worst first; then the newest.
    pub problems: Vec<ProblemBody>,
}

/// Which problems to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct ProblemQuery {
    /// `unresolved` (default), `open`, `acknowledged`, `muted`, `resolved` or `all`.
    pub state: Option<String>,
    /// Such as `breaker_open`.
    pub kind: Option<String>,
    /// `notice`, `warning` or `critical`: this and worse.
    pub severity: Option<String>,
    pub channel: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

/// How long no alerts are sent.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MuteRequest {
    /// In seconds, at most 30 days; an hour if absent.
    pub for_s: Option<u64>,
}

/// What a caller sees: everything, or what concerns one tenant.
enum ProblemView {
    Server,
    Tenant(TenantId),
}

impl ProblemView {
    fn of(caller: &Caller, view: Option<&TenantId>) -> Self {
        match view {
            Some(tenant) if !caller.all_tenants || *tenant != caller.tenant => {
                Self::Tenant(tenant.clone())
            }
            _ => Self::Server,
        }
    }

    fn shows(&self, record: &ProblemRecord) -> bool {
        match self {
            Self::Server => true,
            Self::Tenant(own) => record.tenants.contains_key(own),
        }
    }

    /// Whether it concerns nobody else.
    fn may_change(&self, record: &ProblemRecord) -> bool {
        match self {
            Self::Server => true,
            Self::Tenant(own) => record.only_tenant() == Some(own),
        }
    }

    fn body(&self, record: ProblemRecord, now: Timestamp) -> ProblemBody {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let (state, key) = (record.state(now), &record.key);
        let own = match self {
            Self::Server => None,
            Self::Tenant(own) => Some(own),
        };
        let tenants = record.tenants.iter().filter(|(name, _)| own.is_none_or(|own| own == *name));
        let tenants = tenants
            .map(|(name, count)| ConcernedTenant { tenant: name.to_string(), count: *count });
        let tenants: Vec<_> = tenants.collect();
        // Figures of several tenants are not one tenant's business.
        let is_shared = own.is_some() && record.only_tenant() != own;
        // Why a credential does not work says where the operator keeps it.
        let is_operators = own.is_some() && key.kind == ProblemKind::CredentialFailing;
        let own_count = tenants.first().map_or(0, |tenant| tenant.count);
        ProblemBody {
            kind: key.kind.name(),
            title: key.kind.title(),
            severity: record.severity.name(),
            state,
            channel: given(&key.channel),
            provider: given(&key.provider),
            account: account(key),
            outcome: given(&key.outcome),
            what: match is_shared || is_operators {
                true => key.kind.title().to_owned(),
                false => record.what.clone(),
            },
            count: if is_shared { own_count } else { record.count },
            peak: if is_shared { own_count } else { record.peak },
            since: record.since.into(),
            opened_at: record.opened_at.into(),
            seen_at: record.seen_at.into(),
            resolved_at: record.resolved_at.map(Into::into),
            reopened: record.reopened,
            tenants,
            doing: key.kind.doing(),
            remedy: key.kind.remedy(),
            status_page: status_pages::status_page(&key.channel, &key.provider),
            link: format!("/problems/{}", record.id),
            acknowledged: record
                .acknowledged
                .clone()
                .map(|ack| AcknowledgedBody { by: ack.by, at: ack.at.into() }),
            muted: record.muted.clone().filter(|_| record.is_muted(now)).map(|mute| MutedBody {
                by: mute.by,
                at: mute.at.into(),
                until: mute.until.into(),
            }),
            id: record.id,
        }
    }
}

/// The account that a problem is about. A channel with accounts has no origins; its own name stands for all of them.
fn account(key: &ProblemKey) -> Option<String> {
    let channel = registry::all().find(|channel| channel.facts().kind.name() == key.channel);
    let has_accounts = channel.is_some_and(|channel| channel.facts().accounts.is_some());
    let is_one = has_accounts && !key.provider.is_empty() && key.provider != key.channel;
    is_one.then(|| key.provider.clone())
}

/// What is wrong at this moment, the worst first. A tenant sees what concerns it.
#[utoipa::path(get, path = "/v1/problems", tag = "problems", params(ProblemQuery),
    responses((status = 200, body = ProblemListing), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<ProblemQuery>,
) -> ApiResult<Json<ProblemListing>> {
    let limit = limit(query.limit)?;
    let known = |text: &str| STATES.into_iter().find(|state| *state == text);
    let state = name("state", query.state, known, || STATES.join(", "))?.unwrap_or("unresolved");
    let kinds = || ProblemKind::ALL.iter().map(|k| k.name()).collect::<Vec<_>>().join(", ");
    let kind = name("kind", query.kind, ProblemKind::parse, kinds)?;
    let known = |text: &str| ProblemSeverity::ALL.into_iter().find(|known| known.name() == text);
    let severities = || ProblemSeverity::ALL.map(ProblemSeverity::name).join(", ");
    let severity = name("severity", query.severity, known, severities)?;
    let (view, now) = (ProblemView::of(&access.caller, access.view.as_ref()), app.clock.now());
    let is_asked = |record: &ProblemRecord| {
        let own = record.state(now);
        let is_in_state = match state {
            "all" => true,
            "unresolved" => record.is_open(),
            wanted => own == wanted,
        };
        is_in_state
            && view.shows(record)
            && kind.is_none_or(|kind| record.key.kind == kind)
            && severity.is_none_or(|severity| record.severity >= severity)
            && query.channel.as_ref().is_none_or(|channel| record.key.channel == *channel)
    };
    let kept = kept_problems(&*app.store).await?.into_iter().map(|kept| kept.record);
    let asked = kept.filter(is_asked).take(limit);
    Ok(Json(ProblemListing { problems: asked.map(|record| view.body(record, now)).collect() }))
}

/// One problem.
#[utoipa::path(get, path = "/v1/problems/{id}", tag = "problems", params(("id" = String, Path)),
    responses((status = 200, body = ProblemBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<ProblemBody>> {
    let view = ProblemView::of(&access.caller, access.view.as_ref());
    let kept = kept_problems(&*app.store).await?.into_iter().map(|kept| kept.record);
    let found = kept.into_iter().find(|record| record.id == id && view.shows(record));
    let record = found.ok_or_else(|| Problem::not_found("problem", shortened(&id)))?;
    Ok(Json(view.body(record, app.clock.now())))
}

/// Say that somebody takes care of it. It stays open until its cause ends.
#[utoipa::path(post, path = "/v1/problems/{id}/acknowledge", tag = "problems", params(("id" = String, Path)),
    responses((status = 200, body = ProblemBody), (status = 404, body = Problem)))]
pub(crate) async fn acknowledge(
    State(app): State<SharedState>,
    access: ProblemAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<ProblemBody>> {
    let (by, tenant) = (key_name(&access.caller), acting_tenant(&access.caller));
    let ack = Acknowledgement { by, at: app.clock.now(), tenant };
    let change = |record: &mut ProblemRecord| record.acknowledged = Some(ack.clone());
    changed(&app, &access, &id, "problem.acknowledge", change).await
}

/// Take an acknowledgement back.
#[utoipa::path(post, path = "/v1/problems/{id}/unacknowledge", tag = "problems", params(("id" = String, Path)),
    responses((status = 200, body = ProblemBody), (status = 404, body = Problem)))]
pub(crate) async fn unacknowledge(
    State(app): State<SharedState>,
    access: ProblemAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<ProblemBody>> {
    let change = |record: &mut ProblemRecord| record.acknowledged = None;
    changed(&app, &access, &id, "problem.unacknowledge", change).await
}

/// Send no alerts about it for a while.
#[utoipa::path(post, path = "/v1/problems/{id}/mute", tag = "problems", params(("id" = String, Path)),
    request_body = MuteRequest, responses((status = 200, body = ProblemBody), (status = "4XX", body = Problem)))]
pub(crate) async fn mute(
    State(app): State<SharedState>,
    access: ProblemAccess,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<MuteRequest>,
) -> ApiResult<Json<ProblemBody>> {
    let for_s = request.for_s.unwrap_or(MUTED_FOR);
    if !(1..=MUTED_FOR_MAX).contains(&for_s) {
        let allowed = format!("1 to {MUTED_FOR_MAX} seconds");
        return Err(Problem::field("for_s", for_s.to_string(), allowed));
    }
    let now = app.clock.now();
    let until = now + Duration::from_secs(for_s);
    let (by, tenant) = (key_name(&access.caller), acting_tenant(&access.caller));
    let mute = Mute { by, at: now, until, tenant };
    let change = |record: &mut ProblemRecord| record.muted = Some(mute.clone());
    changed(&app, &access, &id, "problem.mute", change).await
}

/// Send alerts about it again.
#[utoipa::path(post, path = "/v1/problems/{id}/unmute", tag = "problems", params(("id" = String, Path)),
    responses((status = 200, body = ProblemBody), (status = 404, body = Problem)))]
pub(crate) async fn unmute(
    State(app): State<SharedState>,
    access: ProblemAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<ProblemBody>> {
    let change = |record: &mut ProblemRecord| record.muted = None;
    changed(&app, &access, &id, "problem.unmute", change).await
}

fn acting_tenant(caller: &Caller) -> Option<TenantId> {
    (!caller.all_tenants).then(|| caller.tenant.clone())
}

async fn changed(
    app: &SharedState,
    access: &ProblemAccess,
    id: &str,
    action: &'static str,
    change: impl Fn(&mut ProblemRecord),
) -> ApiResult<Json<ProblemBody>> {
    let view = ProblemView::of(&access.caller, access.view.as_ref());
    let record = change_kept(&*app.store, id, |record| view.may_change(record), change).await?;
    let record = record.ok_or_else(|| Problem::not_found("problem", shortened(id)))?;
    audit(&access.caller, action, &record.id, 1);
    note_audit(|draft| draft.after = Some(record.key.to_string().into()));
    Ok(Json(view.body(record, app.clock.now())))
}
