//! The answers of each push service: status, body and headers. Checks no request.

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::vapid::FakeVapidError;
use crate::answer::FakeAnswer;

/// The push service that a subscription belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FakePushService {
    #[default]
    Generic,
    Fcm,
    Mozilla,
    Apple,
    Wns,
}

/// Why a push is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushRefusal {
    TtlMissing,
    TtlInvalid,
    TtlNegative,
    Topic,
    Urgency,
    Encoding,
    TooLarge,
    Undecryptable,
    CachePolicy,
    Vapid(FakeVapidError),
    Subject,
    KeyMismatch,
    NotFound,
    Gone,
    /// By a fault; the request itself is valid.
    Status {
        code: u16,
        retry_after_s: Option<u32>,
    },
}

impl FakePushService {
    pub(crate) fn accept(self, location: &str, ttl_s: u32) -> FakeAnswer {
        let answer = FakeAnswer::empty(201).with("location", location);
        match self {
            Self::Wns => {
                answer.with("x-wns-status", "received").with("x-wns-notificationstatus", "received")
            }
            Self::Apple => answer.with("apns-id", location.rsplit('/').next().unwrap_or_default()),
            Self::Generic | Self::Fcm | Self::Mozilla => answer.with("ttl", &ttl_s.to_string()),
        }
    }

    pub(crate) fn refuse(self, refusal: PushRefusal) -> FakeAnswer {
        let texts = texts(refusal);
        let status = match (self, refusal) {
            (Self::Apple, PushRefusal::KeyMismatch) => 400,
            (Self::Mozilla, refusal) if refusal.is_about_the_sender() => 401,
            (Self::Fcm | Self::Apple, refusal) if refusal.is_about_the_sender() => 403,
            _ => texts.status,
        };
        let answer = match self {
            Self::Generic | Self::Fcm => FakeAnswer::text(status, texts.text),
            Self::Mozilla => mozilla(status, &texts),
            Self::Apple => FakeAnswer::json(status, &json!({ "reason": texts.apple_reason })),
            Self::Wns => wns(status, texts.text),
        };
        match (refusal, self) {
            (PushRefusal::Status { code: 503, retry_after_s: None }, Self::Mozilla) => {
                answer.with_retry_after(Some(120))
            }
            (PushRefusal::Status { retry_after_s, .. }, _) => {
                answer.with_retry_after(retry_after_s)
            }
            (PushRefusal::Gone, Self::Mozilla) => answer.with("cache-control", "max-age=86400"),
            _ => answer,
        }
    }
}

impl PushRefusal {
    pub(crate) fn is_about_the_sender(self) -> bool {
        matches!(self, Self::Vapid(_) | Self::Subject | Self::KeyMismatch)
    }
}

fn mozilla(status: u16, texts: &RefusalTexts) -> FakeAnswer {
    let error = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    let body = json!({
        "code": status,
        "errno": texts.mozilla_errno,
        "error": error,
        "message": texts.text,
        "more_info": "http://autopush.readthedocs.io/en/latest/http.html#error-codes",
    });
    FakeAnswer::json(status, &body)
}

/// WNS says everything in headers, and throttles with 406.
fn wns(status: u16, text: &str) -> FakeAnswer {
    let (status, state) =
        if status == 429 { (406, "channelthrottled") } else { (status, "dropped") };
    let answer = FakeAnswer::empty(status).with("x-wns-status", state);
    answer.with("x-wns-error-description", text)
}

/// One refusal in the words of each service. Where a service has its own status, `refuse` knows it.
struct RefusalTexts {
    status: u16,
    text: &'static str,
    mozilla_errno: Option<u16>,
    apple_reason: &'static str,
}

fn texts(refusal: PushRefusal) -> RefusalTexts {
    use PushRefusal as Refusal;
    let (status, text, mozilla_errno, apple_reason) = match refusal {
        Refusal::TtlMissing => (400, "Missing TTL header", Some(111), "BadTtl"),
        Refusal::TtlInvalid => (400, "Invalid TTL header", Some(112), "BadTtl"),
        Refusal::TtlNegative => (400, "TTL must not be negative", Some(114), "BadTtl"),
        Refusal::Topic => (400, "Invalid Topic header", Some(113), "BadWebPushTopic"),
        Refusal::Urgency => (400, "Invalid Urgency header", None, "BadUrgency"),
        Refusal::Encoding => {
            (400, "Content-Encoding must be aes128gcm", Some(110), "BadWebPushRequest")
        }
        Refusal::Undecryptable => {
            let text = "The subscription's keys do not open this body";
            (400, text, Some(110), "BadWebPushRequest")
        }
        Refusal::CachePolicy => {
            (400, "Ttl value conflicts with X-WNS-Cache-Policy.", None, "BadTtl")
        }
        Refusal::Vapid(error) => {
            let (status, text, reason) = vapid_texts(error);
            (status, text, Some(109), reason)
        }
        Refusal::Subject => {
            (403, "the sub claim is missing or not acceptable", Some(109), "BadJwtToken")
        }
        Refusal::KeyMismatch => {
            let text = "the VAPID credentials in the authorization header do not correspond to the \
                        credentials used to create the subscriptions.";
            (403, text, Some(109), "VapidPkHashMismatch")
        }
        Refusal::NotFound | Refusal::Status { code: 404, .. } => {
            let text = "A valid push subscription endpoint should be specified in the URL as such: \
                        /push/<id>";
            (404, text, Some(102), "BadPath")
        }
        Refusal::Gone | Refusal::Status { code: 410, .. } => {
            (410, "push subscription has unsubscribed or expired.", Some(106), "Unregistered")
        }
        Refusal::TooLarge | Refusal::Status { code: 413, .. } => {
            (413, "Payload larger than 4096 bytes", Some(104), "PayloadTooLarge")
        }
        Refusal::Status { code, .. } => {
            let (text, errno, reason) = match code {
                400 => ("bad request", None, "BadWebPushRequest"),
                401 => ("sender is not authenticated.", Some(109), "BadAuthorizationHeader"),
                403 => ("sender is not authenticated.", Some(109), "BadJwtToken"),
                429 => ("too many requests", None, "TooManyRequests"),
                500 => ("internal error", Some(999), "InternalServerError"),
                503 => ("service unavailable", Some(201), "ServiceUnavailable"),
                _ => ("refused by the sandbox", None, "InternalServerError"),
            };
            (code, text, errno, reason)
        }
    };
    RefusalTexts { status, text, mozilla_errno, apple_reason }
}

/// Status, text and Apple's reason.
fn vapid_texts(error: FakeVapidError) -> (u16, &'static str, &'static str) {
    use FakeVapidError as Error;
    match error {
        Error::Missing => (401, "authorization header had no value.", "BadAuthorizationHeader"),
        Error::Malformed => {
            (401, "authorization header had invalid format.", "BadAuthorizationHeader")
        }
        Error::Key => (403, "public key must be 65 bytes long.", "BadVapidPublicKey"),
        Error::Token => (403, "invalid JWT provided", "BadJwtToken"),
        Error::ExpiryMissing => (403, "exp claim is missing.", "BadJwtToken"),
        Error::Expired => (403, "token has expired.", "BadJwtToken"),
        Error::ExpiryTooFar => {
            let text = "exp claim MUST NOT be more than 24 hours from the time of the request.";
            (403, text, "BadJwtToken")
        }
        Error::Audience => {
            let text = "aud claim in the token MUST include the origin of the push resource URL.";
            (403, text, "BadJwtToken")
        }
    }
}
