//! Apple's push service (`POST /3/device/<token>`): HTTP/2 only, checks the provider token and every header, and
//! takes one request at a time on a connection until it accepts one.
//!
//! A device is made by its first request. A token that begins with `de` is of a development device, which belongs to
//! the sandbox environment: this server under the name `localhost`. A token of zeros is of no device.

pub(crate) mod certificate;
mod provider_token;

use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, Method, Version};
use serde_json::{Value, json};

use super::{CheckedRequest, ControlCall, FakeCall, FakeCheckResult, FakeEntry, FakeKind};
use super::{FakeProvider, RejectedRequest};
use crate::Sandbox;
use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::counts::CheckFailure;
use crate::inbox::view::{InboxNotification, InboxView, text_of};
use crate::listener::ConnectionControl;
use crate::sample::{ChannelSample, ShownId, shown_header};
use crate::service::{SandboxState, header_text, now_s};
use certificate::{CertificateRequest, FakeApnsCertificates};
use provider_token::{FakeProviderTokens, KEY_ID, TEAM};

const COLLAPSE_ID_MAX: usize = 64;
/// Push types with what each adds to the topic.
const TYPES: [(&str, &str); 11] = [
    ("alert", ""),
    ("background", ""),
    ("voip", ".voip"),
    ("complication", ".complication"),
    ("fileprovider", ".pushkit.fileprovider"),
    ("location", ".location-query"),
    ("liveactivity", ".push-type.liveactivity"),
    ("pushtotalk", ".voip-ptt"),
    ("widgets", ".push-type.widgets"),
    ("controls", ".push-type.controls"),
    ("mdm", ""),
];

/// Status and reason.
type FakeApnsRefusal = (u16, &'static str);

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("apns"),
    make: |_| Ok(vec![Box::new(FakeApns::default())]),
    body_max: 16 * 1024,
    setup_path: Some("apns"),
    control_calls: &[
        "PUT /sandbox/apns/<token> {faults, script}",
        "GET /sandbox/apns/key",
        "GET /sandbox/apns/certificate?topic=<bundle id>&environment=<production|sandbox|both>",
    ],
    sample: ChannelSample {
        channel: "apns",
        shown_id: ShownId::Delivery,
        ttl: ("apns-expiration", |request| shown_header(request, "apns-expiration")),
        name: |_, number| format!("{:064x}", number + 1),
        address: |_, token| json!({"channel": "apns", "token": token, "topic": "example.shop.app"}),
    },
    show: |shown| {
        let payload = shown.json();
        let alert = &payload["aps"]["alert"];
        let own = payload.as_object().into_iter().flatten().filter(|(name, _)| *name != "aps");
        let data: serde_json::Map<_, _> = own.map(|(k, v)| (k.clone(), v.clone())).collect();
        let facts = ["apns-push-type", "apns-priority", "apns-expiration", "apns-collapse-id"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), shown.header(name)?.to_owned())));
        InboxView::notification(InboxNotification {
            app: shown.header("apns-topic").unwrap_or("iPhone").to_owned(),
            heading: text_of(&alert["title"]),
            body: alert.as_str().map_or_else(|| text_of(&alert["body"]), str::to_owned),
            link: payload["url"].as_str().map(str::to_owned),
            is_silent: alert.is_null(),
            facts: facts.collect(),
            data: Some(Value::Object(data)).filter(|data| data != &json!({})),
            ..InboxNotification::default()
        })
    },
    server_config: |sandbox, folder| {
        let key = sandbox.apns_key()["key"].as_str().unwrap_or_default().to_owned();
        let settings = format!(
            "team_id = \"{TEAM}\"\nkey_id = \"{KEY_ID}\"\n\
             sandbox_endpoint = \"https://localhost:{}\"\n{}",
            sandbox.https.port(),
            sandbox.endpoint(),
        );
        sandbox.account(folder, ["apple", "apns", &key], &settings)
    },
};

#[derive(Default)]
struct FakeApns {
    tokens: FakeProviderTokens,
    certificates: FakeApnsCertificates,
}

impl FakeProvider for FakeApns {
    fn serves(&self, path: &str) -> bool {
        path.starts_with("/3/")
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        let id = call.header("apns-id");
        let (device, ttl_s) = self.read(call).map_err(|refusal| rejected(refusal, id))?;
        Ok(call.checked(ENTRY.kind, &device, correlation(id, call.body), ttl_s))
    }

    fn accept(&self, _: &SandboxState, request: &CheckedRequest, _: u64) -> FakeAnswer {
        let accepted = FakeAnswer::empty(200);
        let CorrelationId::Delivery(bytes) = &request.id else { return accepted };
        let hex = format!("{:032x}", u128::from_be_bytes(*bytes));
        let part = |from, to| hex.get(from..to).unwrap_or_default();
        let parts = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)];
        accepted.with("apns-id", &parts.join("-"))
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
        let refusal = match status {
            400 => (400, "BadDeviceToken"),
            401 | 403 => (403, "InvalidProviderToken"),
            404 | 410 => (410, "Unregistered"),
            413 => (413, "PayloadTooLarge"),
            429 => (429, "TooManyRequests"),
            503 => (503, "ServiceUnavailable"),
            500..=599 => (status, "InternalServerError"),
            _ => (status, "Forbidden"),
        };
        answer(refusal)
    }

    /// Apple knows the sender by its certificate before the first request.
    fn is_serial(&self, connection: &ConnectionControl) -> bool {
        connection.certificate.get().is_none()
    }

    fn control(&self, call: &ControlCall<'_>) -> Option<anyhow::Result<FakeAnswer>> {
        let given = match (&call.parts.method, call.path) {
            (&Method::GET, ["apns", "key"]) => {
                self.tokens.credential().context("no key could be made")
            }
            (&Method::GET, ["apns", "certificate"]) => {
                let query = call.parts.uri.query().unwrap_or_default();
                CertificateRequest::from_query(query)
                    .and_then(|request| self.certificates.issue(&request))
            }
            _ => return None,
        };
        Some(given.map(|value| FakeAnswer::json(200, &value)))
    }
}

impl Sandbox {
    /// The same as `GET /sandbox/apns/key`.
    pub fn apns_key(&self) -> Value {
        let fake = self.state.fake::<FakeApns>();
        fake.and_then(|fake| fake.tokens.credential()).unwrap_or_default()
    }

    /// The same as `GET /sandbox/apns/certificate`.
    pub fn apns_certificate(&self, request: &CertificateRequest) -> Value {
        let fake = self.state.fake::<FakeApns>();
        fake.and_then(|fake| fake.certificates.issue(request).ok()).unwrap_or_default()
    }
}

/// The id is a UUID that the sender chose: ours are delivery ids.
fn correlation(id: Option<&str>, content: &Bytes) -> CorrelationId {
    let bits = id.and_then(|id| u128::from_str_radix(&id.replace('-', ""), 16).ok());
    match bits {
        Some(bits) => CorrelationId::Delivery(bits.to_be_bytes()),
        None => CorrelationId::from_content(content),
    }
}

impl FakeApns {
    /// The device, and for how many seconds the notification is still valid.
    fn read(&self, call: &FakeCall<'_>) -> Result<(String, u32), FakeApnsRefusal> {
        let FakeCall { state, connection, parts, body } = call;
        if parts.version != Version::HTTP_2 {
            return Err((505, "HttpVersionNotSupported"));
        }
        let token = call.path().strip_prefix("/3/device/").ok_or((404, "BadPath"))?;
        if !call.is_post() {
            return Err((405, "MethodNotAllowed"));
        }
        if token.is_empty() {
            return Err((400, "MissingDeviceToken"));
        }
        let host = parts.uri.host().unwrap_or_default();
        let topic = call.header("apns-topic");
        let certificate = connection.certificate.get();
        match certificate {
            Some(own) => self.certificates.check(own, host == "localhost", topic)?,
            None => self.tokens.check(call.header("authorization"), connection, state.now_s())?,
        }
        let push_type = check_headers(&parts.headers, certificate.is_some())?;
        check_payload(body, push_type)?;
        let hex = token.len() % 2 == 0 && token.bytes().all(|b| b.is_ascii_hexdigit());
        let nobody = token.bytes().all(|b| b == b'0');
        if !hex || nobody || (token.starts_with("de") && host != "localhost") {
            return Err((400, "BadDeviceToken"));
        }
        Ok((token.to_owned(), ttl_s(&parts.headers)))
    }
}

/// The push type. Only a request with a certificate may omit the topic.
fn check_headers(
    headers: &HeaderMap,
    has_certificate: bool,
) -> Result<&'static str, FakeApnsRefusal> {
    let single = [
        "apns-topic",
        "apns-push-type",
        "apns-priority",
        "apns-expiration",
        "apns-id",
        "apns-collapse-id",
    ];
    if single.iter().any(|name| headers.get_all(*name).iter().count() > 1) {
        return Err((400, "DuplicateHeaders"));
    }
    let text = |name| header_text(headers, name);
    if text("apns-id").is_some_and(|id| !is_uuid(id)) {
        return Err((400, "BadMessageId"));
    }
    if text("apns-expiration").is_some_and(|at| at.parse::<u64>().is_err()) {
        return Err((400, "BadExpirationDate"));
    }
    if headers.get("apns-collapse-id").is_some_and(|id| id.len() > COLLAPSE_ID_MAX) {
        return Err((400, "BadCollapseId"));
    }
    let topic = match text("apns-topic") {
        None if !has_certificate => return Err((400, "MissingTopic")),
        topic => topic.unwrap_or("com.example.app"),
    };
    if topic.is_empty() || !topic.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
    {
        return Err((400, "BadTopic"));
    }
    let named = text("apns-push-type").unwrap_or("alert");
    let known = TYPES.into_iter().find(|(name, _)| *name == named);
    let (push_type, suffix) = known.ok_or((400, "InvalidPushType"))?;
    if !topic.ends_with(suffix) {
        return Err((400, "TopicDisallowed"));
    }
    match text("apns-priority").unwrap_or("10") {
        "5" => Ok(push_type),
        "10" | "1" if push_type != "background" => Ok(push_type),
        _ => Err((400, "BadPriority")),
    }
}

fn check_payload(content: &Bytes, push_type: &str) -> Result<(), FakeApnsRefusal> {
    if content.is_empty() {
        return Err((400, "PayloadEmpty"));
    }
    let max = if push_type == "voip" { 5120 } else { 4096 };
    if content.len() > max {
        return Err((413, "PayloadTooLarge"));
    }
    let payload: Option<Value> = serde_json::from_slice(content).ok();
    payload.filter(Value::is_object).map(|_| ()).ok_or((400, "PayloadEmpty"))
}

fn is_uuid(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| {
            if dashes.contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() }
        })
}

/// For how many seconds the notification is valid when it arrives; 30 days if it does not say.
fn ttl_s(headers: &HeaderMap) -> u32 {
    match header_text(headers, "apns-expiration").and_then(|text| text.parse::<i64>().ok()) {
        None => 30 * 86_400,
        Some(at) => u32::try_from(at.saturating_sub(now_s()).max(0)).unwrap_or(u32::MAX),
    }
}

fn answer((status, reason): FakeApnsRefusal) -> FakeAnswer {
    let body = match status {
        410 => json!({ "reason": reason, "timestamp": now_s() * 1000 }),
        _ => json!({ "reason": reason }),
    };
    FakeAnswer::json(status, &body)
}

fn rejected(refusal: FakeApnsRefusal, id: Option<&str>) -> Box<RejectedRequest> {
    let is_credential = matches!(refusal.0, 403 | 429);
    let failure = if is_credential { CheckFailure::Signature } else { CheckFailure::Request };
    let answer = answer(refusal);
    RejectedRequest::new(
        failure,
        if let Some(id) = id { answer.with("apns-id", id) } else { answer },
    )
}
