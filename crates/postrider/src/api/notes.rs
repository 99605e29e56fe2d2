//! Notes of incidents: pinned on every page of the dashboard until a time, by an operator for others.

use std::time::Duration;

use super::auth::{ProblemAccess, parse_tenant};
use super::prelude::*;
use crate::keys::Caller;
use crate::live::{NoteAudience, NoteError, NoteRecord};

const TEXT_MAX: usize = 500;
const PINNED_FOR_S: u64 = 86_400;
const PINNED_FOR_S_MAX: u64 = 30 * 86_400;
const EVERYBODY: &str = "*";

/// What a note says, for whom, and for how long.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NoteRequest {
    /// 1 to 500 characters.
    pub text: String,
    /// Who sees it besides the operators: the name of a tenant, or `*` for everybody. If absent, nobody else; with a
    /// key of one tenant, that tenant.
    pub to: Option<String>,
    /// In seconds, at most 30 days; a day if absent.
    pub for_s: Option<u64>,
}

/// A note.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NoteBody {
    /// `note_…`
    pub id: String,
    pub text: String,
    /// The id of a key.
    pub by: String,
    pub at: Time,
    /// When it ends by itself.
    pub until: Time,
    /// A tenant, or `*` for everybody; absent if only operators see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Whether this caller sees enough to take it away; the call needs the scope `manage`, too.
    pub is_removable: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NoteList {
    /// The newest first.
    pub notes: Vec<NoteBody>,
}

/// The tenant that a person is; none for an operator of all tenants.
fn tenant_of(caller: &Caller) -> Option<&TenantId> {
    (!caller.all_tenants).then_some(&caller.tenant)
}

fn body(note: NoteRecord, tenant: Option<&TenantId>) -> NoteBody {
    NoteBody {
        is_removable: note.may_remove(tenant),
        to: match note.audience {
            NoteAudience::Operators => None,
            NoteAudience::Everybody => Some(EVERYBODY.to_owned()),
            NoteAudience::Tenant(tenant) => Some(tenant.to_string()),
        },
        id: note.id,
        text: note.text,
        by: note.by,
        at: note.at.into(),
        until: note.until.into(),
    }
}

/// Notes that are pinned now. A tenant sees those that are meant for it.
#[utoipa::path(get, path = "/v1/notes", tag = "problems",
    responses((status = 200, body = NoteList), (status = "4XX", body = Problem)))]
pub(crate) async fn list(State(app): State<SharedState>, access: ReadAccess) -> Json<NoteList> {
    let tenant = tenant_of(&access.caller);
    let notes = app.notes.list(tenant, app.clock.now()).into_iter();
    Json(NoteList { notes: notes.map(|note| body(note, tenant)).collect() })
}

/// Pin a note on every page of the dashboard.
#[utoipa::path(post, path = "/v1/notes", tag = "problems", request_body = NoteRequest,
    responses((status = 201, body = NoteBody), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(app): State<SharedState>,
    access: ProblemAccess,
    JsonBody(request): JsonBody<NoteRequest>,
) -> ApiResult<Response> {
    let tenant = tenant_of(&access.caller);
    let text = request.text.trim().to_owned();
    let length = text.chars().count();
    if length == 0 || length > TEXT_MAX || text.chars().any(char::is_control) {
        let allowed = format!("1 to {TEXT_MAX} characters, and no control characters");
        return Err(Problem::field("text", quoted(&text), allowed));
    }
    let for_s = request.for_s.unwrap_or(PINNED_FOR_S);
    if !(1..=PINNED_FOR_S_MAX).contains(&for_s) {
        let allowed = format!("1 to {PINNED_FOR_S_MAX} seconds");
        return Err(Problem::field("for_s", for_s.to_string(), allowed));
    }
    let mut random = [0; 10];
    aws_lc_rs::rand::fill(&mut random)
        .map_err(|_| Problem::new(500, "internal", "No random numbers", "the system gives none"))?;
    let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let at = app.clock.now();
    let note = NoteRecord {
        id: format!("note_{id}"),
        text,
        by: key_name(&access.caller),
        at,
        until: at + Duration::from_secs(for_s),
        audience: audience(request.to.as_deref(), tenant)?,
        owner: tenant.cloned(),
    };
    app.notes.pin(note.clone()).await?;
    audit(&access.caller, "note.create", &note.id, 1);
    let body = body(note, tenant);
    let after = serde_json::json!({"text": body.text, "to": body.to, "until": body.until});
    note_audit(|draft| draft.after = Some(after));
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// A tenant speaks to itself only.
fn audience(to: Option<&str>, tenant: Option<&TenantId>) -> ApiResult<NoteAudience> {
    match (to, tenant) {
        (None, None) => Ok(NoteAudience::Operators),
        (Some(EVERYBODY), None) => Ok(NoteAudience::Everybody),
        (Some(name), None) => Ok(NoteAudience::Tenant(parse_tenant("to", name)?)),
        (None, Some(own)) => Ok(NoteAudience::Tenant(own.clone())),
        (Some(name), Some(own)) if name == own.as_str() => Ok(NoteAudience::Tenant(own.clone())),
        (Some(name), Some(own)) => {
            Err(Problem::field("to", quoted(name), format!("{own}, the tenant of this key")))
        }
    }
}

/// Take a note away before its end.
#[utoipa::path(delete, path = "/v1/notes/{id}", tag = "problems", params(("id" = String, Path)),
    responses((status = 204, description = "It is gone"), (status = "4XX", body = Problem)))]
pub(crate) async fn remove(
    State(app): State<SharedState>,
    access: ProblemAccess,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    let removed = app.notes.remove(&id, tenant_of(&access.caller)).await?;
    let note = removed.ok_or_else(|| Problem::not_found("note", shortened(&id)))?;
    audit(&access.caller, "note.delete", &note.id, 1);
    note_audit(|draft| draft.before = Some(serde_json::json!({"text": note.text})));
    Ok(StatusCode::NO_CONTENT)
}

impl From<NoteError> for Problem {
    fn from(error: NoteError) -> Self {
        match error {
            NoteError::Full(_) => {
                Self::new(409, "too_many_notes", "There are too many notes", error.to_string())
            }
            NoteError::Store(error) => error.into(),
        }
    }
}
