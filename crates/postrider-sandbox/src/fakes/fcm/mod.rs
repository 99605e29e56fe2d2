//! FCM HTTP v1 (`POST /v1/projects/<project>/messages:send`): checks the token and the message as Google does. A
//! device is made by its first request. A token with a space or of fewer than 8 characters is invalid. With
//! `validate_only`, nothing is delivered or counted.

mod oauth;
mod proto;

use anyhow::Context as _;
use http::Method;
use serde_json::{Map, Value, json};

use super::{CheckedRequest, ControlCall, FakeCall, FakeCheckResult, FakeEntry, FakeKind};
use super::{FakeProvider, RejectedRequest};
use crate::Sandbox;
use crate::answer::FakeAnswer;
use crate::correlation::{CorrelationId, hash};
use crate::inbox::view::{InboxNotification, InboxView, text_of};
use crate::sample::{ChannelSample, ShownId};
use crate::service::SandboxState;
use oauth::{FakeGoogleOauth, PROJECT};

const PAYLOAD_MAX: usize = 4096;
const TTL_MAX_S: f64 = 2_419_200.0;
const FCM_ERROR: &str = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

/// The project of a send.
fn project_of(path: &str) -> Option<&str> {
    let project = path.strip_prefix("/v1/projects/")?.strip_suffix("/messages:send")?;
    (!project.is_empty() && !project.contains('/')).then_some(project)
}

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("fcm"),
    make: |_| Ok(vec![Box::new(FakeFcm::default())]),
    body_max: 64 * 1024,
    setup_path: Some("fcm"),
    control_calls: &[
        "PUT /sandbox/fcm/<token> {faults, script}",
        "GET /sandbox/fcm/service-account",
        "GET /sandbox/fcm/tokens",
    ],
    sample: ChannelSample {
        channel: "fcm",
        shown_id: ShownId::Nothing,
        ttl: ("message.android.ttl", |request| {
            let body: Value = serde_json::from_str(request["body"].as_str()?).ok()?;
            body["message"]["android"]["ttl"].as_str().map(str::to_owned)
        }),
        name: |name, number| format!("{name}:APA91b{number:0>32}"),
        address: |_, token| json!({"channel": "fcm", "token": token}),
    },
    show: |shown| {
        let message = &shown.json()["message"];
        let (common, android) = (&message["notification"], &message["android"]);
        // The platform's own part wins, as on a device.
        let field = |name: &str| match &android["notification"][name] {
            Value::String(text) => text.clone(),
            _ => text_of(&common[name]),
        };
        let optional = |text: String| Some(text).filter(|text| !text.is_empty());
        let facts = ["priority", "ttl", "collapseKey", "collapse_key"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), android[name].as_str()?.to_owned())));
        let options = &message["webpush"]["fcmOptions"]["link"];
        InboxView::notification(InboxNotification {
            app: "Android".to_owned(),
            heading: field("title"),
            body: field("body"),
            icon: optional(field("icon")),
            image: optional(field("image")),
            link: options.as_str().map(str::to_owned),
            is_silent: common.is_null() && android["notification"].is_null(),
            facts: facts.collect(),
            data: Some(message["data"].clone()).filter(|data| !data.is_null()),
            ..InboxNotification::default()
        })
    },
    server_config: |sandbox, folder| {
        let key = sandbox.fcm_service_account().to_string();
        sandbox.account(folder, ["firebase", "fcm", &key], &sandbox.endpoint())
    },
};

#[derive(Default)]
struct FakeFcm {
    oauth: FakeGoogleOauth,
}

impl FakeProvider for FakeFcm {
    fn serves(&self, path: &str) -> bool {
        project_of(path).is_some()
    }

    fn too_large(&self, _: &FakeCall<'_>) -> FakeAnswer {
        large()
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        if !call.is_post() {
            return Err(wrong(FakeAnswer::empty(404)));
        }
        let bearer = call.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        if !bearer.is_some_and(|token| self.oauth.knows(token, call.state.now_s())) {
            return Err(RejectedRequest::signature(unauthenticated()));
        }
        if project_of(call.path()) != Some(PROJECT) {
            return Err(RejectedRequest::signature(denied()));
        }
        let body: Value = serde_json::from_slice(call.body).unwrap_or_default();
        let message = body["message"].as_object();
        let message = message.ok_or_else(|| wrong(violation("message", "Invalid JSON payload")))?;
        if let Some((field, error)) = proto::find_error(message) {
            return Err(wrong(malformed(&field, &error)));
        }
        let device = device(message)?;
        check_data(message)?;
        check_web(message)?;
        let ttl_s = check_android(message)?;
        if payload_len(message) > PAYLOAD_MAX {
            return Err(wrong(large()));
        }
        if body["validate_only"] == true {
            let name = format!("projects/{PROJECT}/messages/fake_message_id");
            return Err(wrong(FakeAnswer::json(200, &json!({ "name": name }))));
        }
        let content = json!([device, message.get("notification"), message.get("data")]);
        let id = CorrelationId::Digest(hash(0, content.to_string().as_bytes()));
        Ok(call.checked(ENTRY.kind, &device, id, ttl_s))
    }

    fn accept(&self, _: &SandboxState, _: &CheckedRequest, message_id: u64) -> FakeAnswer {
        let name = format!("projects/{PROJECT}/messages/0:{message_id:016x}");
        FakeAnswer::json(200, &json!({ "name": name }))
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
        match status {
            400 => violation("message", "refused by the sandbox's fault profile"),
            401 => unauthenticated(),
            403 => fcm_error(403, "PERMISSION_DENIED", "SENDER_ID_MISMATCH", "SenderId mismatch"),
            404 | 410 => {
                fcm_error(404, "NOT_FOUND", "UNREGISTERED", "Requested entity was not found.")
            }
            429 => {
                let message = "Message sending quota exceeded for quota metric 'Send requests'.";
                fcm_error(429, "RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED", message)
            }
            503 => {
                let message = "The service is currently unavailable.";
                fcm_error(503, "UNAVAILABLE", "UNAVAILABLE", message)
            }
            500..=599 => fcm_error(status, "INTERNAL", "INTERNAL", "Internal error encountered."),
            other => error(other, "UNKNOWN", "refused by the sandbox's fault profile", json!([])),
        }
    }

    /// The token endpoint of Google's accounts.
    fn is_side_call(&self, call: &FakeCall<'_>) -> bool {
        call.path() == "/token"
    }

    fn answer_side_call(&self, call: &FakeCall<'_>) -> FakeAnswer {
        match call.check_post() {
            Ok(()) => self.oauth.grant(call.body, call.state.https_origin(), call.state.now_s()),
            Err(rejected) => rejected.answer,
        }
    }

    fn control(&self, call: &ControlCall<'_>) -> Option<anyhow::Result<FakeAnswer>> {
        let given = match (&call.parts.method, call.path) {
            (&Method::GET, ["fcm", "service-account"]) => self
                .oauth
                .service_account(call.state.https_origin())
                .context("no key could be made"),
            (&Method::GET, ["fcm", "tokens"]) => Ok(json!({ "granted": self.oauth.granted() })),
            _ => return None,
        };
        Some(given.map(|value| FakeAnswer::json(200, &value)))
    }
}

impl Sandbox {
    /// The same as `GET /sandbox/fcm/service-account`.
    pub fn fcm_service_account(&self) -> Value {
        let fake = self.state.fake::<FakeFcm>();
        fake.and_then(|fake| fake.oauth.service_account(self.https_origin())).unwrap_or_default()
    }
}

fn wrong(answer: FakeAnswer) -> Box<RejectedRequest> {
    RejectedRequest::request(answer)
}

fn device(message: &Map<String, Value>) -> FakeCheckResult<String> {
    let targets = ["token", "fid", "topic", "condition"];
    let named: Vec<_> = targets.into_iter().filter(|name| message.contains_key(*name)).collect();
    let [name @ ("token" | "fid")] = named.as_slice() else {
        return Err(wrong(invalid("Recipient of the message is not set.")));
    };
    let device = message.get(*name).and_then(Value::as_str).unwrap_or_default();
    let legal = |b: u8| b.is_ascii_alphanumeric() || b"-_:.=%+/~".contains(&b);
    if !(8..=4096).contains(&device.len()) || !device.bytes().all(legal) {
        return Err(wrong(invalid("The registration token is not a valid FCM registration token")));
    }
    Ok(device.to_owned())
}

fn check_data(message: &Map<String, Value>) -> FakeCheckResult<()> {
    let blocks = [Some(message), block(message, "android"), block(message, "webpush")];
    let data = blocks.into_iter().flatten().filter_map(|of| block(of, "data"));
    let reserved = |name: &str| {
        ["from", "message_type", "collapse_key", ""].contains(&name)
            || name.starts_with("google.")
            || name.starts_with("gcm.")
    };
    match data.flat_map(Map::keys).find(|name| reserved(name)) {
        Some(name) => Err(wrong(invalid(&format!("Invalid data payload key: {name}")))),
        None => Ok(()),
    }
}

fn block<'a>(of: &'a Map<String, Value>, name: &str) -> Option<&'a Map<String, Value>> {
    of.get(name).and_then(Value::as_object)
}

fn check_web(message: &Map<String, Value>) -> FakeCheckResult<()> {
    let webpush = block(message, "webpush");
    let options = ["fcmOptions", "fcm_options"].iter().find_map(|name| block(webpush?, name));
    let link = options.and_then(|options| options.get("link")).and_then(Value::as_str);
    match link.filter(|link| !link.starts_with("https://")) {
        Some(_) => Err(wrong(invalid("Invalid webpush.fcm_options.link: must be a HTTPS URL."))),
        None => Ok(()),
    }
}

fn check_android(message: &Map<String, Value>) -> FakeCheckResult<u32> {
    let android = message.get("android");
    if let Some(priority) = android.and_then(|a| a.get("priority")).and_then(Value::as_str)
        && !["NORMAL", "HIGH", "normal", "high"].contains(&priority)
    {
        return Err(wrong(violation("message.android.priority", "Invalid value (TYPE_ENUM)")));
    }
    let Some(ttl) = android.and_then(|a| a.get("ttl")) else { return Ok(TTL_MAX_S as u32) };
    let seconds = ttl.as_str().and_then(|text| text.strip_suffix('s')?.parse::<f64>().ok());
    match seconds {
        Some(seconds) if (0.0..=TTL_MAX_S).contains(&seconds) => Ok(seconds as u32),
        Some(_) => Err(wrong(invalid("Invalid TTL: it must be between 0 and 2419200 seconds."))),
        None => Err(wrong(violation(
            "message.android.ttl",
            "Illegal duration format; duration must end with 's'",
        ))),
    }
}

/// The size of what reaches a device: the common part, and the largest part of a platform.
fn payload_len(message: &Map<String, Value>) -> usize {
    fn len(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(len).sum(),
            Value::Object(fields) => fields.iter().map(|(name, v)| name.len() + len(v)).sum(),
            other => other.to_string().len(),
        }
    }
    let part = |of: &Map<String, Value>, names: &[&str]| -> usize {
        names.iter().filter_map(|name| of.get(*name)).map(len).sum()
    };
    let own =
        |name: &&str| block(message, name).map(|of| part(of, &["notification", "data", "payload"]));
    let largest = ["android", "apns", "webpush"].iter().filter_map(own).max();
    part(message, &["notification", "data"]) + largest.unwrap_or(0)
}

fn error(status: u16, name: &str, message: &str, details: Value) -> FakeAnswer {
    let mut error = json!({ "code": status, "message": message, "status": name });
    if details.as_array().is_some_and(|list| !list.is_empty()) {
        error["details"] = details;
    }
    FakeAnswer::json(status, &json!({ "error": error }))
}

fn fcm_error(status: u16, name: &str, code: &str, message: &str) -> FakeAnswer {
    error(status, name, message, json!([{ "@type": FCM_ERROR, "errorCode": code }]))
}

fn invalid(message: &str) -> FakeAnswer {
    fcm_error(400, "INVALID_ARGUMENT", "INVALID_ARGUMENT", message)
}

fn large() -> FakeAnswer {
    invalid("Android message is too big")
}

fn violation(field: &str, description: &str) -> FakeAnswer {
    malformed(field, &format!("Invalid value at '{field}': {description}"))
}

fn malformed(field: &str, message: &str) -> FakeAnswer {
    let fields = json!([{ "field": field, "description": message }]);
    let details = json!([
        { "@type": FCM_ERROR, "errorCode": "INVALID_ARGUMENT" },
        { "@type": BAD_REQUEST, "fieldViolations": fields },
    ]);
    error(400, "INVALID_ARGUMENT", message, details)
}

fn unauthenticated() -> FakeAnswer {
    let message = "Request had invalid authentication credentials. Expected OAuth 2 access token, login \
                   cookie or other valid authentication credential. See \
                   https://developers.google.com/identity/sign-in/web/devconsole-project.";
    let realm = "Bearer realm=\"https://accounts.google.com/\", error=\"invalid_token\"";
    error(401, "UNAUTHENTICATED", message, json!([])).with("www-authenticate", realm)
}

fn denied() -> FakeAnswer {
    let message =
        "Permission 'cloudmessaging.messages.create' denied on resource (or it may not exist).";
    error(403, "PERMISSION_DENIED", message, json!([]))
}
