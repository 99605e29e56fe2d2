//! Signs people in and out. A key or a one-time code is exchanged for a session; the browser never keeps a key.

use axum::Extension;
use axum::extract::State;
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::DashboardState;
use super::action_form::ActionForm;
use super::api_calls::{ApiCalls, PageCallResult, RefusedCall};
use super::cookies::{self, cookie, is_own_path};
use super::json_read::JsonRead as _;
use super::layout;
use super::page_context::{PageContext, asked, has_session, is_secure, is_session, theme};
use super::query::PageQuery;
use super::refusal_page::body_headers;
use crate::api::PeerAddress;

/// Sends whoever is not signed in to the sign-in page. After a link on another site, the browser leaves out our
/// cookie; our own page asks once more, then with it.
pub(super) fn required(parts: &Parts) -> Response {
    let next = asked(&parts.uri);
    let is_foreign = parts.headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    if is_foreign && !has_session(&parts.headers) {
        let again = format!("0;url={next}");
        let body = layout::bare(
            "",
            "Postrider",
            &html! {
                meta http-equiv="refresh" content=(again);
                main.narrow data-again=(next) { p { a href=(next) { "Go on to Postrider" } } }
            },
        );
        return (body_headers(), body.into_string()).into_response();
    }
    if parts.headers.contains_key("hx-request") || parts.uri.path() == "/live" {
        return (StatusCode::UNAUTHORIZED, [("hx-redirect", "/sign-in")]).into_response();
    }
    let to = match next.as_str() {
        "/" => "/sign-in".to_owned(),
        next => PageQuery::default().with("next", Some(next)).to("/sign-in"),
    };
    (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response()
}

pub(super) async fn show(
    State(state): State<DashboardState>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let query = PageQuery::parse(uri.query().unwrap_or_default());
    let next = query.get("next").filter(|next| is_own_path(next)).unwrap_or("/");
    let is_signed_in = is_signed_in(&state, &headers);
    let body = form(theme(&headers), next, None, is_signed_in);
    (body_headers(), body.into_string()).into_response()
}

/// Whether the session of the request works, as far as it does not depend on the caller's address.
fn is_signed_in(state: &DashboardState, headers: &HeaderMap) -> bool {
    let session = cookie(headers, cookies::SESSION).unwrap_or_default();
    is_session(session) && state.app.keys.authenticate(session, None).is_ok()
}

pub(super) async fn sign_in(
    State(state): State<DashboardState>,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    form: ActionForm,
) -> Response {
    let next = form.get("next").filter(|next| is_own_path(next)).unwrap_or("/");
    // A link never replaces the session of a person.
    if is_signed_in(&state, &headers) {
        return (StatusCode::SEE_OTHER, [(LOCATION, next.to_owned())]).into_response();
    }
    let calls = ApiCalls::new(state.api.clone(), &headers, peer.map(|Extension(peer)| peer));
    match session(&calls, form.get("key").unwrap_or_default()).await {
        Ok(session) => {
            let lives_s = state.app.config().server.session_s;
            let secure = is_secure(&state.app, &headers);
            let cookie = cookies::set_cookie(cookies::SESSION, &session, lives_s, secure);
            (StatusCode::SEE_OTHER, [(LOCATION, next.to_owned()), (SET_COOKIE, cookie)])
                .into_response()
        }
        Err(refused) => {
            let body = self::form(theme(&headers), next, Some(&refused), false);
            let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::FORBIDDEN);
            (status, body_headers(), body.into_string()).into_response()
        }
    }
}

/// The session that a key, a code or a link stands for.
async fn session(calls: &ApiCalls, given: &str) -> PageCallResult<String> {
    if is_session(given) {
        calls.with_bearer(given).get("/v1/stats").await?;
        return Ok(given.to_owned());
    }
    let code = match given.starts_with("code_") {
        true => given.to_owned(),
        false => {
            let own = calls.with_bearer(given);
            own.post("/v1/sign-in-codes", &Value::Null).await?.text("code").to_owned()
        }
    };
    let session = calls.post("/v1/sign-in", &json!({"code": code})).await?;
    Ok(session.text("key").to_owned())
}

pub(super) async fn sign_out(page: PageContext, _: ActionForm) -> Response {
    let gone = cookies::set_cookie(cookies::SESSION, "", 0, page.is_secure);
    (StatusCode::SEE_OTHER, [(LOCATION, "/sign-in".to_owned()), (SET_COOKIE, gone)]).into_response()
}

fn form(theme: &str, next: &str, refused: Option<&RefusedCall>, is_signed_in: bool) -> Markup {
    layout::bare(
        theme,
        "Sign in",
        &html! {
            main.narrow {
                p.brand { img src="/assets/icon.svg" alt="" width="28" height="28"; "Postrider" }
                @if is_signed_in {
                    section.card #signed-in {
                        h1 { "You are signed in" }
                        p { "A link that brought you here was not used. Sign out first to use it, or open it in another browser." }
                        p { a.button href=(next) { "Go on" } }
                    }
                } @else {
                    form.card.sign-in method="post" action="/sign-in" {
                        h1 { "Sign in" }
                        p.from-link role="status" hidden { "A link brought you here. Go on only if you asked for it." }
                        label for="key" { "API key or one-time code" }
                        input #key type="password" name="key" required autofocus autocomplete="off" spellcheck="false" placeholder="prk_… or code_…" aria-describedby="key-error";
                        p #key-error .error role="alert" { @if let Some(refused) = refused { (refused.detail) } }
                        input type="hidden" name="next" value=(next);
                        button.main { "Sign in" }
                        p.quiet { "A key shows what it may see, and stays on the server: your browser gets a session that ends by itself. "
                            code { "postrider keys sign-in" } " makes a link with a code." }
                    }
                }
            }
        },
    )
}
