//! `/sandbox/…`: setting up targets and faults, and asking what was received. Never met by a
//! fault or a limit itself.

use std::sync::{Arc, PoisonError};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD_INDIFFERENT as B64;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response, header};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::{self, Outgoing};
use super::certificate::CertificateWish;
use super::correlation::Correlation;
use super::fault::Fault;
use super::flavour::{Answer, Flavour};
use super::hook::parse_secret;
use super::profile::Profile;
use super::service::{App, header_text};
use super::smtp::Stage;
use super::target::{Detail, Kind, Setup, SubscriptionInfo};

const BODY_MAX: usize = 1 << 20;
const SUBSCRIPTIONS_MAX: usize = 1_000_000;

/// The wish for one subscription or many; as JSON body or as query.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SubscriptionWish {
    pub count: Option<usize>,
    #[serde(default)]
    pub service: Flavour,
    /// A fault profile for these subscriptions alone.
    pub faults: Option<String>,
    #[serde(default)]
    pub script: Vec<Fault>,
    /// The only VAPID key that may send to them, in base64url.
    pub application_server_key: Option<String>,
}

/// How a webhook or plain HTTP receiver is to be set up.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiverWish {
    /// `whsec_…`; only webhook receivers have one.
    pub secret: Option<String>,
    /// A fault profile for this receiver alone.
    pub faults: Option<String>,
    #[serde(default)]
    pub script: Vec<Fault>,
    /// Where in a conversation a mailbox fails: mail, rcpt, data or dot.
    pub stage: Option<Stage>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultsWish {
    profile: String,
}

pub(super) async fn handle(app: &App, parts: &Parts, body: Incoming) -> Response<Outgoing> {
    let Ok(content) = body::read(body, BODY_MAX).await else {
        return Answer::text(413, "larger than 1 MiB\n").into();
    };
    match route(app, parts, &content) {
        Ok(response) => response,
        Err(error) => Answer::json(400, &json!({ "error": format!("{error:#}") })).into(),
    }
}

fn route(app: &App, parts: &Parts, content: &Bytes) -> anyhow::Result<Response<Outgoing>> {
    let path = parts.uri.path().trim_end_matches('/');
    let rest = path.strip_prefix("/sandbox").unwrap_or_default().trim_start_matches('/');
    let segments: Vec<_> = rest.split('/').collect();
    Ok(match (&parts.method, segments.as_slice()) {
        (&Method::GET, [""]) => ok(&about(app)),
        (&Method::GET, ["ca.pem"]) => pem(app),
        (&Method::GET, ["received"]) => ok(&app.received.summary()),
        (&Method::GET, ["received", "ids"]) => ids(app),
        (&Method::GET, ["received", id]) => one(app, id),
        (&Method::DELETE, ["received"]) => {
            app.received.clear();
            Answer::empty(204).into()
        }
        (&Method::POST, ["subscriptions"]) => subscriptions(app, parts, content)?,
        (&Method::PUT, ["hooks", name]) => put_receiver(app, Kind::Hook, name, content)?,
        (&Method::PUT, ["http", name]) => put_receiver(app, Kind::Http, name, content)?,
        (&Method::PUT, ["email", name]) => put_receiver(app, Kind::Email, name, content)?,
        (&Method::PUT, ["sms", name]) => put_receiver(app, Kind::Sms, name, content)?,
        (&Method::PUT, ["fcm", name]) => put_receiver(app, Kind::Fcm, name, content)?,
        (&Method::PUT, ["apns", name]) => put_receiver(app, Kind::Apns, name, content)?,
        (&Method::GET, ["fcm", "service-account"]) => {
            let origin = app.origins.get().map_or("", |(https, _)| https);
            ok(&app.google.service_account(origin).context("no key could be made")?)
        }
        (&Method::GET, ["fcm", "tokens"]) => ok(&json!({ "granted": app.google.granted() })),
        (&Method::GET, ["apns", "key"]) => {
            ok(&app.apple.credential().context("no key could be made")?)
        }
        (&Method::GET, ["apns", "certificate"]) => {
            let wish = CertificateWish::from_query(parts.uri.query().unwrap_or_default())?;
            ok(&app.certificates.issue(&wish)?)
        }
        (&Method::PUT, ["chat", name]) => put_receiver(app, Kind::Chat, name, content)?,
        (&Method::GET, ["last", kind, name]) => last(app, kind, name),
        (&Method::PUT, ["faults"]) => put_faults(app, content)?,
        _ => Answer::json(404, &json!({ "error": "no such call", "see": "GET /sandbox" })).into(),
    })
}

fn about(app: &App) -> Value {
    let (https, http) = app.origins.get().cloned().unwrap_or_default();
    json!({
        "https": https,
        "http": http,
        "seed": app.seed,
        "faults": *app.profile(),
        "calls": [
            "POST /sandbox/subscriptions {count, service, faults, script, applicationServerKey}",
            "PUT /sandbox/hooks/<name> {secret, faults, script}",
            "PUT /sandbox/http/<name> {faults, script}",
            "PUT /sandbox/email/<address> {faults, script, stage}",
            "PUT /sandbox/sms/<phone> {faults, script}",
            "PUT /sandbox/chat/<slack|discord|teams>.<name> {faults, script}",
            "PUT /sandbox/fcm/<token> {faults, script}",
            "GET /sandbox/fcm/service-account",
            "GET /sandbox/fcm/tokens",
            "PUT /sandbox/apns/<token> {faults, script}",
            "GET /sandbox/apns/key",
            "GET /sandbox/apns/certificate?topic=<bundle id>&environment=<production|sandbox|both>",
            "PUT /sandbox/faults {profile}",
            "GET /sandbox/received",
            "GET /sandbox/received/ids",
            "GET /sandbox/received/<id>",
            "DELETE /sandbox/received",
            "GET /sandbox/last/<push|hook|http|email|sms|chat|fcm|apns>/<name>",
            "GET /sandbox/ca.pem",
        ],
    })
}

fn ids(app: &App) -> Response<Outgoing> {
    let mut response = Response::new(Outgoing::Ids(Arc::clone(&app.received), 0));
    let kind = header::HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn one(app: &App, id: &str) -> Response<Outgoing> {
    let found = app.received.find(&Correlation::from_text(id));
    let status = if found.is_empty() { 404 } else { 200 };
    Answer::json(status, &json!({ "id": id, "records": found })).into()
}

fn last(app: &App, kind: &str, name: &str) -> Response<Outgoing> {
    match app.targets.get(&format!("{kind}/{name}")) {
        Some(target) => ok(&target.last_as_json()),
        None => Answer::json(404, &json!({ "error": "no such target" })).into(),
    }
}

fn pem(app: &App) -> Response<Outgoing> {
    let mut answer = Answer::empty(200);
    answer.body = app.ca_pem.clone().into();
    answer.set(header::CONTENT_TYPE, "application/x-pem-file");
    answer.into()
}

fn subscriptions(app: &App, parts: &Parts, content: &Bytes) -> anyhow::Result<Response<Outgoing>> {
    let wish = match (content.is_empty(), parts.uri.query()) {
        (false, _) => serde_json::from_slice(content)?,
        (true, Some(query)) => SubscriptionWish::from_query(query)?,
        (true, None) => SubscriptionWish::default(),
    };
    let made = subscribe(app, &wish)?;
    if header_text(&parts.headers, "accept").is_some_and(|a| a.contains("ndjson")) {
        let lines: Result<String, _> =
            made.iter().map(|s| serde_json::to_string(s).map(|line| line + "\n")).collect();
        let mut answer = Answer::empty(201);
        answer.body = lines?.into();
        answer.set(header::CONTENT_TYPE, "application/x-ndjson");
        return Ok(answer.into());
    }
    let value = match (wish.count, made.as_slice()) {
        (None, [single]) => json!(single),
        _ => json!(made),
    };
    Ok(Answer::json(201, &value).into())
}

/// Makes the subscriptions that are wished for.
pub(super) fn subscribe(
    app: &App,
    wish: &SubscriptionWish,
) -> anyhow::Result<Vec<SubscriptionInfo>> {
    let count = wish.count.unwrap_or(1);
    anyhow::ensure!(count <= SUBSCRIPTIONS_MAX, "at most {SUBSCRIPTIONS_MAX} at a time");
    let setup = setup(wish.faults.as_deref(), &wish.script)?;
    let sender = wish.application_server_key.as_deref().map(parse_public_key).transpose()?;
    let origin = app.origins.get().map_or("", |(https, _)| https);
    (0..count)
        .map(|_| {
            let target = app.targets.subscribe(wish.service, setup.clone(), sender)?;
            target.subscription_info(origin).context("not a subscription")
        })
        .collect()
}

impl SubscriptionWish {
    fn from_query(query: &str) -> anyhow::Result<Self> {
        let mut wish = Self::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "count" => wish.count = Some(value.parse().context("count")?),
                "service" => wish.service = serde_json::from_value(json!(value))?,
                "faults" => wish.faults = Some(value.into_owned()),
                "script" => {
                    let words: Result<_, _> = value.split(',').map(str::parse).collect();
                    wish.script = words?;
                }
                "applicationServerKey" => wish.application_server_key = Some(value.into_owned()),
                other => anyhow::bail!("unknown parameter {other:?}"),
            }
        }
        Ok(wish)
    }
}

fn put_receiver(
    app: &App,
    kind: Kind,
    name: &str,
    content: &Bytes,
) -> anyhow::Result<Response<Outgoing>> {
    let wish =
        if content.is_empty() { ReceiverWish::default() } else { serde_json::from_slice(content)? };
    set_up(app, kind, name, &wish)?;
    let (https, http) = app.origins.get().cloned().unwrap_or_default();
    let path = format!("/{}/{name}", kind.name());
    Ok(ok(&json!({ "https": format!("{https}{path}"), "http": format!("{http}{path}") })))
}

/// Makes a webhook or plain HTTP receiver, or sets it up anew.
pub(super) fn set_up(app: &App, kind: Kind, name: &str, wish: &ReceiverWish) -> anyhow::Result<()> {
    let setup = Setup { stage: wish.stage, ..setup(wish.faults.as_deref(), &wish.script)? };
    let secret = wish.secret.as_deref().map(parse_secret).transpose()?.map(Box::new);
    let detail = match kind {
        Kind::Hook => Detail::Hook { secret },
        Kind::Push => anyhow::bail!("subscriptions are made by POST /sandbox/subscriptions"),
        _ if secret.is_some() => anyhow::bail!("only a webhook receiver takes a secret"),
        Kind::Http => Detail::Http,
        Kind::Email => Detail::Mailbox,
        Kind::Sms => Detail::Phone,
        Kind::Chat => Detail::Chat,
        Kind::Fcm | Kind::Apns => Detail::Device,
    };
    app.targets.put(kind, name, setup, detail);
    Ok(())
}

fn put_faults(app: &App, content: &Bytes) -> anyhow::Result<Response<Outgoing>> {
    let wish: FaultsWish = serde_json::from_slice(content)?;
    let profile = Arc::new(named_profile(&wish.profile)?);
    *app.profile.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&profile);
    Ok(ok(&json!(*profile)))
}

fn setup(faults: Option<&str>, script: &[Fault]) -> anyhow::Result<Setup> {
    let profile = faults.map(named_profile).transpose()?.map(Arc::new);
    Ok(Setup { script: script.to_vec(), profile, stage: None })
}

/// Over HTTP only built-in names: a request must not read files.
fn named_profile(name: &str) -> anyhow::Result<Profile> {
    Profile::built_in(name).with_context(|| format!("no built-in fault profile {name:?}"))
}

fn parse_public_key(text: &str) -> anyhow::Result<[u8; 65]> {
    let bytes = B64.decode(text).context("applicationServerKey is not base64url")?;
    bytes.try_into().ok().context("applicationServerKey is not 65 bytes long")
}

fn ok(value: &Value) -> Response<Outgoing> {
    Answer::json(200, value).into()
}
