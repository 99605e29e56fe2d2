//! Access rights: turns the bearer key of a request into a caller with a tenant and rights.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use postrider_core::TenantId;

use super::SharedState;
use super::parameters::quoted;
use super::problem::Problem;
use crate::keys::{Caller, KeyRejection, KeyScope};

/// The header by which an admin key acts for another tenant.
pub(crate) const TENANT_HEADER: &str = "postrider-tenant";
/// The value of [`TENANT_HEADER`] that stands for all tenants.
const ALL_TENANTS: &str = "*";

/// The right to read.
pub(crate) struct ReadAccess {
    /// Only an admin sees figures of the whole server.
    pub is_admin: bool,
    /// The tenant whose data is shown; `None` shows all tenants.
    pub view: Option<TenantId>,
}

/// The right to send and to act, for one tenant.
pub(crate) struct SendAccess {
    pub(crate) caller: Caller,
    pub tenant: TenantId,
}

/// The right to act, for one tenant or, with an admin key, for all.
pub(crate) struct ActAccess {
    pub(crate) caller: Caller,
    pub view: Option<TenantId>,
}

/// The right to read stored message bodies.
pub(crate) struct ContentAccess {
    pub(crate) caller: Caller,
    pub view: Option<TenantId>,
}

/// The right to administer the server.
pub(crate) struct AdminAccess {
    pub(crate) caller: Caller,
    /// The tenant of the call, if the call is about a tenant.
    pub tenant: TenantId,
}

impl ReadAccess {
    /// The tenant, for calls that need exactly one.
    pub(crate) fn tenant(&self) -> Result<TenantId, Problem> {
        one_tenant(self.view.clone())
    }
}

impl FromRequestParts<SharedState> for ReadAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        Ok(Self { is_admin: caller.scope == KeyScope::Admin, view })
    }
}

impl FromRequestParts<SharedState> for SendAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        allow(&caller, &[KeyScope::Admin, KeyScope::Tenant], "tenant")?;
        Ok(Self { caller, tenant: one_tenant(view)? })
    }
}

impl FromRequestParts<SharedState> for ActAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        allow(&caller, &[KeyScope::Admin, KeyScope::Tenant], "tenant")?;
        Ok(Self { caller, view })
    }
}

impl FromRequestParts<SharedState> for ContentAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        allow(&caller, &[KeyScope::Admin, KeyScope::Content], "content")?;
        Ok(Self { caller, view })
    }
}

impl FromRequestParts<SharedState> for AdminAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        allow(&caller, &[KeyScope::Admin], "admin")?;
        let tenant = view.unwrap_or_else(|| caller.tenant.clone());
        Ok(Self { caller, tenant })
    }
}

/// The caller, and the tenant whose data it sees.
pub(crate) fn identify(
    parts: &Parts,
    app: &SharedState,
) -> Result<(Caller, Option<TenantId>), Problem> {
    let caller = authenticate(parts, app)?;
    let Some(header) = parts.headers.get(TENANT_HEADER) else {
        let view = Some(caller.tenant.clone());
        return Ok((caller, view));
    };
    let requested = header.to_str().unwrap_or_default();
    if caller.scope != KeyScope::Admin && requested != caller.tenant.as_str() {
        return Err(forbidden(format!(
            "this key belongs to the tenant {}; only an admin key can name another in Postrider-Tenant",
            caller.tenant
        )));
    }
    match requested {
        ALL_TENANTS => Ok((caller, None)),
        name => Ok((caller, Some(parse_tenant("Postrider-Tenant", name)?))),
    }
}

/// Parses a tenant's name.
pub(crate) fn parse_tenant(field: &str, name: &str) -> Result<TenantId, Problem> {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(allowed) {
        return Err(Problem::field(field, quoted(name), "1 to 64 letters, digits, -, _ or ."));
    }
    Ok(TenantId::new(name))
}

fn authenticate(parts: &Parts, app: &SharedState) -> Result<Caller, Problem> {
    let header = parts.headers.get(AUTHORIZATION).ok_or_else(|| {
        unauthorized("there is no Authorization header; send `Authorization: Bearer KEY`")
    })?;
    let text = header.to_str().unwrap_or_default();
    let bearer = match text.split_at_checked(7) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer ") => rest.trim(),
        _ => {
            return Err(unauthorized(
                "the Authorization header carries no bearer key; send `Authorization: Bearer KEY`",
            ));
        }
    };
    app.keys.authenticate(bearer).map_err(|rejection| match rejection {
        KeyRejection::Unknown => unauthorized(
            "this key is not known here; make one with `postrider keys create`, using the admin key",
        ),
        KeyRejection::Revoked(at) => unauthorized(&format!(
            "this key was revoked at {at}; make a new one with `postrider keys create`"
        )),
    })
}

pub(crate) fn allow(caller: &Caller, scopes: &[KeyScope], needed: &str) -> Result<(), Problem> {
    if scopes.contains(&caller.scope) {
        return Ok(());
    }
    Err(forbidden(format!(
        "this key has the scope {}, the call needs {needed}; make a key with `postrider keys create --scope {needed}`",
        scope_name(caller.scope)
    )))
}

fn one_tenant(view: Option<TenantId>) -> Result<TenantId, Problem> {
    view.ok_or_else(|| {
        Problem::field("Postrider-Tenant", "\"*\"", "the name of one tenant, for this call")
    })
}

pub(crate) fn scope_name(scope: KeyScope) -> &'static str {
    match scope {
        KeyScope::Admin => "admin",
        KeyScope::Tenant => "tenant",
        KeyScope::Read => "read",
        KeyScope::Content => "content",
    }
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(401, "unauthorized", "The key is missing or wrong", detail)
}

fn forbidden(detail: String) -> Problem {
    Problem::new(403, "forbidden", "The key may not do this", detail)
}
