//! The fake Web Push service: checks what the real ones check, in their order, then decrypts as a browser does. Keeps
//! no messages, and a topic replaces nothing.

mod decrypt;
pub(crate) mod services;
pub(crate) mod subscription;
pub(crate) mod vapid;

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method};
use serde_json::json;

use super::{CheckedRequest, ControlCall, FakeCall, FakeCheckResult, FakeEntry, FakeKind};
use super::{FakeProvider, RejectedRequest};
use crate::Sandbox;
use crate::answer::FakeAnswer;
use crate::control::ReceiverRequest;
use crate::correlation::CorrelationId;
use crate::counts::CheckFailure;
use crate::inbox::view::{InboxNotification, InboxView, text_of};
use crate::receiver::{self, Receiver, ReceiverDetail};
use crate::sample::{ChannelSample, ShownId, shown_header};
use crate::service::{SandboxState, header_text};
use services::{FakePushService, PushRefusal};
use subscription::{
    BrowserSubscription, SandboxSubscription, SubscriptionMaker, SubscriptionRequest,
};
use vapid::{FakeVapidToken, FakeVapidVerifier, subject_suits_apple};

const TTL_MAX_S: u64 = 30 * 24 * 3600;
const TOPIC_MAX: usize = 32;

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("push"),
    make: |config| {
        let subscriptions = SubscriptionMaker::new(config.seed);
        let verifier = FakeVapidVerifier::default();
        Ok(vec![Box::new(FakeWebPush { subscriptions, verifier })])
    },
    body_max: 4096,
    setup_path: None,
    control_calls: &[
        "POST /sandbox/subscriptions {count, service, faults, script, applicationServerKey}",
    ],
    sample: ChannelSample {
        channel: "webpush",
        shown_id: ShownId::Delivery,
        ttl: ("TTL", |request| shown_header(request, "ttl")),
        name: |name, number| format!("{name}-{number}"),
        address: |sandbox, name| {
            let receiver = sandbox.state.receivers.get(&receiver::path(ENTRY.kind, name));
            let subscription = receiver.as_deref().and_then(subscription_of);
            let shown = json!(subscription.map(|own| own.shown(sandbox.https_origin(), name)));
            json!({"channel": "webpush", "endpoint": shown["endpoint"], "keys": shown["keys"]})
        },
    },
    show: |shown| {
        // Already decrypted. A page may send anything; a text is shown as it is.
        let content = shown.json();
        let text = || String::from_utf8_lossy(&shown.request.body).into_owned();
        let is_object = content.is_object();
        let shown_body = if is_object { text_of(&content["body"]) } else { text() };
        let link = content["url"].as_str().or_else(|| content["navigate"].as_str());
        let actions = content["actions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let facts = ["ttl", "urgency", "topic"]
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), shown.header(name)?.to_owned())));
        InboxView::notification(InboxNotification {
            app: "Browser".to_owned(),
            heading: text_of(&content["title"]),
            body: shown_body,
            icon: content["icon"].as_str().map(str::to_owned),
            image: content["image"].as_str().map(str::to_owned),
            link: link.map(str::to_owned),
            actions: actions.iter().map(|action| text_of(&action["title"])).collect(),
            is_silent: false,
            facts: facts.collect(),
            data: Some(content["data"].clone()).filter(|data| !data.is_null()),
        })
    },
    server_config: |_, _| Ok(String::new()),
};

struct FakeWebPush {
    subscriptions: SubscriptionMaker,
    verifier: FakeVapidVerifier,
}

impl FakeWebPush {
    fn check_push(
        &self,
        call: &FakeCall<'_>,
        subscription: &BrowserSubscription,
    ) -> Result<(u32, Bytes), PushRefusal> {
        let FakeCall { state, connection, parts, body } = call;
        let ttl_s = check_headers(&parts.headers, subscription.service, body.is_empty())?;
        let (authorization, origin) =
            (call.header("authorization"), origin(connection.scheme, parts));
        let token = self.verifier.check(authorization, &origin, state.now_s());
        let token = token.map_err(PushRefusal::Vapid)?;
        check_sender(subscription, &token)?;
        if body.is_empty() {
            return Ok((ttl_s, Bytes::new()));
        }
        let plain = decrypt::decrypt(&subscription.keys, &subscription.auth, body)
            .map_err(|_| PushRefusal::Undecryptable)?;
        Ok((ttl_s, plain.into()))
    }
}

fn find(call: &FakeCall<'_>) -> Option<Arc<Receiver>> {
    call.state.receivers.get(call.path().trim_start_matches('/'))
}

fn subscription_of(receiver: &Receiver) -> Option<&BrowserSubscription> {
    match &receiver.detail {
        ReceiverDetail::Push(subscription) => Some(subscription),
        _ => None,
    }
}

/// The service in whose words a receiver answers.
fn service_of(receiver: &Receiver) -> FakePushService {
    subscription_of(receiver).map_or(FakePushService::Generic, |own| own.service)
}

impl FakeProvider for FakeWebPush {
    fn serves(&self, path: &str) -> bool {
        path.starts_with("/push/")
    }

    fn too_large(&self, call: &FakeCall<'_>) -> FakeAnswer {
        match find(call) {
            None => FakePushService::Generic.refuse(PushRefusal::NotFound),
            Some(receiver) if !call.is_post() => not_a_post(service_of(&receiver)),
            Some(receiver) => service_of(&receiver).refuse(PushRefusal::TooLarge),
        }
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        let receiver = find(call);
        let found = receiver.as_ref().and_then(|r| Some((r.clone(), subscription_of(r)?)));
        let Some((receiver, subscription)) = found else {
            return Err(rejected(FakePushService::Generic, PushRefusal::NotFound));
        };
        let service = subscription.service;
        if !call.is_post() {
            return Err(RejectedRequest::request(not_a_post(service)));
        }
        let (ttl_s, content) =
            self.check_push(call, subscription).map_err(|refusal| rejected(service, refusal))?;
        let id = CorrelationId::from_content(&content);
        Ok(CheckedRequest { receiver, id, ttl_s, content })
    }

    fn accept(
        &self,
        state: &SandboxState,
        request: &CheckedRequest,
        message_id: u64,
    ) -> FakeAnswer {
        let location = format!("{}/m/{message_id:016x}", state.https_origin());
        service_of(&request.receiver).accept(&location, request.ttl_s)
    }

    fn refuse(
        &self,
        request: &CheckedRequest,
        code: u16,
        retry_after_s: Option<u32>,
    ) -> FakeAnswer {
        service_of(&request.receiver).refuse(match code {
            404 => PushRefusal::NotFound,
            410 => PushRefusal::Gone,
            code => PushRefusal::Status { code, retry_after_s },
        })
    }

    fn make_detail(&self, request: &ReceiverRequest) -> anyhow::Result<ReceiverDetail> {
        anyhow::ensure!(request.secret.is_none(), "a subscription takes no secret");
        let (_, subscription) = self.subscriptions.make(FakePushService::Generic, None)?;
        Ok(ReceiverDetail::Push(Box::new(subscription)))
    }

    fn control(&self, call: &ControlCall<'_>) -> Option<anyhow::Result<FakeAnswer>> {
        match (&call.parts.method, call.path) {
            (&Method::POST, ["subscriptions"]) => Some(self.subscribe(call)),
            _ => None,
        }
    }
}

impl FakeWebPush {
    fn subscribe(&self, call: &ControlCall<'_>) -> anyhow::Result<FakeAnswer> {
        let request = match (call.body.is_empty(), call.parts.uri.query()) {
            (false, _) => serde_json::from_slice(call.body)?,
            (true, Some(query)) => SubscriptionRequest::from_query(query)?,
            (true, None) => SubscriptionRequest::default(),
        };
        let made = self.subscriptions.subscribe(call.state, &request)?;
        if header_text(&call.parts.headers, "accept").is_some_and(|a| a.contains("ndjson")) {
            let lines: Result<String, _> =
                made.iter().map(|s| serde_json::to_string(s).map(|line| line + "\n")).collect();
            return Ok(FakeAnswer::with_body(201, "application/x-ndjson", lines?));
        }
        let value = match (request.count, made.as_slice()) {
            (None, [single]) => json!(single),
            _ => json!(made),
        };
        Ok(FakeAnswer::json(201, &value))
    }
}

impl Sandbox {
    /// The same as `POST /sandbox/subscriptions`.
    pub fn subscribe(
        &self,
        request: &SubscriptionRequest,
    ) -> anyhow::Result<Vec<SandboxSubscription>> {
        let fake = self.state.fake::<FakeWebPush>().context("no push service")?;
        fake.subscriptions.subscribe(&self.state, request)
    }
}

fn check_headers(
    headers: &HeaderMap,
    service: FakePushService,
    empty: bool,
) -> Result<u32, PushRefusal> {
    let ttl_s = ttl(header_text(headers, "ttl"))?;
    let known = [&b"very-low"[..], b"low", b"normal", b"high"];
    if headers.get("urgency").is_some_and(|urgency| !known.contains(&urgency.as_bytes())) {
        return Err(PushRefusal::Urgency);
    }
    if headers.get("topic").is_some_and(|topic| !topic_is_legal(topic.as_bytes(), service)) {
        return Err(PushRefusal::Topic);
    }
    if !empty && header_text(headers, "content-encoding") != Some("aes128gcm") {
        return Err(PushRefusal::Encoding);
    }
    let policy = header_text(headers, "x-wns-cache-policy");
    if service == FakePushService::Wns && (ttl_s == 0) != (policy == Some("no-cache")) {
        return Err(PushRefusal::CachePolicy);
    }
    Ok(ttl_s)
}

fn ttl(value: Option<&str>) -> Result<u32, PushRefusal> {
    let value = value.ok_or(PushRefusal::TtlMissing)?;
    if value.starts_with('-') {
        return Err(PushRefusal::TtlNegative);
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err(PushRefusal::TtlInvalid);
    }
    // A number that is too large is still a very long time.
    Ok(value.parse::<u64>().unwrap_or(u64::MAX).min(TTL_MAX_S) as u32)
}

/// Apple decodes the topic as base64url, which no text of length 4n + 1 can be.
fn topic_is_legal(topic: &[u8], service: FakePushService) -> bool {
    let alphabet = topic.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let decodable = service != FakePushService::Apple || topic.len() % 4 != 1;
    !topic.is_empty() && topic.len() <= TOPIC_MAX && alphabet && decodable
}

fn check_sender(
    subscription: &BrowserSubscription,
    token: &FakeVapidToken,
) -> Result<(), PushRefusal> {
    if subscription.service == FakePushService::Apple
        && !subject_suits_apple(token.subject.as_deref())
    {
        return Err(PushRefusal::Subject);
    }
    if subscription.sender.get_or_init(|| token.key) != &token.key {
        return Err(PushRefusal::KeyMismatch);
    }
    Ok(())
}

fn not_a_post(service: FakePushService) -> FakeAnswer {
    service.refuse(PushRefusal::Status { code: 405, retry_after_s: None })
}

fn rejected(service: FakePushService, refusal: PushRefusal) -> Box<RejectedRequest> {
    let failure = match refusal {
        refusal if refusal.is_about_the_sender() => CheckFailure::Vapid,
        PushRefusal::Undecryptable => CheckFailure::Undecryptable,
        _ => CheckFailure::Request,
    };
    RejectedRequest::new(failure, service.refuse(refusal))
}

/// The origin that the sender addressed, without a default port.
fn origin(scheme: &str, parts: &Parts) -> String {
    let authority = parts.uri.authority().map(|a| a.as_str());
    let authority = authority.or_else(|| header_text(&parts.headers, "host")).unwrap_or_default();
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    let host = authority.strip_suffix(default_port).unwrap_or(authority);
    format!("{scheme}://{}", host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_a_plain_number() {
        assert_eq!(ttl(Some("0")), Ok(0));
        assert_eq!(ttl(Some("99999999999999999999999")), Ok(2_592_000));
        assert_eq!(ttl(None), Err(PushRefusal::TtlMissing));
        assert_eq!(ttl(Some("-1")), Err(PushRefusal::TtlNegative));
        for bad in ["", "1.5", "1 h", "+3"] {
            assert_eq!(ttl(Some(bad)), Err(PushRefusal::TtlInvalid), "{bad}");
        }
    }

    #[test]
    fn apple_refuses_topics_that_no_base64_can_be() {
        for (topic, generic, apple) in [
            ("abcd", true, true),
            ("abcde", true, false),
            ("a.b", false, false),
            ("", false, false),
        ] {
            assert_eq!(
                topic_is_legal(topic.as_bytes(), FakePushService::Generic),
                generic,
                "{topic}"
            );
            assert_eq!(topic_is_legal(topic.as_bytes(), FakePushService::Apple), apple, "{topic}");
        }
        assert!(!topic_is_legal(&[b'a'; 33], FakePushService::Generic));
    }
}
