//! Links for customers: the dashboard of one tenant, until a time.

use std::time::Duration;

use super::auth::{KeyAccess, parse_tenant};
use super::prelude::*;
use crate::keys::session::{SessionClaim, SessionReach};
use crate::keys::{KeyScope, ScopeSet};

const EXPIRES_IN_S: u64 = 86_400;
const EXPIRES_IN_S_MAX: u64 = 90 * 86_400;
const SCOPES: &str = "read, content, replay, manage or send; a link cannot have admin";

/// Whom a link is for, what it may do, and for how long.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PortalLinkRequest {
    /// If absent, the tenant of the call.
    pub tenant: Option<String>,
    /// `read` if absent.
    pub scopes: Option<Vec<String>>,
    /// In seconds, at most 90 days; a day if absent.
    pub expires_in_s: Option<u64>,
}

/// A link to the dashboard of one tenant. It works until its end, more than once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PortalLinkBody {
    /// Behind the address of this server.
    pub link: String,
    /// The session that the link has: `prl_…`.
    pub key: String,
    pub tenant: String,
    pub scopes: Vec<&'static str>,
    pub expires_at: Time,
}

/// Make a link that opens the dashboard for one tenant until a time. It never allows more than the key that made it,
/// and ends with that key.
#[utoipa::path(post, path = "/v1/portal-links", tag = "keys", request_body = PortalLinkRequest,
    responses((status = 201, body = PortalLinkBody), (status = "4XX", body = Problem)))]
pub(crate) async fn create(
    State(app): State<SharedState>,
    access: KeyAccess,
    JsonBody(request): JsonBody<PortalLinkRequest>,
) -> ApiResult<Response> {
    let named = request.tenant.as_deref().map(|name| parse_tenant("tenant", name)).transpose()?;
    let tenant = named.or_else(|| access.tenant.clone());
    let tenant =
        tenant.ok_or_else(|| Problem::field("tenant", "nothing", "the name of one tenant"))?;
    if !access.covers(Some(&tenant)) {
        let detail = format!("this key makes links for the tenant {} only", access.caller.tenant);
        return Err(Problem::new(403, "forbidden", "The key may not do this", detail));
    }
    let names = request.scopes.unwrap_or_else(|| vec!["read".to_owned()]);
    let scopes = ScopeSet::parse(names.iter().map(String::as_str));
    let scopes = scopes.map_err(|name| Problem::field("scopes", quoted(&name), SCOPES))?;
    if scopes.allows(KeyScope::Admin) {
        return Err(Problem::field("scopes", "\"admin\"", SCOPES));
    }
    let expires_in_s = request.expires_in_s.unwrap_or(EXPIRES_IN_S);
    if !(1..=EXPIRES_IN_S_MAX).contains(&expires_in_s) {
        let allowed = format!("1 to {EXPIRES_IN_S_MAX}");
        return Err(Problem::field("expires_in_s", expires_in_s.to_string(), allowed));
    }
    let until = app.clock.now() + Duration::from_secs(expires_in_s);
    let reach = Some(SessionReach { tenant: tenant.clone(), scopes });
    let claim = SessionClaim { key: access.caller.key, until, reach };
    let key = app.keys.session_with(&claim).ok_or_else(|| {
        Problem::new(503, "not_ready", "Not ready", "the server is starting; try again")
    })?;
    audit(&access.caller, "portal_link.create", &tenant, 1);
    let after = serde_json::json!({"scopes": scopes.names(), "expires_at": until.to_string()});
    note_audit(|draft| draft.after = Some(after));
    let body = PortalLinkBody {
        link: format!("/sign-in#portal={key}"),
        key,
        tenant: tenant.to_string(),
        scopes: scopes.names(),
        expires_at: until.into(),
    };
    Ok((StatusCode::CREATED, Json(body)).into_response())
}
