//! ntfy: `POST /` with a message as JSON and `GET /v1/health`, as far as a sender sees them.

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use serde_json::{Map, Value, json};

use super::{CheckedRequest, FakeCall, FakeCheckResult, FakeEntry, FakeKind};
use super::{FakeProvider, RejectedRequest};
use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::inbox::view::{InboxNotification, InboxView, text_of};
use crate::sample::{ChannelSample, ShownId};
use crate::service::{SandboxState, header_text};

const TOPIC_MAX: usize = 64;
const MESSAGE_MAX: usize = 4096;
/// Every other token is unknown, and nobody publishes without one.
const TOKEN: &str = "tk_sandbox0123456789abcdefghijkl";
/// Names of ntfy's own pages.
const RESERVED: [&str; 4] = ["docs", "static", "file", "app"];
const CACHED_S: i64 = 12 * 3600;
const NOT_A_MESSAGE: (u32, &str) = (40_017, "invalid request: request body must be message JSON");

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("ntfy"),
    make: |_| Ok(vec![Box::new(FakeNtfy)]),
    body_max: 1 << 20,
    setup_path: Some("ntfy"),
    control_calls: &["PUT /sandbox/ntfy/<topic> {faults, script}"],
    sample: ChannelSample {
        channel: "ntfy",
        shown_id: ShownId::Nothing,
        ttl: ("none", |_| None),
        name: |_, number| format!("sandbox-{number}"),
        address: |_, topic| json!({"channel": "ntfy", "topic": topic}),
    },
    show: |shown| {
        let fields = shown.json();
        let actions = fields["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let priority = fields["priority"].as_u64().map(|p| ("priority".to_owned(), p.to_string()));
        InboxView::notification(InboxNotification {
            app: format!("ntfy · {}", shown.receiver),
            heading: text_of(&fields["title"]),
            body: text_of(&fields["message"]),
            icon: fields["icon"].as_str().map(str::to_owned),
            image: fields["attach"].as_str().map(str::to_owned),
            link: fields["click"].as_str().map(str::to_owned),
            actions: actions.iter().map(|action| text_of(&action["label"])).collect(),
            facts: priority.into_iter().collect(),
            ..InboxNotification::default()
        })
    },
    server_config: |sandbox, folder| {
        sandbox.account(folder, ["ntfy", "ntfy", TOKEN], &sandbox.endpoint())
    },
};

struct FakeNtfy;

impl FakeProvider for FakeNtfy {
    fn serves(&self, path: &str) -> bool {
        path == "/"
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        let (topic, id) = read(call.parts, call.body)?;
        Ok(call.checked(ENTRY.kind, &topic, id, 0))
    }

    fn accept(&self, state: &SandboxState, _: &CheckedRequest, message_id: u64) -> FakeAnswer {
        let (id, now) = (format!("{message_id:012}"), state.now_s());
        let body = json!({"id": id, "time": now, "expires": now + CACHED_S, "event": "message"});
        FakeAnswer::json(200, &body)
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
        match status {
            401 => ntfy_error(40_101, "unauthorized"),
            403 => ntfy_error(40_301, "forbidden"),
            404 | 410 => ntfy_error(40_010, "invalid request: topic name is disallowed"),
            413 => ntfy_error(41_303, "JSON body too large"),
            429 => ntfy_error(42_901, "limit reached: too many requests, please be nice"),
            502..=504 => FakeAnswer::text(status, "<html><h1>Bad Gateway</h1></html>\r\n"),
            507 => ntfy_error(
                50_701,
                "cannot publish to UnifiedPush topic without previously active subscriber",
            ),
            500..=599 => {
                let body =
                    json!({"code": 50_001, "http": status, "error": "internal server error"});
                FakeAnswer::json(status, &body)
            }
            _ => ntfy_error(NOT_A_MESSAGE.0, NOT_A_MESSAGE.1),
        }
    }

    fn is_side_call(&self, call: &FakeCall<'_>) -> bool {
        call.path() == "/v1/health"
    }

    fn answer_side_call(&self, call: &FakeCall<'_>) -> FakeAnswer {
        match call.header("authorization") {
            Some(login) if login != format!("Bearer {TOKEN}") => ntfy_error(40_101, "unauthorized"),
            _ => FakeAnswer::json(200, &json!({"healthy": true})),
        }
    }
}

/// The topic, and the digest of topic and message: ntfy has no idempotency key.
fn read(parts: &Parts, body: &Bytes) -> FakeCheckResult<(String, CorrelationId)> {
    match header_text(&parts.headers, "authorization") {
        Some(login) if login == format!("Bearer {TOKEN}") => {}
        Some(_) => return Err(RejectedRequest::signature(ntfy_error(40_101, "unauthorized"))),
        None => return Err(RejectedRequest::signature(ntfy_error(40_301, "forbidden"))),
    }
    let wrong = |(code, error)| RejectedRequest::request(ntfy_error(code, error));
    if parts.method != Method::POST {
        return Err(wrong((40_401, "page not found")));
    }
    if body.len() > 2 * MESSAGE_MAX {
        return Err(wrong((41_303, "JSON body too large")));
    }
    let kind = header_text(&parts.headers, "content-type").unwrap_or_default();
    let fields: Option<Map<String, Value>> = serde_json::from_slice(body).ok();
    let Some(fields) = fields.filter(|_| kind.starts_with("application/json")) else {
        return Err(wrong(NOT_A_MESSAGE));
    };
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let (topic, message) = (text("topic"), text("message"));
    check_topic(topic).map_err(wrong)?;
    fields.iter().try_for_each(|(name, value)| check_field(name, value)).map_err(wrong)?;
    // The real server publishes "triggered" instead.
    if message.trim().is_empty() {
        return Err(wrong((40_017, "invalid request: no message")));
    }
    // The real server makes a file of it, if it stores files.
    if message.len() > MESSAGE_MAX {
        return Err(wrong((41_301, "attachment too large, or bandwidth limit reached")));
    }
    Ok((topic.to_owned(), CorrelationId::of_text(topic, message)))
}

fn check_topic(topic: &str) -> Result<(), (u32, &'static str)> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    match topic.len() {
        _ if RESERVED.contains(&topic) => {
            Err((40_010, "invalid request: topic name is disallowed"))
        }
        1..=TOPIC_MAX if topic.bytes().all(is_allowed) => Ok(()),
        _ => Err((40_009, "invalid request: topic invalid")),
    }
}

/// The real server ignores unknown fields, so a misspelt one would not be noticed there.
fn check_field(name: &str, value: &Value) -> Result<(), (u32, &'static str)> {
    let is_url = || value.as_str().is_some_and(|url| url.starts_with("http"));
    let is_list = |is_item: fn(&Value) -> bool| {
        value.as_array().is_some_and(|items| items.iter().all(is_item))
    };
    let (is_valid, error) = match name {
        "topic" | "message" | "title" | "click" => (value.is_string(), NOT_A_MESSAGE),
        "markdown" => (value.is_boolean(), NOT_A_MESSAGE),
        "tags" => (is_list(Value::is_string), NOT_A_MESSAGE),
        "priority" => {
            let is_known = value.as_u64().is_some_and(|priority| (1..=5).contains(&priority));
            (is_known, (40_007, "invalid priority parameter"))
        }
        "attach" => (is_url(), (40_013, "invalid request: attachment URL is invalid")),
        "icon" => (is_url(), (40_021, "invalid request: icon URL is invalid")),
        "actions" => {
            let are_actions = is_list(|action| action["action"].is_string());
            (are_actions, (40_018, "invalid request: actions invalid"))
        }
        _ => (false, (40_017, "invalid request: unknown field")),
    };
    if is_valid { Ok(()) } else { Err(error) }
}

/// The first three digits of a code are the status.
fn ntfy_error(code: u32, error: &str) -> FakeAnswer {
    let status = u16::try_from(code / 100).unwrap_or(500);
    FakeAnswer::json(status, &json!({"code": code, "http": status, "error": error}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_to(login: Option<&str>, kind: &str, body: &str) -> Result<String, u64> {
        let mut request = http::Request::post("/").header("content-type", kind);
        if let Some(login) = login {
            request = request.header("authorization", login);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        match read(&parts, &Bytes::copy_from_slice(body.as_bytes())) {
            Ok((topic, _)) => Ok(topic),
            Err(refused) => {
                let body: Value = serde_json::from_slice(&refused.answer.body).unwrap();
                Err(body["code"].as_u64().unwrap())
            }
        }
    }

    #[test]
    fn ntfy_refuses_logins_topics_and_fields_with_its_own_codes() {
        let login = format!("Bearer {TOKEN}");
        let json = "application/json";
        let send = |body: Value| answer_to(Some(&login), json, &body.to_string());
        let full = json!({"topic": "shop", "message": "x", "title": "t", "priority": 5,
            "tags": ["tada"], "click": "https://a.example", "markdown": true,
            "actions": [{"action": "view", "label": "Open", "url": "https://a.example"}]});
        assert_eq!(send(full), Ok("shop".to_owned()));
        for (body, code) in [
            (json!({"message": "x"}), 40_009),
            (json!({"topic": "a b", "message": "x"}), 40_009),
            (json!({"topic": "docs", "message": "x"}), 40_010),
            (json!({"topic": "shop"}), 40_017),
            (json!({"topic": "shop", "message": "x", "ttl": 1}), 40_017),
            (json!({"topic": "shop", "message": "x", "tags": "tada"}), 40_017),
            (json!({"topic": "shop", "message": "x", "priority": 6}), 40_007),
            (json!({"topic": "shop", "message": "x", "icon": "x"}), 40_021),
            (json!({"topic": "shop", "message": "x", "actions": ["x"]}), 40_018),
            (json!({"topic": "shop", "message": "x".repeat(4097)}), 41_301),
            (json!({"topic": "shop", "message": "x".repeat(9000)}), 41_303),
            (json!(["shop"]), 40_017),
        ] {
            assert_eq!(send(body.clone()), Err(code), "{body}");
        }
        let good = r#"{"topic": "shop", "message": "x"}"#;
        assert_eq!(answer_to(Some(&login), "text/plain", good), Err(40_017));
        assert_eq!(answer_to(Some("Bearer tk_other"), json, good), Err(40_101));
        assert_eq!(answer_to(None, json, good), Err(40_301));
    }

    #[test]
    fn a_fault_has_the_code_of_its_status() {
        for (status, code) in [(401, 40_101), (410, 40_010), (429, 42_901), (507, 50_701)] {
            let body: Value = serde_json::from_slice(&FakeNtfy.refusal(status).body).unwrap();
            assert_eq!(body["code"], code);
        }
    }
}
