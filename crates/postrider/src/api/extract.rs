//! Reads bodies and queries strictly: with a size limit and a timeout, and without unknown fields.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Query, Request, State};
use axum::http::HeaderMap;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use postrider_core::model::json_fields;
use serde::de::DeserializeOwned;

use super::SharedState;
use super::audit::{CallSummary, audited};
use super::caller_address::{PeerAddress, is_among};
use super::problem::Problem;
use super::request_limits::KeyCallPlace;

/// A query without unknown or malformed parameters.
pub(crate) struct StrictQuery<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<SharedState> for StrictQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &SharedState) -> Result<Self, Problem> {
        Query::try_from_uri(&parts.uri).map(|Query(value)| Self(value)).map_err(|rejection| {
            let detail = std::error::Error::source(&rejection)
                .map_or_else(|| rejection.to_string(), ToString::to_string);
            Problem::new(400, "invalid_query", "The query cannot be understood", detail)
        })
    }
}

/// What holds for the calls of one path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallRules {
    /// The path with the names of its parameters.
    pub(crate) path: &'static str,
    pub(crate) takes_query: bool,
    /// Its answer has no end of its own.
    pub(crate) is_stream: bool,
}

/// The deadline is a little later than that of the body, which has an error of its own.
const DEADLINE_AFTER: Duration = Duration::from_secs(1);

/// Refuses a query string where the call takes none (the caller made a mistake), limits the calls of an address and the
/// time of a call, and keeps answers out of caches.
pub(crate) async fn guarded(
    State((app, rules)): State<(SharedState, CallRules)>,
    mut request: Request,
    next: Next,
) -> Response {
    let place = KeyCallPlace::default();
    request.extensions_mut().insert(place.clone());
    let mut answer = match checked(&app, rules, &request) {
        Err(problem) => problem.into_response(),
        Ok(()) => {
            let (summary, state) = (CallSummary::of(&request), app.clone());
            let answer = async move {
                match rules.is_stream {
                    true => next.run(request).await,
                    false => in_time(&state, request, next).await,
                }
            };
            audited(&app, rules, &summary, answer).await
        }
    };
    answer.extensions_mut().insert(place);
    let headers = answer.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Limits the calls of an address, and the time of a call, where no key is needed.
pub(crate) async fn guarded_without_key(
    State(app): State<SharedState>,
    request: Request,
    next: Next,
) -> Response {
    match limit_address(&app, &request) {
        Ok(()) => in_time(&app, request, next).await,
        Err(problem) => problem.into_response(),
    }
}

async fn in_time(app: &SharedState, request: Request, next: Next) -> Response {
    let time = Duration::from_secs(app.config().server.request_timeout_s) + DEADLINE_AFTER;
    match tokio::time::timeout(time, next.run(request)).await {
        Ok(answer) => answer,
        Err(_) => Problem::late().into_response(),
    }
}

fn checked(app: &SharedState, rules: CallRules, request: &Request) -> Result<(), Problem> {
    if !rules.takes_query && request.uri().query().is_some_and(|query| !query.is_empty()) {
        let detail = "this call takes no query parameters";
        return Err(Problem::new(400, "invalid_query", "The query cannot be understood", detail));
    }
    limit_address(app, request)
}

/// Takes one of the requests of the caller's address.
fn limit_address(app: &SharedState, request: &Request) -> Result<(), Problem> {
    let config = app.config();
    let server = &config.server;
    let Some(peer) = request.extensions().get::<PeerAddress>() else { return Ok(()) };
    if server.address_requests_per_s <= 0.0 || is_among(&server.trusted_proxies, peer.ip) {
        return Ok(());
    }
    let taken =
        peer.gate.requests.take_at(server.address_requests_per_s, server.address_requests_burst);
    taken.map_err(|wait| {
        app.metrics.call_limited("address");
        Problem::too_many("this address calls more often than server.address_requests_per_s", wait)
    })
}

/// The raw bytes of a JSON body.
pub(crate) struct RawJson(pub Bytes);

impl FromRequest<SharedState> for RawJson {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &SharedState) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        require_type(&parts.headers, &["application/json"])?;
        read(&parts.headers, body, app).await.map(Self)
    }
}

/// The longest [`SmallBody`].
const SMALL_BODY_MAX: usize = 1024;

/// The few bytes of JSON that a browser sends, as JSON or as plain text.
pub(crate) struct SmallBody(pub Bytes);

impl FromRequest<SharedState> for SmallBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &SharedState) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        require_type(&parts.headers, &["text/plain", "application/json"])?;
        read_at_most(SMALL_BODY_MAX, &parts.headers, body, app).await.map(Self)
    }
}

/// A JSON body as a type. An empty body stands for `{}`.
pub(crate) struct JsonBody<T>(pub T);

impl<T: DeserializeOwned> FromRequest<SharedState> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &SharedState) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let bytes = read(&parts.headers, body, app).await?;
        if !bytes.is_empty() {
            require_type(&parts.headers, &["application/json"])?;
        }
        parse(if bytes.is_empty() { b"{}" } else { &bytes }).map(Self)
    }
}

pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let text = std::str::from_utf8(bytes).ok().filter(|_| error.is_data());
        match text.map(|text| json_fields::read::<T>(text, "")) {
            Some(Err(error)) if error.field.is_empty() => {
                Problem::field("body", error.found, error.allowed)
            }
            Some(Err(error)) => Problem::field(error.field, error.found, error.allowed),
            _ => Problem::new(400, "invalid_json", "The body is not valid JSON", error.to_string()),
        }
    })
}

/// Accepts a missing content type: many small clients send none.
pub(crate) fn require_type(headers: &HeaderMap, allowed: &[&str]) -> Result<(), Problem> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let text = value.to_str().unwrap_or_default();
    let kind = text.split(';').next().unwrap_or_default().trim();
    if allowed.iter().any(|a| a.eq_ignore_ascii_case(kind)) {
        return Ok(());
    }
    let detail = format!("found {kind:?}; send `Content-Type: {}`", allowed[0]);
    Err(Problem::new(415, "media_type", "The content type is not supported", detail))
}

async fn read(headers: &HeaderMap, body: Body, app: &SharedState) -> Result<Bytes, Problem> {
    read_at_most(app.config().server.body_bytes_max, headers, body, app).await
}

pub(crate) async fn read_at_most(
    limit: usize,
    headers: &HeaderMap,
    body: Body,
    app: &SharedState,
) -> Result<Bytes, Problem> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: u64| length > limit as u64) {
        return Err(Problem::too_large(limit));
    }
    let timeout = Duration::from_secs(app.config().server.request_timeout_s);
    match tokio::time::timeout(timeout, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::too_large(limit)),
        Ok(Err(_)) => {
            let detail = "the connection ended before the body was complete";
            Err(Problem::new(400, "incomplete", "The body is incomplete", detail))
        }
        Err(_) => Err(Problem::timeout("the body did not arrive in time")),
    }
}
