//! How each push service words its answers: status, body and headers. Checks no request.

use http::StatusCode;
use serde::{Deserialize, Serialize};

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

/// Why a push is not taken.
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
    /// By a fault, without a reason of the request's own.
    Status {
        code: u16,
        retry_after_s: Option<u32>,
    },
}

/// One refusal as each service writes it: Mozilla's errno and message, Apple's reason, and the plain text of
/// FCM, which the generic service also uses.
struct RefusalTexts {
    status: u16,
    text: &'static str,
    fcm_status: u16,
    mozilla: (u16, Option<u16>, &'static str),
    apple: (u16, &'static str),
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
        let answer = match self {
            Self::Generic => FakeAnswer::text(texts.status, texts.text),
            Self::Fcm => FakeAnswer::text(texts.fcm_status, texts.text),
            Self::Mozilla => mozilla(texts.mozilla),
            Self::Apple => apple(texts.apple),
            Self::Wns => wns(texts.status, texts.text),
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

fn mozilla((status, errno, message): (u16, Option<u16>, &str)) -> FakeAnswer {
    let error = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    FakeAnswer::json(
        status,
        &serde_json::json!({
            "code": status,
            "errno": errno,
            "error": error,
            "message": message,
            "more_info": "http://autopush.readthedocs.io/en/latest/http.html#error-codes",
        }),
    )
}

fn apple((status, reason): (u16, &str)) -> FakeAnswer {
    FakeAnswer::json(status, &serde_json::json!({ "reason": reason }))
}

/// WNS says everything in headers, and throttles with 406.
fn wns(status: u16, text: &str) -> FakeAnswer {
    let (status, state) =
        if status == 429 { (406, "channelthrottled") } else { (status, "dropped") };
    let answer = FakeAnswer::empty(status).with("x-wns-status", state);
    answer.with("x-wns-error-description", text)
}

fn texts(refusal: PushRefusal) -> RefusalTexts {
    let plain = |status, text, errno, reason| RefusalTexts {
        status,
        text,
        fcm_status: status,
        mozilla: (status, errno, text),
        apple: (status, reason),
    };
    use PushRefusal as Refusal;
    match refusal {
        Refusal::TtlMissing => plain(400, "Missing TTL header", Some(111), "BadTtl"),
        Refusal::TtlInvalid => plain(400, "Invalid TTL header", Some(112), "BadTtl"),
        Refusal::TtlNegative => plain(400, "TTL must not be negative", Some(114), "BadTtl"),
        Refusal::Topic => plain(400, "Invalid Topic header", Some(113), "BadWebPushTopic"),
        Refusal::Urgency => plain(400, "Invalid Urgency header", None, "BadUrgency"),
        Refusal::Encoding => {
            plain(400, "Content-Encoding must be aes128gcm", Some(110), "BadWebPushRequest")
        }
        Refusal::TooLarge => {
            plain(413, "Payload larger than 4096 bytes", Some(104), "PayloadTooLarge")
        }
        Refusal::Undecryptable => plain(
            400,
            "The subscription's keys do not open this body",
            Some(110),
            "BadWebPushRequest",
        ),
        Refusal::CachePolicy => {
            plain(400, "Ttl value conflicts with X-WNS-Cache-Policy.", None, "BadTtl")
        }
        Refusal::NotFound => plain(
            404,
            "A valid push subscription endpoint should be specified in the URL as such: /push/<id>",
            Some(102),
            "BadPath",
        ),
        Refusal::Gone => {
            plain(410, "push subscription has unsubscribed or expired.", Some(106), "Unregistered")
        }
        Refusal::Vapid(error) => vapid_texts(error),
        Refusal::Subject => vapid("the sub claim is missing or not acceptable", 403, "BadJwtToken"),
        Refusal::KeyMismatch => vapid(
            "the VAPID credentials in the authorization header do not correspond to the credentials \
             used to create the subscriptions.",
            400,
            "VapidPkHashMismatch",
        ),
        Refusal::Status { code, .. } => by_status(code),
    }
}

fn vapid_texts(error: FakeVapidError) -> RefusalTexts {
    let (text, reason) = match error {
        FakeVapidError::Missing => ("authorization header had no value.", "BadAuthorizationHeader"),
        FakeVapidError::Malformed => {
            ("authorization header had invalid format.", "BadAuthorizationHeader")
        }
        FakeVapidError::Key => ("public key must be 65 bytes long.", "BadVapidPublicKey"),
        FakeVapidError::Token => ("invalid JWT provided", "BadJwtToken"),
        FakeVapidError::ExpiryMissing => ("exp claim is missing.", "BadJwtToken"),
        FakeVapidError::Expired => ("token has expired.", "BadJwtToken"),
        FakeVapidError::ExpiryTooFar => (
            "exp claim MUST NOT be more than 24 hours from the time of the request.",
            "BadJwtToken",
        ),
        FakeVapidError::Audience => (
            "aud claim in the token MUST include the origin of the push resource URL.",
            "BadJwtToken",
        ),
    };
    vapid(text, 403, reason)
}

fn vapid(text: &'static str, apple_status: u16, reason: &'static str) -> RefusalTexts {
    RefusalTexts {
        status: if reason == "BadAuthorizationHeader" { 401 } else { 403 },
        text,
        fcm_status: 403,
        mozilla: (401, Some(109), text),
        apple: (apple_status, reason),
    }
}

fn by_status(code: u16) -> RefusalTexts {
    let (text, errno, reason) = match code {
        400 => ("bad request", None, "BadWebPushRequest"),
        401 => ("sender is not authenticated.", Some(109), "BadAuthorizationHeader"),
        403 => ("sender is not authenticated.", Some(109), "BadJwtToken"),
        404 => return texts(PushRefusal::NotFound),
        410 => return texts(PushRefusal::Gone),
        413 => return texts(PushRefusal::TooLarge),
        429 => ("too many requests", None, "TooManyRequests"),
        500 => ("internal error", Some(999), "InternalServerError"),
        503 => ("service unavailable", Some(201), "ServiceUnavailable"),
        _ => ("refused by the sandbox", None, "InternalServerError"),
    };
    RefusalTexts {
        status: code,
        text,
        fcm_status: code,
        mozilla: (code, errno, text),
        apple: (code, reason),
    }
}
