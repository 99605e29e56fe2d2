//! Jobs: make, list, show, pause, resume and abort them, and change their pace.

use axum::http::HeaderMap;
use postrider_core::policy::backoff::RetryPolicy;
use postrider_core::policy::ttl;
use postrider_core::ports::store::{DeliveryFilter, DocumentVersion, PutResult};
use postrider_core::{IdSource, JobId};

use super::auth::JobAccess;
use super::cursor;
use super::dead_letters::{check_retry, chosen};
use super::delivery_filter::DeliveryFilterBody;
use super::parameters::name;
use super::prelude::*;
use super::schema;
use super::views::DeliveryBody;
use crate::jobs::counting::{count, narrowed};
use crate::jobs::kept::{self, JobWrite, KeptJob, OPEN_MAX};
use crate::jobs::record::{
    ExportFormat, JobKind, JobProgress, JobRecord, JobState, RATE_DEFAULT, RATE_MAX, takes_s,
};
use crate::keys::KeyScope;

const REASON_MAX: usize = 256;
/// Deliveries that a dry run shows.
const SAMPLE: usize = 10;
/// When a tenant with too many jobs may come back.
const RETRY_AFTER_S: u32 = 10;
/// Pages that a dry run counts.
const DRY_RUN_PAGES: usize = 20;
/// How long a repeat of a call that made a job is recognised.
const KEY_KEPT: std::time::Duration = std::time::Duration::from_secs(86_400);

/// What a job is to do.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobRequest {
    /// `replay`, `discard`, `cancel` or `export`.
    pub kind: String,
    /// Which dead letters (`replay`, `discard`) or deliveries (`cancel`, `export`); only what is there now.
    #[serde(default)]
    pub filter: DeliveryFilterBody,
    /// Only count, and show some. Nothing is done.
    #[serde(default)]
    pub dry_run: bool,
    /// At most this many per second, 100 if absent.
    pub rate_per_s: Option<f64>,
    /// Why: for the audit log.
    pub reason: Option<String>,
    /// `replay`: the new time to live; the message's own if absent.
    pub ttl_s: Option<u32>,
    /// `replay`: a new retry policy.
    #[schema(value_type = Option<schema::RetryRequest>)]
    pub retry: Option<RetryPolicy>,
    /// `export`: `ndjson` (if absent) or `csv`.
    pub format: Option<String>,
}

/// What a job would do.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = JobDryRun)]
pub(crate) struct DryRunBody {
    pub count: u64,
    /// There are more than were counted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub count_is_at_least: bool,
    /// The first ten.
    pub sample: Vec<DeliveryBody>,
    pub rate_per_s: f64,
    /// How long it would take.
    pub takes_s: u64,
}

/// A job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Job)]
pub(crate) struct JobBody {
    /// `job_…`
    pub id: String,
    /// `replay`, `discard`, `cancel` or `export`.
    pub kind: &'static str,
    /// `queued`, `running`, `paused`, `done`, `failed` or `aborted`.
    pub state: &'static str,
    /// Absent for an export of all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    pub filter: DeliveryFilterBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub created_at: Time,
    /// The id of a key.
    pub created_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    pub done: u64,
    /// Those that had changed when their turn came.
    pub failed: u64,
    /// Absent until they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    pub rate_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Where a finished export can be downloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_url: Option<String>,
}

impl From<JobRecord> for JobBody {
    fn from(job: JobRecord) -> Self {
        let has_result = job.kind == JobKind::Export && job.state == JobState::Done;
        Self {
            eta_s: job.eta_s(),
            result_url: has_result.then(|| format!("/v1/jobs/{}/result", job.id)),
            kind: job.kind.name(),
            state: job.state.name(),
            tenant: job.tenant.map(|tenant| tenant.to_string()),
            filter: job.filter,
            reason: job.reason,
            created_at: job.created_at.into(),
            created_by: job.created_by,
            started_at: job.started_at.map(Into::into),
            ended_at: job.ended_at.map(Into::into),
            done: job.progress.done,
            failed: job.progress.failed,
            total: job.progress.total,
            rate_per_s: job.rate_per_s,
            error: job.error,
            id: job.id,
        }
    }
}

/// A page of jobs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct JobPage {
    pub items: Vec<JobBody>,
    pub next: Option<String>,
}

/// Which jobs to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobQuery {
    /// `queued`, `running`, `paused`, `done`, `failed` or `aborted`.
    pub state: Option<String>,
    /// `replay`, `discard`, `cancel` or `export`.
    pub kind: Option<String>,
    pub cursor: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

/// The pace of a job.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobRateRequest {
    pub rate_per_s: f64,
}

/// The scopes of which a job of this kind needs one.
fn scope(kind: JobKind) -> KeyScope {
    match kind {
        JobKind::Replay | JobKind::Discard => KeyScope::Replay,
        JobKind::Cancel => KeyScope::Send,
        JobKind::Export => KeyScope::Read,
    }
}

fn rate(rate_per_s: Option<f64>) -> ApiResult<f64> {
    let rate = rate_per_s.unwrap_or(RATE_DEFAULT);
    if rate.is_finite() && (0.1..=RATE_MAX).contains(&rate) {
        return Ok(rate);
    }
    Err(Problem::field("rate_per_s", rate.to_string(), format!("0.1 to {RATE_MAX}")))
}

/// A field that only some kinds have.
fn only_of(field: &str, is_given: bool, kinds: &[JobKind], kind: JobKind) -> ApiResult<()> {
    if !is_given || kinds.contains(&kind) {
        return Ok(());
    }
    let allowed = kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ");
    let found = format!("a job of the kind {}", kind.name());
    Err(Problem::field(field, found, format!("only jobs of the kind {allowed} have it")))
}

fn format(text: Option<String>) -> ApiResult<ExportFormat> {
    if text.as_deref() == Some("parquet") {
        let allowed = "ndjson or csv: this version writes no Parquet; other tools, such as DuckDB, make it of CSV";
        return Err(Problem::field("format", quoted("parquet"), allowed));
    }
    Ok(name("format", text, ExportFormat::parse, ExportFormat::names)?
        .unwrap_or(ExportFormat::Ndjson))
}

/// A job as it is asked for, without an id.
fn record(app: &SharedState, access: &JobAccess, request: JobRequest) -> ApiResult<JobRecord> {
    let kind = name("kind", Some(request.kind), JobKind::parse, JobKind::names)?;
    let kind = kind.unwrap_or(JobKind::Replay);
    access.require(app, scope(kind))?;
    let tenant = match kind {
        JobKind::Export => access.view.clone(),
        _ => Some(access.tenant()?),
    };
    let is_of = |kinds: &[JobKind], field: &str, is_given| only_of(field, is_given, kinds, kind);
    is_of(&[JobKind::Replay], "ttl_s", request.ttl_s.is_some())?;
    is_of(&[JobKind::Replay], "retry", request.retry.is_some())?;
    is_of(&[JobKind::Export], "format", request.format.is_some())?;
    let of_deliveries = [JobKind::Cancel, JobKind::Export];
    is_of(&of_deliveries, "filter.state", request.filter.state.is_some())?;
    is_of(&of_deliveries, "filter.held", request.filter.held.is_some())?;
    if let Some(found) = request.ttl_s.filter(|ttl_s| *ttl_s > ttl::MAX_S) {
        let allowed = format!("0 to {}", ttl::MAX_S);
        return Err(Problem::field("ttl_s", found.to_string(), allowed));
    }
    check_retry(request.retry.as_ref())?;
    if let Some(reason) = &request.reason
        && (reason.len() > REASON_MAX || reason.contains(char::is_control))
    {
        let allowed = format!("at most {REASON_MAX} bytes without control characters");
        return Err(Problem::field("reason", quoted(reason), allowed));
    }
    let format = match kind {
        JobKind::Export => Some(format(request.format)?),
        _ => None,
    };
    Ok(JobRecord {
        id: String::new(),
        kind,
        state: JobState::Queued,
        tenant,
        filter: request.filter,
        rate_per_s: rate(request.rate_per_s)?,
        reason: request.reason,
        ttl_s: request.ttl_s,
        retry: request.retry,
        format,
        created_at: app.clock.now(),
        created_by: key_name(&access.caller),
        started_at: None,
        ended_at: None,
        error: None,
        progress: JobProgress::default(),
    })
}

/// Make a job, or with `dry_run` only say what it would do. A job runs in the background at its pace, and goes on after
/// a restart. With an `Idempotency-Key`, a repeat of the call answers with the job that the first one made.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", request_body = JobRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeat harmless")),
    responses((status = 200, body = DryRunBody), (status = 202, body = JobBody), (status = 409, body = Problem),
        (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(app): State<SharedState>,
    access: JobAccess,
    headers: HeaderMap,
    JsonBody(request): JsonBody<JobRequest>,
) -> ApiResult<Response> {
    let is_dry_run = request.dry_run;
    let asked = serde_json::to_string(&request).unwrap_or_default();
    let mut job = record(&app, &access, request)?;
    let filter = job.filter.clone().read(&app, job.tenant.clone()).await?;
    if is_dry_run {
        return Ok(Json(dry_run(&app, &job, filter).await?).into_response());
    }
    let random = |_| Problem::new(500, "internal", "No random numbers", "the system gives none");
    let mut tail = [0; 8];
    aws_lc_rs::rand::fill(&mut tail).map_err(random)?;
    let id = IdSource::default().next(job.created_at, u64::from_le_bytes(tail));
    job.id = JobId(id).to_string();
    if let Some(key) = super::messages::idempotency_key(&headers)? {
        job.id = id_of_key(&app, &job, &key, &asked).await?;
        if let Some(known) = kept::job(&*app.store, job.tenant.as_ref(), &job.id).await? {
            return Ok(accepted(known.record));
        }
    }
    let all = kept::jobs(&*app.store, job.tenant.as_ref()).await?;
    if kept::open_jobs(&all) >= OPEN_MAX {
        let detail = format!("{OPEN_MAX} jobs have not ended; wait for one, or abort one");
        let problem = Problem::new(429, "too_many_jobs", "There are too many jobs", detail);
        return Err(Problem { retry_after_s: Some(RETRY_AFTER_S), ..problem });
    }
    let mut made = KeptJob { record: job.clone(), version: DocumentVersion::NONE };
    if let JobWrite::Changed(Some(known)) = kept::write(&*app.store, &mut made).await? {
        return Ok(accepted(known.record));
    }
    kept::forget_oldest(&*app.store, &all).await?;
    app.jobs_wake.notify_one();
    audit(&access.caller, "job.create", &job.id, 0);
    note_audit(|draft| {
        draft.filter = chosen(None, Some(&job.filter));
        draft.after = Some(serde_json::json!({
            "kind": job.kind.name(), "rate_per_s": job.rate_per_s, "reason": job.reason,
        }));
    });
    Ok(accepted(job))
}

fn accepted(job: JobRecord) -> Response {
    (StatusCode::ACCEPTED, Json(JobBody::from(job))).into_response()
}

async fn dry_run(
    app: &SharedState,
    job: &JobRecord,
    filter: Option<DeliveryFilter>,
) -> ApiResult<DryRunBody> {
    let mut body = DryRunBody {
        count: 0,
        count_is_at_least: false,
        sample: Vec::new(),
        rate_per_s: job.rate_per_s,
        takes_s: 0,
    };
    let Some(filter) = filter else { return Ok(body) };
    let filter = narrowed(filter, job.kind, job.created_at);
    let found = count(app, job.kind, &filter, DRY_RUN_PAGES, SAMPLE).await?;
    body.count = found.count;
    body.count_is_at_least = found.is_at_least;
    body.sample = found.sample.into_iter().map(Into::into).collect();
    if job.kind != JobKind::Export {
        body.takes_s = takes_s(found.count, job.rate_per_s);
    }
    Ok(body)
}

/// The id of the job that this key stands for: the given one if the key is new.
async fn id_of_key(
    app: &SharedState,
    job: &JobRecord,
    key: &str,
    asked: &str,
) -> ApiResult<String> {
    let hash = |text: &str| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let tenant = job.tenant.as_ref().map_or("*", TenantId::as_str);
    let name = format!("job-key/{tenant}/{}", hash(key));
    let own = serde_json::json!({"id": job.id, "asked": hash(asked)});
    let put = app
        .store
        .put_document(&name, Some(&own.to_string()), Some(DocumentVersion::NONE), Some(KEY_KEPT))
        .await?;
    let PutResult::Conflict(Some(known)) = put else { return Ok(job.id.clone()) };
    let known: Value =
        known.json.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default();
    if known["asked"] != own["asked"] {
        let detail = "another job was asked for under this key; use a new key";
        return Err(Problem::new(409, "key_reused", "The Idempotency-Key was used before", detail));
    }
    Ok(known["id"].as_str().unwrap_or(&job.id).to_owned())
}

/// Jobs, newest first. Ended ones are kept for seven days.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(JobQuery),
    responses((status = 200, body = JobPage), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<JobQuery>,
) -> ApiResult<Json<JobPage>> {
    let limit = limit(query.limit)?;
    let state = name("state", query.state, JobState::parse, JobState::names)?;
    let kind = name("kind", query.kind, JobKind::parse, JobKind::names)?;
    let cursor = cursor::decode(query.cursor.as_deref(), |id| id.parse::<JobId>().ok())?;
    let cursor = cursor.map(|id| id.to_string());
    let all = kept::jobs(&*app.store, access.view.as_ref()).await?.into_iter();
    let asked = all.map(|kept| kept.record).filter(|job| {
        state.is_none_or(|state| job.state == state)
            && kind.is_none_or(|kind| job.kind == kind)
            && cursor.as_ref().is_none_or(|cursor| job.id < *cursor)
    });
    let mut items: Vec<_> = asked.take(limit + 1).collect();
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(|job| cursor::encode(&job.id));
    Ok(Json(JobPage { items: items.into_iter().map(Into::into).collect(), next }))
}

/// One job.
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobBody), (status = 404, body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<JobBody>> {
    Ok(Json(find(&app, access.view.as_ref(), &id).await?.into()))
}

pub(super) async fn find(
    app: &SharedState,
    view: Option<&TenantId>,
    id: &str,
) -> ApiResult<JobRecord> {
    let id: JobId = super::parameters::id("id", id)?;
    let found = kept::job(&*app.store, view, &id.to_string()).await?;
    found.map(|kept| kept.record).ok_or_else(|| Problem::not_found("job", id))
}

/// Stop a job for now. What it has begun is finished.
#[utoipa::path(post, path = "/v1/jobs/{id}/pause", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobBody), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn pause(
    State(app): State<SharedState>,
    access: JobAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<JobBody>> {
    changed(&app, &access, &id, "job.pause", |job| {
        let may = matches!(job.state, JobState::Queued | JobState::Running);
        job.state = if may { JobState::Paused } else { job.state };
        may || job.state == JobState::Paused
    })
    .await
}

/// Let a paused job go on.
#[utoipa::path(post, path = "/v1/jobs/{id}/resume", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobBody), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn resume(
    State(app): State<SharedState>,
    access: JobAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<JobBody>> {
    changed(&app, &access, &id, "job.resume", |job| {
        let may = job.state == JobState::Paused;
        job.state = if may { JobState::Queued } else { job.state };
        may || kept::is_runnable(job)
    })
    .await
}

/// End a job. What it did stays done.
#[utoipa::path(post, path = "/v1/jobs/{id}/abort", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, body = JobBody), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn abort(
    State(app): State<SharedState>,
    access: JobAccess,
    Path(id): Path<String>,
) -> ApiResult<Json<JobBody>> {
    let now = app.clock.now();
    changed(&app, &access, &id, "job.abort", |job| {
        let may = !job.state.is_ended();
        if may {
            job.end(JobState::Aborted, now);
        }
        may || job.state == JobState::Aborted
    })
    .await
}

/// Change the pace of a job. It holds from its next step on.
#[utoipa::path(patch, path = "/v1/jobs/{id}", tag = "jobs", params(("id" = String, Path)), request_body = JobRateRequest,
    responses((status = 200, body = JobBody), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn change_rate(
    State(app): State<SharedState>,
    access: JobAccess,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<JobRateRequest>,
) -> ApiResult<Json<JobBody>> {
    let rate = rate(Some(request.rate_per_s))?;
    changed(&app, &access, &id, "job.rate", |job| {
        let may = !job.state.is_ended();
        job.rate_per_s = if may { rate } else { job.rate_per_s };
        may
    })
    .await
}

/// Changes a job; 409 if its state does not allow that. `change` answers whether it does.
async fn changed(
    app: &SharedState,
    access: &JobAccess,
    id: &str,
    action: &'static str,
    change: impl Fn(&mut JobRecord) -> bool,
) -> ApiResult<Json<JobBody>> {
    let found = find(app, access.view.as_ref(), id).await?;
    access.require(app, scope(found.kind))?;
    let done = kept::change(&*app.store, access.view.as_ref(), &found.id, &change).await?;
    let (job, is_changed) = done.ok_or_else(|| Problem::not_found("job", &found.id))?;
    if !is_changed {
        let detail = format!("the job is {}", job.state.name());
        return Err(Problem::new(409, "job_state", "The job's state does not allow this", detail));
    }
    app.jobs_wake.notify_one();
    audit(&access.caller, action, &job.id, job.progress.done);
    Ok(Json(job.into()))
}
