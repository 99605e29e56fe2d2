//! `/sandbox/…`: sets up receivers and faults, and shows what was received. These calls have no faults and no limits.

use std::sync::{Arc, PoisonError};

use anyhow::Context as _;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::FakeAnswer;
use super::body::{self, FakeBody};
use super::correlation::CorrelationId;
use super::fakes::email::smtp::FakeSmtpStage;
use super::fakes::{ControlCall, FAKES, FakeEntry, FakeKind};
use super::fault::Fault;
use super::inbox::{api, guard};
use super::profile::FaultProfile;
use super::received::SHARDS;
use super::receiver::{self, ReceiverBehaviour};
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
    scheme: &str,
    parts: &Parts,
    body: Incoming,
) -> Response<FakeBody> {
    // What was received is there with its content, and orders change what others receive.
    if guard::is_foreign_page(state, scheme, parts) {
        return FakeAnswer::text(403, "pages of other sites may not call the sandbox\n").into();
    }
    let Ok(body) = body::read(body, BODY_MAX).await else {
        return FakeAnswer::text(413, "larger than 1 MiB\n").into();
    };
    match route(state, scheme, parts, &body) {
        Ok(response) => response,
        Err(error) => FakeAnswer::json(400, &json!({ "error": format!("{error:#}") })).into(),
    }
}

fn route(
    state: &SandboxState,
    scheme: &str,
    parts: &Parts,
    body: &Bytes,
) -> anyhow::Result<Response<FakeBody>> {
    let path = parts.uri.path().trim_end_matches('/');
    let rest = path.strip_prefix("/sandbox").unwrap_or_default().trim_start_matches('/');
    let path: Vec<_> = rest.split('/').collect();
    let call = ControlCall { state, scheme, parts, path: &path, body };
    if let Some(answer) = api::answer(&call) {
        return answer;
    }
    Ok(match (&parts.method, path.as_slice()) {
        (&Method::GET, [""]) => ok(&about(state)),
        (&Method::GET, ["ca.pem"]) => {
            FakeAnswer::with_body(200, "application/x-pem-file", state.ca_pem.clone()).into()
        }
        (&Method::GET, ["received"]) => ok(&state.received.summary()),
        (&Method::GET, ["received", "ids"]) => ids(state),
        (&Method::GET, ["received", id]) => one(state, id),
        (&Method::DELETE, ["received"]) => {
            state.received.clear();
            state.inbox.clear();
            FakeAnswer::empty(204).into()
        }
        (&Method::GET, ["last", kind, name]) => last(state, kind, name),
        (&Method::PUT, ["faults"]) => put_faults(state, body)?,
        _ => match state.fakes().find_map(|fake| fake.control(&call)) {
            Some(answer) => answer?.into(),
            None => put_receiver(&call)?,
        },
    })
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
        .chain(api::CALLS)
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
    let answer = FakeAnswer::with_body(200, "application/x-ndjson", "");
    let received = Arc::clone(&state.received);
    let shards = (0..SHARDS).map(move |shard| received.shard_as_ndjson(shard));
    Response::from(answer).map(|_| body::in_pieces(shards))
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

/// `PUT /sandbox/<path of a fake>/<name>`
fn put_receiver(call: &ControlCall<'_>) -> anyhow::Result<Response<FakeBody>> {
    let found = match (&call.parts.method, call.path) {
        (&Method::PUT, [path, name]) => {
            FAKES.iter().find(|entry| entry.setup_path == Some(path)).zip(Some(name))
        }
        _ => None,
    };
    let Some((FakeEntry { kind, .. }, name)) = found else {
        let error = json!({ "error": "no such call", "see": "GET /sandbox" });
        return Ok(FakeAnswer::json(404, &error).into());
    };
    let request = match call.body.is_empty() {
        true => ReceiverRequest::default(),
        false => serde_json::from_slice(call.body)?,
    };
    set_up(call.state, *kind, name, &request)?;
    let (https, http) = call.state.origins.get().cloned().unwrap_or_default();
    let path = receiver::path(*kind, name);
    Ok(ok(&json!({ "https": format!("{https}/{path}"), "http": format!("{http}/{path}") })))
}

/// Makes a receiver, or replaces the one of this name.
pub(super) fn set_up(
    state: &SandboxState,
    kind: FakeKind,
    name: &str,
    request: &ReceiverRequest,
) -> anyhow::Result<()> {
    let fake = state.fakes.iter().find(|(entry, _)| entry.kind == kind);
    let detail = fake.context("no fake of this kind")?.1.make_detail(request)?;
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
