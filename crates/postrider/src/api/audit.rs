//! The audit log: every call that changes or reveals something becomes an entry, and so do refused calls and changes
//! that failed. Shows entries.

use std::fmt::Display;

use axum::extract::Request;
use axum::http::Method;
use axum::http::header::CONTENT_LENGTH;
use postrider_core::ports::store::{AuditFilter, AuditRecord, StoreError};

use super::auth::KeyAccess;
use super::cursor;
use super::extract::CallRules;
use super::parameters::time;
use super::prelude::*;
use super::problem::QuotaRefusal;
use crate::audit::{
    ActingKey, AuditDraft, AuditEntry, ChainedEntry, NewAuditEntry, collected, with_draft,
};
use crate::keys::Caller;

/// Entries that one call looks at. A filter that finds less among them leads to the next page.
const LOOKED_AT: usize = 1_000;
/// What the cursor of this list begins with.
const AUDIT_CURSOR: &str = "audit ";
/// Actions whose answer is a secret or stored content. It is not handed out without an entry.
const REVEALING: [&str; 8] = [
    "message.content",
    "webhook_secrets.read",
    "webhook_secrets.rotate",
    "event_subscription.rotate_secret",
    "job.result",
    "key.create",
    "sign_in_code.create",
    "portal_link.create",
];
/// Paths below this one name people.
const RECIPIENTS: &str = "/v1/recipients";
/// The longest path that an entry repeats.
const PATH_CHARS_MAX: usize = 200;
/// Calls of the daily work, of which refused ones are no entries.
const DAILY: [&str; 4] =
    ["/v1/messages", "/v1/messages/batch", "/v1/addresses", "/v1/templates/{name}/preview"];

/// Notes an action that changes or reveals something. The entry is written when the call ends.
pub(super) fn audit(caller: &Caller, action: &'static str, subject: &dyn Display, count: u64) {
    let key = super::key_name(caller);
    tracing::info!(target: "audit", action, tenant = %caller.tenant, key, subject = %subject, count);
    with_draft(|draft| {
        draft.action = Some(action);
        draft.subject = subject.to_string();
        draft.count = count;
    });
}

/// Adds to the entry of this call.
pub(super) fn note_audit(add: impl FnOnce(&mut AuditDraft)) {
    with_draft(add);
}

/// Runs a call, and writes its entry before it is answered. A change goes on to its end when the caller goes away, so
/// that nobody hides one by closing the connection.
pub(super) async fn audited(
    app: &SharedState,
    rules: CallRules,
    request: &CallSummary,
    call: impl Future<Output = Response> + Send + 'static,
) -> Response {
    if !request.is_change(rules) {
        return written(app, rules, request, call).await;
    }
    let (app, request) = (app.clone(), request.clone());
    let whole = tokio::spawn(async move { written(&app, rules, &request, call).await });
    match whole.await {
        Ok(answer) => answer,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Problem::late().into_response(),
        },
    }
}

/// What an entry needs of a request.
#[derive(Debug, Clone)]
pub(super) struct CallSummary {
    method: Method,
    path: String,
    /// The announced length of the body.
    body_bytes: usize,
}

impl CallSummary {
    pub(super) fn of(request: &Request) -> Self {
        let path = request.uri().path().chars().take(PATH_CHARS_MAX).collect();
        let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let body_bytes = length.and_then(|text| text.parse().ok()).unwrap_or(0);
        Self { method: request.method().clone(), path, body_bytes }
    }

    fn is_change(&self, rules: CallRules) -> bool {
        self.method != Method::GET && !DAILY.contains(&rules.path)
    }

    /// What a failed call was about, if that is no person.
    fn subject(&self) -> String {
        match self.path.starts_with(RECIPIENTS) {
            true => String::new(),
            false => self.path.clone(),
        }
    }
}

async fn written(
    app: &SharedState,
    rules: CallRules,
    request: &CallSummary,
    call: impl Future<Output = Response>,
) -> Response {
    let (answer, draft) = collected(call).await;
    let status = answer.status();
    if let (Some(action), true) = (draft.action, status.is_success()) {
        let is_written = app.audit.write(entry(app, draft, action, "done".to_owned())).await;
        if !is_written && REVEALING.contains(&action) {
            let detail = "the call could not be written to the audit log; try again later";
            return Problem::new(503, "not_audited", "The call cannot be audited", detail)
                .into_response();
        }
        return answer;
    }
    let is_change = request.is_change(rules);
    if is_change
        && answer.extensions().get::<QuotaRefusal>().is_some()
        && let Some(tenant) = &draft.tenant
        && let Ok(turn) = app.intake.quotas().turn_of(tenant).await
    {
        // Whoever tries again at once has to wait. Calls of the daily work see to that before their body is read.
        turn.pause(request.body_bytes).await;
    }
    let is_refused_key = matches!(status.as_u16(), 401 | 403);
    let is_flood = status.as_u16() == 429;
    let method = &request.method;
    if status.is_server_error() && is_change && draft.is_signed_in {
        let action = format!("{method} {}", rules.path);
        let mut failed =
            entry(app, draft, &action, format!("failed {}, may have been done", status.as_u16()));
        failed.subject = failed.subject.filter(|text| !text.is_empty());
        failed.subject = failed.subject.or_else(|| Some(request.subject()));
        app.audit.write(failed).await;
        return answer;
    }
    if is_refused_key
        || (is_flood && !draft.is_signed_in)
        || (status.is_client_error() && is_change)
    {
        let action = match draft.is_signed_in {
            true => format!("{method} {}", rules.path),
            false => "sign_in".to_owned(),
        };
        let mut refused = entry(app, draft, &action, format!("refused {}", status.as_u16()));
        (refused.count, refused.filter) = (1, None);
        app.audit.refused(refused);
    }
    answer
}

fn entry(app: &SharedState, draft: AuditDraft, action: &str, outcome: String) -> NewAuditEntry {
    NewAuditEntry {
        at: app.clock.now(),
        key: draft.key.map(|key| match key {
            ActingKey::Configured => "configured admin key".to_owned(),
            ActingKey::Stored(id) => id.to_string(),
        }),
        tenant: draft.tenant,
        address: draft.address.map(|address| address.to_string()),
        action: action.to_owned(),
        subject: Some(draft.subject),
        filter: draft.filter,
        count: draft.count,
        before: draft.before,
        after: draft.after,
        outcome,
    }
}

/// An entry with the hash of its exact text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditBody {
    /// SHA-256 of the text of `entry`, in hexadecimal.
    pub hash: String,
    #[schema(value_type = AuditEntry)]
    pub entry: Box<serde_json::value::RawValue>,
}

/// A page of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditPage {
    pub items: Vec<AuditBody>,
    /// Where the next page begins. A page may have fewer items than asked for and still have a next one.
    pub next: Option<String>,
}

/// Which entries to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Such as `key.create`.
    pub action: Option<String>,
    /// The id of the acting key.
    pub key: Option<String>,
    pub since: Option<String>,
    pub until: Option<String>,
    /// `true`: oldest first.
    pub oldest_first: bool,
    pub cursor: Option<String>,
    /// 1 to 1000, 50 if absent.
    pub limit: Option<usize>,
}

/// Who did what, newest first. An admin of the server sees all entries, or with `Postrider-Tenant` those of one tenant;
/// the admin of a tenant sees those of its tenant.
#[utoipa::path(get, path = "/v1/audit", tag = "administration", params(AuditQuery),
    responses((status = 200, body = AuditPage), (status = "4XX", body = Problem)))]
pub(crate) async fn list(
    State(app): State<SharedState>,
    access: KeyAccess,
    StrictQuery(query): StrictQuery<AuditQuery>,
) -> ApiResult<Json<AuditPage>> {
    let limit = limit(query.limit)?;
    let (since, until) = (time("since", query.since)?, time("until", query.until)?);
    let cursor = cursor::decode(query.cursor.as_deref(), audit_number)?;
    let filter = AuditFilter {
        tenant: access.tenant.clone(),
        after: cursor.filter(|_| query.oldest_first).unwrap_or(0),
        before: cursor.filter(|_| !query.oldest_first),
        newest_first: !query.oldest_first,
        limit: LOOKED_AT,
    };
    let records = app.store.audit_records(filter).await?;
    let found = records.len();
    let (mut items, mut looked_at, mut last) = (Vec::new(), 0, None);
    for record in records {
        (looked_at, last) = (looked_at + 1, Some(record.number));
        let is_in_time = since.is_none_or(|since| record.at >= since)
            && until.is_none_or(|until| record.at < until);
        let (chained, entry) = read(&record)?;
        let is_asked = is_in_time
            && query.action.as_ref().is_none_or(|action| *action == entry.action)
            && query.key.as_ref().is_none_or(|key| Some(key) == entry.key.as_ref());
        if is_asked {
            items.push(AuditBody { hash: chained.hash, entry: chained.entry });
        }
        if items.len() == limit {
            break;
        }
    }
    let has_more = looked_at < found || found == LOOKED_AT;
    let next =
        last.filter(|_| has_more).map(|number| cursor::encode(&format!("{AUDIT_CURSOR}{number}")));
    Ok(Json(AuditPage { items, next }))
}

/// The number of the entry that a cursor stands for. The cursor of another list is refused.
fn audit_number(place: &str) -> Option<u64> {
    place.strip_prefix(AUDIT_CURSOR)?.parse().ok()
}

fn read(record: &AuditRecord) -> Result<(ChainedEntry, AuditEntry), StoreError> {
    let damaged = |error: serde_json::Error| StoreError::Corrupt {
        what: format!("entry {} of the audit log: {error}", record.number),
        cause: None,
    };
    let chained = ChainedEntry::parse(&record.text).map_err(damaged)?;
    let entry = chained.read().map_err(damaged)?;
    Ok((chained, entry))
}
