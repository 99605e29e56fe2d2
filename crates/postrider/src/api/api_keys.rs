//! Lists, creates and revokes API keys. Needs the scope `admin`: for all tenants, or for one's own.

use std::time::Duration;

use postrider_core::{KeyId, Timestamp};

use super::auth::{ALL_TENANTS, KeyAccess, parse_tenant};
use super::parameters;
use super::prelude::*;
use crate::ip_network::IpNetwork;
use crate::keys::{ApiKey, DEFAULT_TENANT, KeyRights, KeyScope, ScopeSet, owner};

/// A key may have an end in at most ten years.
const EXPIRES_IN_S_MAX: u64 = 3650 * 86_400;
const NETWORKS_MAX: usize = 50;
const SCOPES: &str =
    "send, read, content, replay, manage, admin, or tenant for send,read,replay,manage";

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKeyRequest)]
pub(crate) struct KeyRequest {
    /// What it is for.
    pub name: String,
    /// What it may do, separated by commas: `send`, `read`, `content`, `replay`, `manage`, `admin`. `tenant` stands
    /// for `send,read,replay,manage`.
    pub scope: Option<String>,
    /// The same as a list.
    pub scopes: Option<Vec<String>>,
    /// Its tenant; `*` for all tenants. If absent: the tenant of the `Postrider-Tenant` header; without one, all
    /// tenants for the scope `admin` and `default` for others.
    pub tenant: Option<String>,
    /// It stops working after this many seconds. If absent: never.
    pub expires_in_s: Option<u64>,
    /// It works only from these networks, such as `10.0.0.0/8`. If absent: from everywhere.
    #[serde(default)]
    pub networks: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyBody {
    /// `key_…`
    pub id: String,
    pub tenant: String,
    /// It reaches every tenant, and what concerns the whole server.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    pub all_tenants: bool,
    pub name: String,
    /// The scopes in one text; `tenant` stands for `send,read,replay,manage`.
    pub scope: String,
    pub scopes: Vec<&'static str>,
    /// It works only from these networks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub networks: Vec<String>,
    pub created_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// Absent if it was not used yet. Other servers of the same store tell of uses within ten minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Time>,
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

impl KeyBody {
    fn new(key: &ApiKey, last_used_at: Option<Timestamp>) -> Self {
        Self {
            id: key.id.to_string(),
            tenant: key.tenant.to_string(),
            all_tenants: key.all_tenants,
            name: key.name.to_string(),
            scope: key.scopes.to_string(),
            scopes: key.scopes.names(),
            networks: key.networks.iter().map(ToString::to_string).collect(),
            created_at: key.created_at.into(),
            expires_at: key.expires_at.map(Into::into),
            last_used_at: last_used_at.map(Into::into),
            revoked_at: key.revoked_at.map(Into::into),
            key: None,
        }
    }
}

/// API keys, newest first: all, or those of the tenant that the call names. An admin of a tenant sees its keys.
#[utoipa::path(get, path = "/v1/keys", tag = "administration",
    responses((status = 200, body = KeyList), (status = 403, body = Problem)))]
pub(crate) async fn list(State(app): State<SharedState>, access: KeyAccess) -> Json<KeyList> {
    let is_shown = |key: &ApiKey| match &access.tenant {
        Some(tenant) => owner(key) == Some(tenant),
        None => access.covers(owner(key)),
    };
    let keys = app.keys.list().into_iter().filter(|(key, _)| is_shown(key));
    Json(KeyList { keys: keys.map(|(key, used)| KeyBody::new(&key, used)).collect() })
}

/// Create an API key. Only this answer shows it. An admin of a tenant creates keys of that tenant.
#[utoipa::path(post, path = "/v1/keys", tag = "administration", request_body = KeyRequest,
    responses((status = 201, body = KeyBody), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(app): State<SharedState>,
    access: KeyAccess,
    JsonBody(request): JsonBody<KeyRequest>,
) -> ApiResult<Response> {
    let name = request.name.trim();
    if name.is_empty() || name.len() > 200 {
        return Err(Problem::field("name", format!("{} bytes", name.len()), "1 to 200 bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err(Problem::field("name", quoted(name), "no control characters"));
    }
    let rights = rights(&request, &access, app.clock.now())?;
    app.signing.ensure(&rights.tenant).await?;
    let config = app.config();
    let own = config.tenants.get(rights.tenant.as_str()).filter(|_| !rights.all_tenants);
    let made = app.keys.create(name, rights, config.limits.of(own).keys_max).await?;
    audit(&access.caller, "key.create", &made.key.id, 1);
    note_audit(|draft| {
        draft.tenant = owner(&made.key).cloned();
        draft.after = serde_json::to_value(KeyBody::new(&made.key, None)).ok();
    });
    let body = KeyBody { key: Some(made.text), ..KeyBody::new(&made.key, None) };
    Ok((StatusCode::CREATED, [("cache-control", "no-store")], Json(body)).into_response())
}

fn rights(request: &KeyRequest, access: &KeyAccess, now: Timestamp) -> ApiResult<KeyRights> {
    let scopes = scopes(request)?;
    let is_admin = scopes.allows(KeyScope::Admin);
    let tenant = match (request.tenant.as_deref(), &access.tenant) {
        (Some(ALL_TENANTS), _) => None,
        (Some(text), _) => Some(parse_tenant("tenant", text)?),
        (None, Some(named)) => Some(named.clone()),
        (None, None) if is_admin => None,
        (None, None) => Some(access.caller.tenant.clone()),
    };
    if !access.covers(tenant.as_ref()) {
        let found = tenant.map_or_else(|| ALL_TENANTS.to_owned(), |tenant| tenant.to_string());
        let own = format!("{:?}, the tenant of the key that asks", access.caller.tenant.as_str());
        return Err(Problem::field("tenant", quoted(&found), own));
    }
    let expires_at = match request.expires_in_s {
        None => None,
        Some(seconds @ 1..=EXPIRES_IN_S_MAX) => Some(now + Duration::from_secs(seconds)),
        Some(other) => {
            let allowed = format!("1 to {EXPIRES_IN_S_MAX} seconds");
            return Err(Problem::field("expires_in_s", other.to_string(), allowed));
        }
    };
    Ok(KeyRights {
        all_tenants: tenant.is_none(),
        tenant: tenant.unwrap_or_else(|| TenantId::new(DEFAULT_TENANT)),
        scopes,
        networks: networks(&request.networks)?,
        expires_at,
    })
}

fn scopes(request: &KeyRequest) -> ApiResult<ScopeSet> {
    let (field, names): (_, Vec<&str>) = match (&request.scope, &request.scopes) {
        (Some(text), None) => ("scope", text.split(',').collect()),
        (None, Some(list)) => ("scopes", list.iter().map(String::as_str).collect()),
        (None, None) => return Err(Problem::field("scope", "nothing", SCOPES)),
        (Some(_), Some(_)) => {
            return Err(Problem::field("scopes", "also scope", "one of scope and scopes"));
        }
    };
    ScopeSet::parse(names).map_err(|unknown| Problem::field(field, quoted(&unknown), SCOPES))
}

fn networks(texts: &[String]) -> ApiResult<Vec<IpNetwork>> {
    if texts.len() > NETWORKS_MAX {
        let allowed = format!("at most {NETWORKS_MAX}");
        return Err(Problem::field("networks", texts.len().to_string(), allowed));
    }
    let parse = |(index, text): (usize, &String)| {
        text.parse()
            .map_err(|why: String| Problem::field(format!("networks[{index}]"), quoted(text), why))
    };
    texts.iter().enumerate().map(parse).collect()
}

/// Revoke an API key, at once: its open batches and event streams end, too.
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "administration", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub(crate) async fn revoke(
    State(app): State<SharedState>,
    access: KeyAccess,
    Path(text): Path<String>,
) -> ApiResult<StatusCode> {
    let id: KeyId = parameters::id("id", &text)?;
    if !app.keys.revoke(id, |key| access.covers(owner(key))).await? {
        return Err(Problem::not_found("usable key", id));
    }
    audit(&access.caller, "key.revoke", &id, 1);
    Ok(StatusCode::NO_CONTENT)
}
