//! `/sandbox/…`: sets up receivers and faults, and says what was received. Meets no fault and no limit itself.

use std::sync::{Arc, PoisonError};

use anyhow::Context as _;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, header};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::FakeAnswer;
use super::body::{self, FakeBody};
use super::correlation::CorrelationId;
use super::fakes::email::smtp::FakeSmtpStage;
use super::fakes::webhook::parse_secret;
use super::fakes::{ControlCall, FAKES, FakeEntry, FakeKind};
use super::fault::Fault;
use super::profile::FaultProfile;
use super::receiver::{self, ReceiverBehaviour, ReceiverDetail};
use super::service::SandboxState;

const BODY_MAX: usize = 1 << 20;
/// How a receiver is set up.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiverRequest {
    /// `whsec_…`; only webhook receivers have one.
    pub secret: Option<String>,
    /// A fault profile for this receiver alone.
    pub faults: Option<String>,
    #[serde(default)]
    pub script: Vec<Fault>,
    /// Where in a conversation a mailbox fails: mail, rcpt, data or dot.
    pub stage: Option<FakeSmtpStage>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultsRequest {
    profile: String,
}

pub(super) async fn handle(
    state: &SandboxState,
    parts: &Parts,
    body: Incoming,
) -> Response<FakeBody> {
    let Ok(body) = body::read(body, BODY_MAX).await else {
        return FakeAnswer::text(413, "larger than 1 MiB\n").into();
    };
    match route(state, parts, &body) {
        Ok(response) => response,
        Err(error) => FakeAnswer::json(400, &json!({ "error": format!("{error:#}") })).into(),
    }
}

fn route(state: &SandboxState, parts: &Parts, body: &Bytes) -> anyhow::Result<Response<FakeBody>> {
    let path = parts.uri.path().trim_end_matches('/');
    let rest = path.strip_prefix("/sandbox").unwrap_or_default().trim_start_matches('/');
    let path: Vec<_> = rest.split('/').collect();
    let call = ControlCall { state, parts, path: &path, body };
    Ok(match (&parts.method, path.as_slice()) {
        (&Method::GET, [""]) => ok(&about(state)),
        (&Method::GET, ["ca.pem"]) => pem(state),
        (&Method::GET, ["received"]) => ok(&state.received.summary()),
        (&Method::GET, ["received", "ids"]) => ids(state),
        (&Method::GET, ["received", id]) => one(state, id),
        (&Method::DELETE, ["received"]) => {
            state.received.clear();
            FakeAnswer::empty(204).into()
        }
        (&Method::GET, ["last", kind, name]) => last(state, kind, name),
        (&Method::PUT, ["faults"]) => put_faults(state, body)?,
        _ => match state.fakes().find_map(|fake| fake.control(&call)) {
            Some(answer) => answer?.into(),
            None => match put_receiver(&call)? {
                Some(answer) => answer,
                None => not_found("no such call"),
            },
        },
    })
}

fn not_found(error: &str) -> Response<FakeBody> {
    FakeAnswer::json(404, &json!({ "error": error, "see": "GET /sandbox" })).into()
}

fn about(state: &SandboxState) -> Value {
    let (https, http) = state.origins.get().cloned().unwrap_or_default();
    let kinds: Vec<_> = FakeKind::all().map(FakeKind::name).collect();
    let last = format!("GET /sandbox/last/<{}>/<name>", kinds.join("|"));
    let of_fakes = FAKES.iter().flat_map(|entry| entry.control_calls).map(|call| &**call);
    let calls: Vec<_> = of_fakes
        .chain([
            "PUT /sandbox/faults {profile}",
            "GET /sandbox/received",
            "GET /sandbox/received/ids",
            "GET /sandbox/received/<id>",
            "DELETE /sandbox/received",
            &last,
            "GET /sandbox/ca.pem",
        ])
        .collect();
    json!({
        "https": https,
        "http": http,
        "seed": state.seed,
        "faults": *state.profile(),
        "calls": calls,
    })
}

fn ids(state: &SandboxState) -> Response<FakeBody> {
    let mut response = Response::new(FakeBody::Ids(Arc::clone(&state.received), 0));
    let kind = header::HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn one(state: &SandboxState, id: &str) -> Response<FakeBody> {
    let found = state.received.find(&CorrelationId::from_text(id));
    let status = if found.is_empty() { 404 } else { 200 };
    FakeAnswer::json(status, &json!({ "id": id, "records": found })).into()
}

fn last(state: &SandboxState, kind: &str, name: &str) -> Response<FakeBody> {
    match state.receivers.get(&format!("{kind}/{name}")) {
        Some(receiver) => ok(&receiver.last_as_json()),
        None => FakeAnswer::json(404, &json!({ "error": "no such target" })).into(),
    }
}

fn pem(state: &SandboxState) -> Response<FakeBody> {
    FakeAnswer::with_body(200, "application/x-pem-file", state.ca_pem.clone()).into()
}

/// `PUT /sandbox/<path of a fake>/<name>`
fn put_receiver(call: &ControlCall<'_>) -> anyhow::Result<Option<Response<FakeBody>>> {
    let (&Method::PUT, [path, name]) = (&call.parts.method, call.path) else { return Ok(None) };
    let entry = FAKES.iter().find(|entry| entry.setup_path == Some(path));
    let Some(FakeEntry { kind, .. }) = entry else { return Ok(None) };
    let request = match call.body.is_empty() {
        true => ReceiverRequest::default(),
        false => serde_json::from_slice(call.body)?,
    };
    set_up(call.state, *kind, name, &request)?;
    let (https, http) = call.state.origins.get().cloned().unwrap_or_default();
    let path = receiver::path(*kind, name);
    Ok(Some(ok(&json!({ "https": format!("{https}/{path}"), "http": format!("{http}/{path}") }))))
}

/// Makes a receiver, or sets it up anew.
pub(super) fn set_up(
    state: &SandboxState,
    kind: FakeKind,
    name: &str,
    request: &ReceiverRequest,
) -> anyhow::Result<()> {
    let detail = match (kind, request.secret.as_deref()) {
        (FakeKind::PUSH, _) => {
            anyhow::bail!("subscriptions are made by POST /sandbox/subscriptions")
        }
        (FakeKind::HOOK, Some(secret)) => ReceiverDetail::Signed(Box::new(parse_secret(secret)?)),
        (_, Some(_)) => anyhow::bail!("only a webhook receiver takes a secret"),
        (_, None) => ReceiverDetail::Plain,
    };
    let behaviour = behaviour(request.faults.as_deref(), &request.script)?;
    let behaviour = ReceiverBehaviour { stage: request.stage, ..behaviour };
    state.receivers.put(kind, name, behaviour, detail);
    Ok(())
}

fn put_faults(state: &SandboxState, body: &Bytes) -> anyhow::Result<Response<FakeBody>> {
    let request: FaultsRequest = serde_json::from_slice(body)?;
    let profile = Arc::new(named_profile(&request.profile)?);
    *state.profile.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&profile);
    Ok(ok(&json!(*profile)))
}

pub(crate) fn behaviour(
    faults: Option<&str>,
    script: &[Fault],
) -> anyhow::Result<ReceiverBehaviour> {
    let profile = faults.map(named_profile).transpose()?.map(Arc::new);
    Ok(ReceiverBehaviour { script: script.to_vec(), profile, stage: None })
}

/// Over HTTP only built-in names: a request must not read files.
fn named_profile(name: &str) -> anyhow::Result<FaultProfile> {
    FaultProfile::built_in(name).with_context(|| format!("no built-in fault profile {name:?}"))
}

fn ok(value: &Value) -> Response<FakeBody> {
    FakeAnswer::json(200, value).into()
}
