//! How each push service words its answers: status, body and headers. Decides nothing about
//! whether a request is in order.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};

use super::vapid::VapidError;

/// The service whose manners a subscription has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flavour {
    #[default]
    Generic,
    Fcm,
    Mozilla,
    Apple,
    Wns,
}

/// Why a push is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    TtlMissing,
    TtlInvalid,
    TtlNegative,
    Topic,
    Urgency,
    Encoding,
    TooLarge,
    Undecryptable,
    CachePolicy,
    Vapid(VapidError),
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

/// An answer that is complete but for the framing.
#[derive(Debug, Default)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// One refusal in the words of each service: Mozilla's errno and message, Apple's reason, and
/// the plain text of FCM, which the generic service also uses.
struct Words {
    status: u16,
    text: &'static str,
    fcm_status: u16,
    mozilla: (u16, Option<u16>, &'static str),
    apple: (u16, &'static str),
}

impl Flavour {
    pub fn accept(self, location: &str, ttl_s: u32) -> Answer {
        let mut answer = Answer { status: StatusCode::CREATED, ..Answer::default() };
        answer.set(header::LOCATION, location);
        match self {
            Self::Wns => {
                answer.set(HeaderName::from_static("x-wns-status"), "received");
                answer.set(HeaderName::from_static("x-wns-notificationstatus"), "received");
            }
            Self::Apple => {
                let id = location.rsplit('/').next().unwrap_or_default();
                answer.set(HeaderName::from_static("apns-id"), id);
            }
            Self::Generic | Self::Fcm | Self::Mozilla => {
                answer.headers.insert(HeaderName::from_static("ttl"), ttl_s.into());
            }
        }
        answer
    }

    pub fn refuse(self, refusal: Refusal) -> Answer {
        let words = words(refusal);
        let mut answer = match self {
            Self::Generic => Answer::text(words.status, words.text),
            Self::Fcm => Answer::text(words.fcm_status, words.text),
            Self::Mozilla => mozilla(words.mozilla),
            Self::Apple => apple(words.apple),
            Self::Wns => wns(words.status, words.text),
        };
        match (refusal, self) {
            (Refusal::Status { retry_after_s: Some(seconds), .. }, _) => {
                answer.headers.insert(header::RETRY_AFTER, seconds.into());
            }
            (Refusal::Status { code: 503, .. }, Self::Mozilla) => {
                answer.headers.insert(header::RETRY_AFTER, 120.into());
            }
            (Refusal::Gone, Self::Mozilla) => answer.set(header::CACHE_CONTROL, "max-age=86400"),
            _ => {}
        }
        answer
    }
}

impl Answer {
    pub fn text(status: u16, text: &'static str) -> Self {
        let mut answer = Self::empty(status);
        answer.body = Bytes::from_static(text.as_bytes());
        answer.set(header::CONTENT_TYPE, "text/plain; charset=utf-8");
        answer
    }

    pub fn json(status: u16, value: &serde_json::Value) -> Self {
        let mut answer = Self::empty(status);
        answer.body = value.to_string().into();
        answer.set(header::CONTENT_TYPE, "application/json");
        answer
    }

    pub fn empty(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, ..Self::default() }
    }

    pub fn set(&mut self, name: HeaderName, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
    }

    /// The seconds that this answer asks its client to wait.
    pub fn retry_after_s(&self) -> Option<u32> {
        self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()
    }
}

fn mozilla((status, errno, message): (u16, Option<u16>, &str)) -> Answer {
    let error = StatusCode::from_u16(status).ok().and_then(|s| s.canonical_reason());
    Answer::json(
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

fn apple((status, reason): (u16, &str)) -> Answer {
    Answer::json(status, &serde_json::json!({ "reason": reason }))
}

/// WNS says everything in headers, and throttles with 406.
fn wns(status: u16, text: &str) -> Answer {
    let mut answer = Answer::empty(if status == 429 { 406 } else { status });
    let state = if status == 429 { "channelthrottled" } else { "dropped" };
    answer.set(HeaderName::from_static("x-wns-status"), state);
    answer.set(HeaderName::from_static("x-wns-error-description"), text);
    answer
}

fn words(refusal: Refusal) -> Words {
    let plain = |status, text, errno, reason| Words {
        status,
        text,
        fcm_status: status,
        mozilla: (status, errno, text),
        apple: (status, reason),
    };
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
        Refusal::Vapid(error) => vapid_words(error),
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

fn vapid_words(error: VapidError) -> Words {
    let (text, reason) = match error {
        VapidError::Missing => ("authorization header had no value.", "BadAuthorizationHeader"),
        VapidError::Malformed => {
            ("authorization header had invalid format.", "BadAuthorizationHeader")
        }
        VapidError::Key => ("public key must be 65 bytes long.", "BadVapidPublicKey"),
        VapidError::Token => ("invalid JWT provided", "BadJwtToken"),
        VapidError::ExpiryMissing => ("exp claim is missing.", "BadJwtToken"),
        VapidError::Expired => ("token has expired.", "BadJwtToken"),
        VapidError::ExpiryTooFar => (
            "exp claim MUST NOT be more than 24 hours from the time of the request.",
            "BadJwtToken",
        ),
        VapidError::Audience => (
            "aud claim in the token MUST include the origin of the push resource URL.",
            "BadJwtToken",
        ),
    };
    vapid(text, 403, reason)
}

fn vapid(text: &'static str, apple_status: u16, reason: &'static str) -> Words {
    Words {
        status: if reason == "BadAuthorizationHeader" { 401 } else { 403 },
        text,
        fcm_status: 403,
        mozilla: (401, Some(109), text),
        apple: (apple_status, reason),
    }
}

fn by_status(code: u16) -> Words {
    let (text, errno, reason) = match code {
        400 => ("bad request", None, "BadWebPushRequest"),
        401 => ("sender is not authenticated.", Some(109), "BadAuthorizationHeader"),
        403 => ("sender is not authenticated.", Some(109), "BadJwtToken"),
        404 => return words(Refusal::NotFound),
        410 => return words(Refusal::Gone),
        413 => return words(Refusal::TooLarge),
        429 => ("too many requests", None, "TooManyRequests"),
        500 => ("internal error", Some(999), "InternalServerError"),
        503 => ("service unavailable", Some(201), "ServiceUnavailable"),
        _ => ("refused by the sandbox", None, "InternalServerError"),
    };
    Words {
        status: code,
        text,
        fcm_status: code,
        mozilla: (code, errno, text),
        apple: (code, reason),
    }
}
