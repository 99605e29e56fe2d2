//! Receivers of webhooks (`/hook/<name>`). They check the signature of Standard Webhooks. A receiver is made by its
//! first request.

use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context as _;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use serde_json::json;

use super::RejectedRequest;
use super::{CheckedRequest, FakeCall, FakeCheckResult, FakeEntry, FakeKind, FakeProvider};
use crate::Sandbox;
use crate::answer::FakeAnswer;
use crate::control::ReceiverRequest;
use crate::correlation::CorrelationId;
use crate::counts::CheckFailure;
use crate::inbox::view::{InboxCheck, InboxView, ShownMessage};
use crate::receiver::{self, Receiver, ReceiverDetail};
use crate::sample::{ChannelSample, ShownId, shown_header};
use crate::service::header_text;

const TOLERANCE_S: i64 = 5 * 60;
const NAME_MAX: usize = 200;

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("hook"),
    make: |config| {
        let secret = config.webhook_secret.as_deref().map(parse_secret).transpose();
        let default_secret = secret.context("the webhook secret")?;
        let default_secret = RwLock::new(default_secret);
        Ok(vec![Box::new(FakeWebhook { default_secret })])
    },
    body_max: 4 << 20,
    setup_path: Some("hooks"),
    control_calls: &["PUT /sandbox/hooks/<name> {secret, faults, script}"],
    sample: ChannelSample {
        channel: "webhook",
        shown_id: ShownId::Delivery,
        ttl: ("postrider-expires", |request| shown_header(request, "postrider-expires")),
        name: |name, _| name.to_owned(),
        address: |sandbox, name| json!({"channel": "webhook", "url": format!("{}/hook/{name}", sandbox.https_origin())}),
    },
    show: |shown| InboxView::call(shown, Some(judge_signature(shown))),
    server_config: |_, _| Ok(String::new()),
};

struct FakeWebhook {
    /// For receivers that have no secret of their own.
    default_secret: RwLock<Option<hmac::Key>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WebhookSignatureError {
    /// One of the three headers is missing.
    Missing,
    /// The time is not within five minutes of now.
    Timestamp,
    Mismatch,
}

impl FakeProvider for FakeWebhook {
    fn serves(&self, path: &str) -> bool {
        path.starts_with("/hook/")
    }

    fn too_large(&self, _: &FakeCall<'_>) -> FakeAnswer {
        too_large()
    }

    fn make_detail(&self, request: &ReceiverRequest) -> anyhow::Result<ReceiverDetail> {
        Ok(match request.secret.as_deref() {
            Some(secret) => ReceiverDetail::Signed(Box::new(parse_secret(secret)?)),
            None => ReceiverDetail::Plain,
        })
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        let receiver = find_or_make(call, ENTRY.kind)?;
        if !call.is_post() {
            return Err(rejected(CheckFailure::Request, 405, "a webhook is a POST\n"));
        }
        match self.secret_of(&receiver) {
            Some(key) => verify(&key, &call.parts.headers, call.body, call.state.now_s())
                .map_err(|_| rejected(CheckFailure::Signature, 401, "bad signature\n"))?,
            None => call.state.received.counts.unverified(),
        }
        Ok(checked(call, receiver, "webhook-id"))
    }
}

impl FakeWebhook {
    fn secret_of(&self, receiver: &Receiver) -> Option<hmac::Key> {
        match &receiver.detail {
            ReceiverDetail::Signed(secret) => Some((**secret).clone()),
            _ => self.default_secret.read().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Sandbox {
    /// The secret of webhook receivers without their own, from now on.
    pub fn set_webhook_secret(&self, secret: &str) -> anyhow::Result<()> {
        let fake = self.state.fake::<FakeWebhook>().context("no receiver of webhooks")?;
        let key = parse_secret(secret)?;
        *fake.default_secret.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(())
    }
}

/// Checks the signature of a webhook in the inbox, at the time when it came.
fn judge_signature(shown: &ShownMessage<'_>) -> InboxCheck {
    let receiver = shown.state.receivers.get(&receiver::path(ENTRY.kind, shown.receiver));
    let fake = shown.state.fake::<FakeWebhook>();
    let Some(key) = receiver.zip(fake).and_then(|(receiver, fake)| fake.secret_of(&receiver))
    else {
        return InboxCheck::unknown("not checked: the sandbox does not know the secret");
    };
    let now_s = shown.at_s.saturating_add(shown.state.clock_offset_s);
    match verify(&key, &shown.request.headers, &shown.request.body, now_s) {
        Ok(()) => InboxCheck::pass("the signature is valid (Standard Webhooks, v1)"),
        Err(WebhookSignatureError::Missing) => InboxCheck::fail(
            "a header is missing: webhook-id, webhook-timestamp or webhook-signature",
        ),
        Err(WebhookSignatureError::Timestamp) => {
            InboxCheck::fail("webhook-timestamp is more than five minutes away from the clock")
        }
        Err(WebhookSignatureError::Mismatch) => {
            InboxCheck::fail("no signature matches: another secret, or another body")
        }
    }
}

/// Both kinds of receivers take 4 MiB.
pub(super) fn too_large() -> FakeAnswer {
    FakeAnswer::text(413, "larger than 4 MiB\n")
}

/// A request whose id is in this header; without it, its idempotency key or its content.
pub(super) fn checked(
    call: &FakeCall<'_>,
    receiver: Arc<Receiver>,
    id_header: &str,
) -> CheckedRequest {
    let named = call.header(id_header).or_else(|| call.header("idempotency-key"));
    let id = match named {
        Some(id) => CorrelationId::from_text(id),
        None => CorrelationId::from_content(call.body),
    };
    CheckedRequest { receiver, id, ttl_s: 0, content: call.body.clone() }
}

/// The receiver of `/<kind>/<name>`; more may follow after the name.
pub(super) fn find_or_make(call: &FakeCall<'_>, kind: FakeKind) -> FakeCheckResult<Arc<Receiver>> {
    let path = call.path().trim_start_matches('/');
    if let Some(found) = call.state.receivers.get(path) {
        return Ok(found);
    }
    let name = path.split('/').nth(1).filter(|n| !n.is_empty() && n.len() <= NAME_MAX);
    let name = name.ok_or_else(|| rejected(CheckFailure::Request, 404, "no such receiver\n"))?;
    Ok(call.state.receivers.get_or_put(kind, name))
}

/// `whsec_` + base64, as Standard Webhooks writes secrets.
fn parse_secret(text: &str) -> anyhow::Result<hmac::Key> {
    let bytes = text.strip_prefix("whsec_").and_then(|code| BASE64_STANDARD.decode(code).ok());
    let bytes = bytes.context("a secret is whsec_ followed by base64")?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

fn verify(
    key: &hmac::Key,
    headers: &HeaderMap,
    body: &[u8],
    now_s: i64,
) -> Result<(), WebhookSignatureError> {
    let get = |name| header_text(headers, name).ok_or(WebhookSignatureError::Missing);
    let (id, timestamp) = (get("webhook-id")?, get("webhook-timestamp")?);
    let signatures = get("webhook-signature")?;
    let at: i64 = timestamp.parse().map_err(|_| WebhookSignatureError::Timestamp)?;
    if at.abs_diff(now_s) > TOLERANCE_S as u64 {
        return Err(WebhookSignatureError::Timestamp);
    }
    let mut context = hmac::Context::with_key(key);
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        context.update(part);
    }
    let expected = BASE64_STANDARD.encode(context.sign());
    let matches = signatures.split(' ').filter_map(|s| s.strip_prefix("v1,")).any(|s| {
        aws_lc_rs::constant_time::verify_slices_are_equal(s.as_bytes(), expected.as_bytes()).is_ok()
    });
    if matches { Ok(()) } else { Err(WebhookSignatureError::Mismatch) }
}

fn rejected(failure: CheckFailure, status: u16, why: &'static str) -> Box<RejectedRequest> {
    RejectedRequest::new(failure, FakeAnswer::text(status, why))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const AT: i64 = 1_614_265_330;

    fn headers(signature: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", HeaderValue::from_static("msg_p5jXN8AQM9LWM0D4loKWxJek"));
        headers.insert("webhook-timestamp", HeaderValue::from_static("1614265330"));
        headers.insert("webhook-signature", HeaderValue::from_static(signature));
        headers
    }

    #[test]
    fn the_known_vector_verifies_among_other_signatures() {
        let key = parse_secret(SECRET).unwrap();
        let good = headers("v1a,xx v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(verify(&key, &good, BODY, AT), Ok(()));
        assert_eq!(verify(&key, &good, b"{}", AT), Err(WebhookSignatureError::Mismatch));
    }

    #[test]
    fn a_timestamp_beyond_five_minutes_is_refused() {
        let key = parse_secret(SECRET).unwrap();
        let good = headers("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(verify(&key, &good, BODY, AT + 300), Ok(()));
        assert_eq!(verify(&key, &good, BODY, AT + 301), Err(WebhookSignatureError::Timestamp));
        assert_eq!(verify(&key, &good, BODY, AT - 301), Err(WebhookSignatureError::Timestamp));
    }

    #[test]
    fn a_secret_needs_its_prefix() {
        assert!(parse_secret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_err());
        assert!(parse_secret("whsec_%%%").is_err());
    }
}
