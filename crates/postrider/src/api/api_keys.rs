//! Lists, creates and revokes API keys. Needs an admin key.

use postrider_core::KeyId;

use super::auth::{parse_tenant, scope_name};
use super::parameters;
use super::prelude::*;
use crate::keys::{ApiKey, KeyScope};

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKeyRequest)]
pub(crate) struct KeyRequest {
    /// What it is for.
    pub name: String,
    /// `admin`, `tenant` (send, read, act), `read` or `content` (read, also stored message bodies).
    #[schema(value_type = String)]
    pub scope: KeyScope,
    /// Its tenant. If absent: the tenant of the `Postrider-Tenant` header, or `default`.
    pub tenant: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyBody {
    /// `key_…`
    pub id: String,
    pub tenant: String,
    pub name: String,
    pub scope: &'static str,
    pub created_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Time>,
    /// The key itself. Only the answer to its creation has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyList {
    pub keys: Vec<KeyBody>,
}

impl From<ApiKey> for KeyBody {
    fn from(key: ApiKey) -> Self {
        Self {
            id: key.id.to_string(),
            tenant: key.tenant.to_string(),
            name: key.name.into(),
            scope: scope_name(key.scope),
            created_at: key.created_at.into(),
            revoked_at: key.revoked_at.map(Into::into),
            key: None,
        }
    }
}

/// All API keys, newest first.
#[utoipa::path(get, path = "/v1/keys", tag = "administration",
    responses((status = 200, body = KeyList), (status = 403, body = Problem)))]
pub(crate) async fn list(State(app): State<SharedState>, _: AdminAccess) -> Json<KeyList> {
    Json(KeyList { keys: app.keys.list().into_iter().map(Into::into).collect() })
}

/// Create an API key. Only this answer shows it.
#[utoipa::path(post, path = "/v1/keys", tag = "administration", request_body = KeyRequest,
    responses((status = 201, body = KeyBody), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(app): State<SharedState>,
    access: AdminAccess,
    JsonBody(request): JsonBody<KeyRequest>,
) -> ApiResult<Response> {
    let name = request.name.trim();
    if name.is_empty() || name.len() > 200 {
        return Err(Problem::field("name", format!("{} bytes", name.len()), "1 to 200 bytes"));
    }
    let tenant = match request.tenant {
        Some(text) => parse_tenant("tenant", &text)?,
        None => access.tenant,
    };
    app.signing.ensure(&tenant).await?;
    let made = app.keys.create(tenant, name, request.scope).await?;
    audit(&access.caller, "key.create", &made.key.id, 1);
    let body = KeyBody { key: Some(made.text), ..made.key.into() };
    Ok((StatusCode::CREATED, [("cache-control", "no-store")], Json(body)).into_response())
}

/// Revoke an API key, at once.
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "administration", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn revoke(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(text): Path<String>,
) -> ApiResult<StatusCode> {
    let id: KeyId = parameters::id("id", &text)?;
    if !app.keys.revoke(id).await? {
        return Err(Problem::not_found("usable key", id));
    }
    audit(&access.caller, "key.revoke", &id, 1);
    Ok(StatusCode::NO_CONTENT)
}
