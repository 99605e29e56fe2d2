//! Who looks at a page, at which tenant, at what time: what every page begins with.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::{COOKIE, LOCATION, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use postrider_core::Timestamp;
use serde_json::Value;

use super::DashboardState;
use super::api_calls::{ApiCalls, PageCallResult, RefusedCall};
use super::cookies::{self, ActionNotice, cookie, form_token, is_own_path};
use super::page_parts::PageAnswers;
use super::query::PageQuery;
use super::role::DashboardRole;
use super::sign_in_page;
use crate::api::{PeerAddress, SharedState, caller_address};
use crate::keys::session::{PORTAL_PREFIX, SESSION_PREFIX};
use crate::keys::{Caller, KeyScope};

/// The tenant that stands for all tenants.
pub(super) const ALL: &str = "*";
/// A page is shown without its notes if these take longer.
const NOTES_WAIT_MAX: Duration = Duration::from_millis(500);

/// A signed-in person who asks for a page.
pub(crate) struct PageContext {
    pub(super) app: SharedState,
    pub(super) caller: Caller,
    pub(super) role: DashboardRole,
    /// The API, for the tenant that is looked at.
    pub(super) calls: ApiCalls,
    /// The tenant that is looked at; `*` for all.
    pub(super) tenant: String,
    pub(super) query: PageQuery,
    pub(super) path: String,
    pub(super) now: Timestamp,
    pub(super) form_token: String,
    /// `light`, `dark`, or empty for what the browser prefers.
    pub(super) theme: &'static str,
    pub(super) notice: Option<ActionNotice>,
    /// The browser asks for parts of the page only.
    pub(super) is_part: bool,
    pub(super) is_secure: bool,
    pub(super) last_answers: Arc<PageAnswers>,
    /// Notes that are pinned, as the API lists them. Null for what shows no page.
    pub(super) notes: Value,
}

impl FromRequestParts<DashboardState> for PageContext {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &DashboardState,
    ) -> Result<Self, Response> {
        let app = state.app.clone();
        let headers = &parts.headers;
        let session = cookie(headers, cookies::SESSION).unwrap_or_default();
        // A cookie is no place for a key.
        if !is_session(session) {
            return Err(sign_in_page::required(parts));
        }
        let from = caller_address(parts, &app.config().server.trusted_proxies);
        let Ok(caller) = app.keys.authenticate(session, from) else {
            return Err(sign_in_page::required(parts));
        };
        let query = PageQuery::parse(parts.uri.query().unwrap_or_default());
        let own = if caller.all_tenants { ALL } else { caller.tenant.as_str() };
        let tenant = query.get("tenant").unwrap_or(own).to_owned();
        let peer = parts.extensions.get::<PeerAddress>().cloned();
        let calls = ApiCalls::new(state.api.clone(), headers, peer);
        let calls = calls.with_bearer(session).for_tenant(&tenant);
        let notes = match parts.method == Method::GET && parts.uri.path() != "/live" {
            true => notes(&calls).await,
            false => Value::Null,
        };
        let is_part = headers.contains_key("hx-request");
        let notice = cookie(headers, cookies::NOTICE).filter(|_| !is_part);
        Ok(Self {
            role: DashboardRole::of(&caller),
            calls,
            notes,
            tenant,
            query,
            path: parts.uri.path().to_owned(),
            now: app.clock.now(),
            form_token: form_token(session),
            theme: theme(headers),
            notice: notice.and_then(ActionNotice::read),
            is_part,
            is_secure: is_secure(&app, headers),
            last_answers: state.last_answers.clone(),
            caller,
            app,
        })
    }
}

/// Whether a text is meant as a session, of a key or of a link.
pub(super) fn is_session(text: &str) -> bool {
    text.starts_with(SESSION_PREFIX) || text.starts_with(PORTAL_PREFIX)
}

/// The colours that the person chose.
pub(super) fn theme(headers: &HeaderMap) -> &'static str {
    match cookie(headers, cookies::THEME) {
        Some("dark") => "dark",
        Some("light") => "light",
        _ => "",
    }
}

/// Whether the browser reaches the server by TLS, as far as the server knows.
pub(super) fn is_secure(app: &SharedState, headers: &HeaderMap) -> bool {
    let forwarded = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    forwarded || app.config().server.has_tls()
}

impl PageContext {
    pub(super) fn may(&self, scope: KeyScope) -> bool {
        self.caller.may(scope)
    }

    /// Whether figures of the whole server are shown.
    pub(super) fn sees_server(&self) -> bool {
        self.caller.all_tenants && self.tenant == ALL
    }

    /// The address of another view with the same tenant.
    pub(super) fn link(&self, path: &str) -> String {
        self.link_with(path, &[])
    }

    /// The same with parameters.
    pub(super) fn link_with(&self, path: &str, parameters: &[(&str, &str)]) -> String {
        let start = self.query.only(&["tenant"]);
        let query =
            parameters.iter().fold(start, |query, (name, value)| query.with(name, Some(value)));
        query.to(path)
    }

    /// The address of this view.
    pub(super) fn here(&self) -> String {
        self.query.to(&self.path)
    }

    /// The tenant's name, if one is looked at.
    pub(super) fn one_tenant(&self) -> Option<&str> {
        Some(self.tenant.as_str()).filter(|tenant| *tenant != ALL)
    }

    /// After an action: back to a page, with what was done.
    pub(super) fn back(&self, to: &str, done: PageCallResult<ActionNotice>) -> Response {
        let notice = done.unwrap_or_else(|refused: RefusedCall| ActionNotice {
            text: format!("Not done. {}", refused.detail),
            is_bad: true,
            undo: None,
        });
        let to = if is_own_path(to) { to } else { "/" };
        let cookie = cookies::set_cookie(cookies::NOTICE, &notice.write(), 60, self.is_secure);
        (StatusCode::SEE_OTHER, [(LOCATION, to.to_owned()), (SET_COOKIE, cookie)]).into_response()
    }
}

/// The notes above a page; none if the API does not answer soon.
async fn notes(calls: &ApiCalls) -> Value {
    let answer = tokio::time::timeout(NOTES_WAIT_MAX, calls.get("/v1/notes")).await;
    answer.ok().and_then(Result::ok).unwrap_or_default()
}

/// The address that a request asked for, for the way back after the sign-in.
pub(super) fn asked(uri: &Uri) -> String {
    uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string)
}

/// Whether a request carries any cookie of a session.
pub(super) fn has_session(headers: &HeaderMap) -> bool {
    headers.contains_key(COOKIE) && cookie(headers, cookies::SESSION).is_some()
}
