//! Access rights: turns the bearer key of a request into a caller with a tenant and rights.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use postrider_core::TenantId;

use super::SharedState;
use super::caller_address::caller_address;
use super::parameters::quoted;
use super::problem::Problem;
use super::request_limits::KeyCallPlace;
use crate::audit::{ActingKey, with_draft};
use crate::keys::{Caller, KeyRejection, KeyScope, key_id};

/// The header by which a key for all tenants acts for another tenant.
pub(crate) const TENANT_HEADER: &str = "postrider-tenant";
/// The value of [`TENANT_HEADER`] that stands for all tenants.
pub(super) const ALL_TENANTS: &str = "*";

/// The right to read.
pub(crate) struct ReadAccess {
    pub(crate) caller: Caller,
    /// The tenant whose data is shown; `None` shows all tenants.
    pub view: Option<TenantId>,
}

impl ReadAccess {
    /// The tenant, for calls that need exactly one.
    pub(crate) fn tenant(&self) -> Result<TenantId, Problem> {
        one_tenant(self.view.clone())
    }

    /// Only a key for all tenants sees figures of the whole server.
    pub(crate) fn sees_server(&self) -> bool {
        self.caller.all_tenants
    }
}

impl FromRequestParts<SharedState> for ReadAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        allow(app, &caller, &[KeyScope::Read])?;
        Ok(Self { caller, view })
    }
}

/// Declares rights for one tenant: the caller has one of the scopes.
macro_rules! rights_for_one_tenant {
    ($($(#[doc = $about:literal])+ $name:ident: $($scope:ident)|+;)+) => {$(
        $(#[doc = $about])+
        pub(crate) struct $name {
            pub(crate) caller: Caller,
            pub tenant: TenantId,
        }

        impl FromRequestParts<SharedState> for $name {
            type Rejection = Problem;

            async fn from_request_parts(
                parts: &mut Parts,
                app: &SharedState,
            ) -> Result<Self, Problem> {
                let (caller, view) = identify(parts, app)?;
                allow(app, &caller, &[$(KeyScope::$scope),+])?;
                Ok(Self { caller, tenant: one_tenant(view)? })
            }
        }
    )+};
}

rights_for_one_tenant! {
    /// The right to send, for one tenant.
    SendAccess: Send;
    /// The right to change what a tenant's messages need.
    ManageAccess: Manage;
    /// The right to register and delete addresses.
    AddressAccess: Send | Manage;
    /// The right to replay and discard dead letters.
    ReplayAccess: Replay;
}

/// Declares rights for one tenant or, with a key for all tenants, for all.
macro_rules! rights_for_tenants {
    ($($(#[doc = $about:literal])+ $name:ident: $($scope:ident)|+;)+) => {$(
        $(#[doc = $about])+
        pub(crate) struct $name {
            pub(crate) caller: Caller,
            pub view: Option<TenantId>,
        }

        impl FromRequestParts<SharedState> for $name {
            type Rejection = Problem;

            async fn from_request_parts(
                parts: &mut Parts,
                app: &SharedState,
            ) -> Result<Self, Problem> {
                let (caller, view) = identify(parts, app)?;
                allow(app, &caller, &[$(KeyScope::$scope),+])?;
                Ok(Self { caller, view })
            }
        }
    )+};
}

rights_for_tenants! {
    /// The right to release what a backup held.
    ReleaseAccess: Replay;
    /// The right to read stored message bodies.
    ContentAccess: Content;
    /// The right to change templates, of one tenant or of the server.
    TemplateAccess: Manage;
    /// The right to acknowledge and mute problems.
    ProblemAccess: Manage;
    /// The right to change subscriptions to events.
    EventAccess: Manage;
}

/// The right to see the public keys that browsers subscribe with.
pub(crate) struct PublicKeyAccess {
    pub tenant: TenantId,
}

impl FromRequestParts<SharedState> for PublicKeyAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        allow(app, &caller, &[KeyScope::Read, KeyScope::Send, KeyScope::Manage])?;
        Ok(Self { tenant: one_tenant(view)? })
    }
}

/// The right to render a template without sending anything.
pub(crate) struct PreviewAccess {
    pub view: Option<TenantId>,
}

impl FromRequestParts<SharedState> for PreviewAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        allow(app, &caller, &[KeyScope::Send, KeyScope::Manage])?;
        Ok(Self { view })
    }
}

/// A caller of whom a job needs another scope by its kind.
pub(crate) struct JobAccess {
    pub(crate) caller: Caller,
    pub view: Option<TenantId>,
}

impl JobAccess {
    /// The tenant, for jobs of exactly one.
    pub(crate) fn tenant(&self) -> Result<TenantId, Problem> {
        one_tenant(self.view.clone())
    }

    pub(crate) fn require(&self, app: &SharedState, scope: KeyScope) -> Result<(), Problem> {
        allow(app, &self.caller, &[scope])
    }
}

impl FromRequestParts<SharedState> for JobAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        Ok(Self { caller, view })
    }
}

/// Any key that works.
pub(crate) struct AnyAccess {
    pub(crate) caller: Caller,
}

impl FromRequestParts<SharedState> for AnyAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, _) = identify(parts, app)?;
        Ok(Self { caller })
    }
}

/// The address of a caller that needs no key.
pub(crate) struct CallerIp(pub(crate) Option<std::net::IpAddr>);

impl FromRequestParts<SharedState> for CallerIp {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &SharedState,
    ) -> Result<Self, Self::Rejection> {
        Ok(Self(caller_address(parts, &app.config().server.trusted_proxies)))
    }
}

/// The right to administer the server.
pub(crate) struct AdminAccess {
    pub(crate) caller: Caller,
}

impl FromRequestParts<SharedState> for AdminAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, _) = identify(parts, app)?;
        allow(app, &caller, &[KeyScope::Admin])?;
        require_server(app, &caller, KeyScope::Admin)?;
        with_draft(|draft| draft.tenant = None);
        Ok(Self { caller })
    }
}

/// The right to read what concerns the whole server.
pub(crate) struct ServerReadAccess {
    /// The tenant of the call, if the call is about a tenant.
    pub tenant: TenantId,
}

impl FromRequestParts<SharedState> for ServerReadAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        allow(app, &caller, &[KeyScope::Read])?;
        require_server(app, &caller, KeyScope::Read)?;
        Ok(Self { tenant: view.unwrap_or(caller.tenant) })
    }
}

/// The right to administer API keys: of all tenants, or of one's own.
pub(crate) struct KeyAccess {
    pub(crate) caller: Caller,
    /// The tenant that the call names, or that the key is confined to.
    pub tenant: Option<TenantId>,
}

impl FromRequestParts<SharedState> for KeyAccess {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &SharedState) -> Result<Self, Problem> {
        let (caller, view) = identify(parts, app)?;
        allow(app, &caller, &[KeyScope::Admin])?;
        let is_named = parts.headers.contains_key(TENANT_HEADER) || !caller.all_tenants;
        Ok(Self { caller, tenant: view.filter(|_| is_named) })
    }
}

impl KeyAccess {
    /// Whether keys of this tenant may be seen and changed; `None` for keys of all tenants.
    pub(crate) fn covers(&self, tenant: Option<&TenantId>) -> bool {
        self.caller.all_tenants || tenant == Some(&self.caller.tenant)
    }
}

/// The caller, and the tenant whose data it sees.
fn identify(parts: &Parts, app: &SharedState) -> Result<(Caller, Option<TenantId>), Problem> {
    let mut caller = authenticate(parts, app)?;
    limit_calls(app, &mut caller)?;
    if let (Some(held), Some(place)) = (parts.extensions.get::<KeyCallPlace>(), &caller.place) {
        held.hold(place.clone());
    }
    let view = view(parts, app, &caller)?;
    with_draft(|draft| draft.tenant.clone_from(&view));
    Ok((caller, view))
}

fn view(parts: &Parts, app: &SharedState, caller: &Caller) -> Result<Option<TenantId>, Problem> {
    let Some(header) = parts.headers.get(TENANT_HEADER) else {
        return Ok(Some(caller.tenant.clone()));
    };
    let requested = header.to_str().unwrap_or_default();
    if !caller.all_tenants && requested != caller.tenant.as_str() {
        app.metrics.key_refused("tenant");
        return Err(forbidden(format!(
            "this key belongs to the tenant {}; only a key for all tenants can name another in Postrider-Tenant",
            caller.tenant
        )));
    }
    match requested {
        ALL_TENANTS => Ok(None),
        name => Ok(Some(parse_tenant("Postrider-Tenant", name)?)),
    }
}

/// Takes one of the requests and one of the places of the caller's key.
fn limit_calls(app: &SharedState, caller: &mut Caller) -> Result<(), Problem> {
    let config = app.config();
    let server = &config.server;
    let rate = (server.key_requests_per_s, server.key_requests_burst);
    caller.gate.requests.take_at(rate.0, rate.1).map_err(|wait| {
        app.metrics.call_limited("key");
        Problem::too_many("this key calls more often than server.key_requests_per_s", wait)
    })?;
    if server.key_calls_max > 0 {
        let place = caller.gate.calls.take(server.key_calls_max).ok_or_else(|| {
            app.metrics.call_limited("key");
            let detail = "this key has more calls open than server.key_calls_max";
            Problem::too_many(detail, Duration::ZERO)
        })?;
        caller.place = Some(Arc::new(place));
    }
    Ok(())
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
    let from = caller_address(parts, &app.config().server.trusted_proxies);
    let bearer = bearer(parts).map_err(|problem| {
        with_draft(|draft| draft.address = from);
        app.metrics.key_refused("none");
        throttled(app, from, problem)
    })?;
    let caller = app.keys.authenticate(bearer, from);
    note_key(&caller, bearer, from);
    caller.map_err(|rejection| throttled(app, from, rejected(app, rejection)))
}

fn bearer(parts: &Parts) -> Result<&str, Problem> {
    let header = parts.headers.get(AUTHORIZATION).ok_or_else(|| {
        unauthorized("there is no Authorization header; send `Authorization: Bearer KEY`")
    })?;
    match header.to_str().unwrap_or_default().split_at_checked(7) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer ") => Ok(rest.trim()),
        _ => Err(unauthorized(
            "the Authorization header carries no bearer key; send `Authorization: Bearer KEY`",
        )),
    }
}

/// Counts a missing or wrong key or a wrong code against its address. Whoever used too many has to wait.
fn throttled(app: &SharedState, from: Option<std::net::IpAddr>, problem: Problem) -> Problem {
    app.failed_sign_ins.note(from).map_or_else(
        |wait| {
            app.metrics.call_limited("wrong_key");
            Problem::too_many("this address called too often without a key that works", wait)
        },
        |()| problem,
    )
}

/// The answer to a wrong code.
pub(super) fn wrong_code(app: &SharedState, from: Option<std::net::IpAddr>) -> Problem {
    app.metrics.key_refused("code");
    let detail = "this code is wrong, was used before, or its time is over; make one with `postrider keys sign-in`";
    throttled(app, from, unauthorized(detail))
}

/// Tells the audit log who calls.
fn note_key(caller: &Result<Caller, KeyRejection>, bearer: &str, from: Option<IpAddr>) {
    let key = match caller {
        Ok(caller) => Some(caller.key.map_or(ActingKey::Configured, ActingKey::Stored)),
        Err(KeyRejection::Unknown) => None,
        Err(_) => key_id(bearer).map(ActingKey::Stored),
    };
    with_draft(|draft| {
        (draft.address, draft.key, draft.is_signed_in) = (from, key, caller.is_ok());
    });
}

/// The answer to a key that does not work.
pub(crate) fn rejected(app: &SharedState, rejection: KeyRejection) -> Problem {
    app.metrics.key_refused(match rejection {
        KeyRejection::Unknown => "unknown",
        KeyRejection::Revoked(_) => "revoked",
        KeyRejection::Expired(_) => "expired",
        KeyRejection::OutsideNetworks(_) => "network",
    });
    match rejection {
        KeyRejection::Unknown => unauthorized(
            "this key is not known here; make one with `postrider keys create`, using the admin key",
        ),
        KeyRejection::Revoked(at) => unauthorized(&format!(
            "this key was revoked at {at}; make a new one with `postrider keys create`"
        )),
        KeyRejection::Expired(at) => unauthorized(&format!(
            "this key expired at {at}; make a new one with `postrider keys create`"
        )),
        KeyRejection::OutsideNetworks(from) => {
            let from = from.map_or_else(|| "an unknown address".to_owned(), |ip| ip.to_string());
            forbidden(format!(
                "this key works only from its networks, and this call came from {from}; \
                 behind a proxy, name the proxy in server.trusted_proxies"
            ))
        }
    }
}

fn allow(app: &SharedState, caller: &Caller, scopes: &[KeyScope]) -> Result<(), Problem> {
    if scopes.iter().any(|scope| caller.may(*scope)) {
        return Ok(());
    }
    app.metrics.key_refused("scope");
    let needed = scopes.iter().map(|scope| scope.name()).collect::<Vec<_>>().join(" or ");
    Err(forbidden(format!(
        "this key has the scope {}, the call needs {needed}; make a key with `postrider keys create --scope {}`",
        caller.scopes,
        scopes[0].name()
    )))
}

fn require_server(app: &SharedState, caller: &Caller, scope: KeyScope) -> Result<(), Problem> {
    if caller.all_tenants {
        return Ok(());
    }
    app.metrics.key_refused("tenant");
    Err(forbidden(format!(
        "this key belongs to the tenant {}, the call concerns the whole server; \
         make a key with `postrider keys create --scope {} --for '*'`",
        caller.tenant,
        scope.name()
    )))
}

fn one_tenant(view: Option<TenantId>) -> Result<TenantId, Problem> {
    view.ok_or_else(|| {
        Problem::field("Postrider-Tenant", "\"*\"", "the name of one tenant, for this call")
    })
}

fn unauthorized(detail: &str) -> Problem {
    Problem::new(401, "unauthorized", "The key is missing or wrong", detail)
}

fn forbidden(detail: String) -> Problem {
    Problem::new(403, "forbidden", "The key may not do this", detail)
}
