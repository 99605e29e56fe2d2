//! Apple's push service (`POST /3/device/<token>`): HTTP/2 only, checks the provider token and every
//! header, and takes one request at a time on a connection until the first one was accepted.
//!
//! A device comes into being when first addressed. One whose token begins with `de` is a development
//! device: it lives in the sandbox environment, which is this server under the name `localhost`. One of
//! nothing but zeros is nobody's.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Version, header};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::api::Api;
use super::body::{self, ReadError};
use super::correlation::Correlation;
use super::counts::Flaw;
use super::flavour::Answer;
use super::listener::Line;
use super::service::{App, Arrival, Refused, header_text, now_s};
use super::target::{Detail, Kind, Last};

const BODY_MAX: usize = 16 * 1024;
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

type Refusal = (u16, &'static str);

pub(super) async fn receive(
    app: &App,
    line: &Line,
    parts: Parts,
    body: Incoming,
) -> Result<Result<Arrival, Refused>, ReadError> {
    let content = match body::read(body, BODY_MAX).await {
        Ok(content) => content,
        Err(ReadError::TooLarge) => return Ok(Err(refused((413, "PayloadTooLarge"), None))),
        Err(error) => return Err(error),
    };
    let id = header_text(&parts.headers, "apns-id").map(str::to_owned);
    Ok(match read(app, line, &parts, &content) {
        Ok((device, ttl_s)) => {
            let target = app.targets.get_or_put(Kind::Apns, &device, Detail::Device);
            let correlation = correlation(id.as_deref(), &content);
            target.remember(Last { method: parts.method, headers: parts.headers, body: content });
            Ok(Arrival { target, id: correlation, ttl_s, api: Some(Api::Apns) })
        }
        Err(refusal) => Err(refused(refusal, id.as_deref())),
    })
}

/// The id is a UUID that the sender chose: ours are delivery ids.
fn correlation(id: Option<&str>, content: &Bytes) -> Correlation {
    let bits = id.and_then(|id| u128::from_str_radix(&id.replace('-', ""), 16).ok());
    match bits {
        Some(bits) => Correlation::Delivery(bits.to_be_bytes()),
        None => Correlation::from_content(content),
    }
}

fn read(app: &App, line: &Line, parts: &Parts, content: &Bytes) -> Result<(String, u32), Refusal> {
    if parts.version != Version::HTTP_2 {
        return Err((505, "HttpVersionNotSupported"));
    }
    let token = parts.uri.path().strip_prefix("/3/device/").ok_or((404, "BadPath"))?;
    if parts.method != Method::POST {
        return Err((405, "MethodNotAllowed"));
    }
    if token.is_empty() {
        return Err((400, "MissingDeviceToken"));
    }
    let host = parts.uri.host().unwrap_or_default();
    let topic = header_text(&parts.headers, "apns-topic");
    let certificate = line.certificate.get();
    match certificate {
        Some(own) => app.certificates.check(own, host == "localhost", topic)?,
        None => {
            let authorization = header_text(&parts.headers, header::AUTHORIZATION.as_str());
            app.apple.check(authorization, &line.provider_token, app.now_s())?;
        }
    }
    let push_type = check_headers(&parts.headers, certificate.is_some())?;
    check_payload(content, push_type)?;
    let hex = token.len() % 2 == 0 && token.bytes().all(|b| b.is_ascii_hexdigit());
    let nobody = token.bytes().all(|b| b == b'0');
    if !hex || nobody || (token.starts_with("de") && host != "localhost") {
        return Err((400, "BadDeviceToken"));
    }
    Ok((token.to_owned(), ttl_s(&parts.headers)))
}

/// The push type. A certificate names an app by itself; a token does not.
fn check_headers(headers: &HeaderMap, has_certificate: bool) -> Result<&'static str, Refusal> {
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
    match (text("apns-priority").unwrap_or("10"), push_type) {
        ("5", _) => Ok(push_type),
        ("10" | "1", "background") => Err((400, "BadPriority")),
        ("10" | "1", _) => Ok(push_type),
        _ => Err((400, "BadPriority")),
    }
}

fn check_payload(content: &Bytes, push_type: &str) -> Result<(), Refusal> {
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

/// What is left of the notification's life as it arrives; 30 days where nobody says.
fn ttl_s(headers: &HeaderMap) -> u32 {
    match header_text(headers, "apns-expiration").and_then(|text| text.parse::<i64>().ok()) {
        None => 30 * 86_400,
        Some(at) => u32::try_from(at.saturating_sub(now_s()).max(0)).unwrap_or(u32::MAX),
    }
}

/// An answer in Apple's words to what a fault asks for.
pub(super) fn refuse(status: u16) -> Answer {
    let reason = match status {
        400 => "BadDeviceToken",
        401 | 403 => return answer((403, "InvalidProviderToken"), None),
        404 | 410 => return answer((410, "Unregistered"), None),
        413 => "PayloadTooLarge",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        500..=599 => "InternalServerError",
        _ => "Forbidden",
    };
    answer((status, reason), None)
}

pub(super) fn accept(id: &Correlation) -> Answer {
    let mut accepted = Answer::empty(200);
    if let Correlation::Delivery(bytes) = id {
        let hex = format!("{:032x}", u128::from_be_bytes(*bytes));
        let part = |from, to| hex.get(from..to).unwrap_or_default();
        let parts = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)];
        set_id(&mut accepted, &parts.join("-"));
    }
    accepted
}

fn answer((status, reason): Refusal, id: Option<&str>) -> Answer {
    let body = match status {
        410 => json!({ "reason": reason, "timestamp": now_s() * 1000 }),
        _ => json!({ "reason": reason }),
    };
    let mut answer = Answer::json(status, &body);
    if let Some(id) = id {
        set_id(&mut answer, id);
    }
    answer
}

fn set_id(answer: &mut Answer, id: &str) {
    answer.set(header::HeaderName::from_static("apns-id"), id);
}

fn refused(refusal: Refusal, id: Option<&str>) -> Refused {
    let flaw = if matches!(refusal.0, 403 | 429) { Flaw::Signature } else { Flaw::Request };
    Refused { kind: Kind::Apns, flaw, answer: answer(refusal, id) }
}
