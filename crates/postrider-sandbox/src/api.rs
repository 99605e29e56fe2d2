//! Mail, SMS and chat providers that are spoken to over HTTP: how each of them says yes and no, to the
//! letter. Checks nothing itself: see [`super::mailapi`], [`super::sms`] and [`super::chat`].

use http::header;
use serde_json::{Value, json};

use super::flavour::Answer;
use super::service::now_s;
use super::{apns, fcm};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Fcm,
    Apns,
    Ses,
    SendGrid,
    Twilio,
    Slack,
    Discord,
    /// What Power Automate runs.
    Teams,
    /// An Office connector, which says 200 to everything.
    Connector,
}

impl Api {
    /// `id` is what the provider calls the message.
    pub(super) fn accept(self, id: u64) -> Answer {
        match self {
            Self::Fcm => fcm::accept(id),
            Self::Apns => Answer::empty(200),
            Self::Ses => Answer::json(200, &json!({ "MessageId": format!("{id:016x}-000000") })),
            Self::SendGrid => {
                let mut answer = Answer::empty(202);
                set(&mut answer, "x-message-id", &format!("{id:016x}"));
                answer
            }
            Self::Twilio => Answer::json(201, &twilio_message(id)),
            Self::Slack => Answer::text(200, "ok"),
            Self::Discord => Answer::empty(204),
            Self::Teams => Answer::empty(202),
            Self::Connector => Answer::text(200, "1"),
        }
    }

    /// A fault's status in the provider's own words. What it never says is the nearest that it does.
    pub(super) fn refuse(self, status: u16, retry_after_s: Option<u32>) -> Answer {
        let mut answer = match self {
            Self::Fcm => fcm::refuse(status),
            Self::Apns => apns::refuse(status),
            Self::Ses => ses(status),
            Self::SendGrid => sendgrid(status, retry_after_s),
            Self::Twilio => twilio(status),
            Self::Slack => slack(status),
            Self::Discord => return discord(status, retry_after_s),
            Self::Teams => {
                Answer::json(status, &json!({ "error": { "code": "RefusedBySandbox" } }))
            }
            Self::Connector => return connector(status),
        };
        if let Some(seconds) = retry_after_s {
            answer.headers.insert(header::RETRY_AFTER, seconds.into());
        }
        answer
    }
}

pub(super) fn set(answer: &mut Answer, name: &'static str, value: &str) {
    answer.set(header::HeaderName::from_static(name), value);
}

/// `{"message": …}` with the type in a header.
pub(super) fn ses_error(status: u16, kind: &str, message: &str) -> Answer {
    let mut answer = Answer::json(status, &json!({ "message": message }));
    set(&mut answer, "x-amzn-errortype", kind);
    answer
}

fn ses(status: u16) -> Answer {
    match status {
        429 => ses_error(429, "TooManyRequestsException", "Maximum sending rate exceeded."),
        401 | 403 => ses_error(
            403,
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you provided.",
        ),
        404 | 410 => ses_error(404, "NotFoundException", "Template does not exist."),
        500..=599 => ses_error(status, "InternalServiceErrorException", "Internal failure"),
        _ => ses_error(400, "MessageRejected", "Email address is not verified."),
    }
}

pub(super) fn sendgrid_error(status: u16, message: &str, field: Option<&str>) -> Answer {
    Answer::json(
        status,
        &json!({ "errors": [{ "message": message, "field": field, "help": null }] }),
    )
}

fn sendgrid(status: u16, retry_after_s: Option<u32>) -> Answer {
    let message = match status {
        401 => "The provided authorization grant is invalid, expired, or revoked",
        403 => "The from address does not match a verified Sender Identity.",
        413 => "The payload is too large.",
        429 => "too many requests",
        _ => "refused by the sandbox's fault profile",
    };
    let mut answer = sendgrid_error(status, message, None);
    if status == 429 {
        let reset = now_s() + i64::from(retry_after_s.unwrap_or(60));
        set(&mut answer, "x-ratelimit-limit", "600");
        set(&mut answer, "x-ratelimit-remaining", "0");
        set(&mut answer, "x-ratelimit-reset", &reset.to_string());
    }
    answer
}

fn twilio_message(id: u64) -> Value {
    json!({
        "sid": format!("SM{id:032x}"),
        "status": "queued",
        "num_segments": "1",
        "direction": "outbound-api",
        "api_version": "2010-04-01",
        "price": null,
        "error_code": null,
        "error_message": null,
    })
}

pub(super) fn twilio_error(status: u16, code: u32, message: &str) -> Answer {
    Answer::json(
        status,
        &json!({
            "code": code,
            "message": message,
            "more_info": format!("https://www.twilio.com/docs/errors/{code}"),
            "status": status,
        }),
    )
}

fn twilio(status: u16) -> Answer {
    match status {
        401 | 403 => twilio_error(401, 20003, "Authenticate"),
        404 | 410 => twilio_error(400, 21614, "'To' number is not a valid mobile number"),
        429 => twilio_error(429, 20429, "Too Many Requests"),
        503 => twilio_error(503, 20503, "Service unavailable"),
        500..=599 => twilio_error(status, 20500, "Internal Server Error"),
        _ => twilio_error(
            400,
            21617,
            "The concatenated message body exceeds the 1600 character limit",
        ),
    }
}

fn slack(status: u16) -> Answer {
    match status {
        403 => Answer::text(403, "action_prohibited"),
        401 => Answer::text(403, "invalid_token"),
        404 => Answer::text(404, "no_service"),
        410 => Answer::text(410, "channel_is_archived"),
        429 => Answer::text(429, "rate_limited"),
        500..=599 => Answer::text(status, "rollup_error"),
        _ => Answer::text(400, "invalid_payload"),
    }
}

pub(super) fn discord_error(status: u16, code: u32, message: &str) -> Answer {
    Answer::json(status, &json!({ "message": message, "code": code }))
}

fn discord(status: u16, retry_after_s: Option<u32>) -> Answer {
    match status {
        401 => discord_error(401, 50027, "Invalid Webhook Token"),
        404 | 410 => discord_error(404, 10015, "Unknown Webhook"),
        429 => {
            let wait = retry_after_s.unwrap_or(1);
            let limited = "You are being rate limited.";
            let mut answer = Answer::json(
                429,
                &json!({ "message": limited, "retry_after": f64::from(wait), "global": false }),
            );
            answer.headers.insert(header::RETRY_AFTER, wait.into());
            set(&mut answer, "x-ratelimit-remaining", "0");
            set(&mut answer, "x-ratelimit-reset-after", &wait.to_string());
            set(&mut answer, "x-ratelimit-scope", "user");
            answer
        }
        400 | 413 | 422 => discord_error(400, 50035, "Invalid Form Body"),
        other => discord_error(other, 0, "refused by the sandbox's fault profile"),
    }
}

fn connector(status: u16) -> Answer {
    let told = format!(
        "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error \
         {status} with ContextId tcid=0,server=sandbox,cv=0.0"
    );
    let mut answer = Answer::empty(200);
    answer.body = told.into();
    answer
}
