//! Twilio: the Messages resource, as far as a sender sees it.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::RejectedRequest;
use super::{CheckedRequest, FakeCall, FakeCheckResult, FakeEntry, FakeKind, FakeProvider};
use crate::answer::FakeAnswer;
use crate::correlation::{CorrelationId, hash};
use crate::sample::{ChannelSample, ShownId, credential_file};
use crate::service::{SandboxState, header_text};

const MESSAGES: &str = "/Messages.json";
const TEXT_MAX: usize = 1600;
const VALIDITY_S: std::ops::RangeInclusive<u32> = 1..=36_000;

/// The account in `/2010-04-01/Accounts/<AC…><page>`.
fn account_of<'a>(path: &'a str, page: &str) -> Option<&'a str> {
    let account = path.strip_prefix("/2010-04-01/Accounts/")?.strip_suffix(page)?;
    (!account.is_empty() && !account.contains('/')).then_some(account)
}

/// An account whose messages or whose own page is asked for.
fn asked_account(path: &str) -> Option<&str> {
    account_of(path, MESSAGES).or_else(|| account_of(path, ".json"))
}

impl FakeKind {
    pub const SMS: Self = Self::new("sms");
}

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind::SMS,
    make: |_| Ok(vec![Box::new(FakeTwilio)]),
    body_max: 1 << 20,
    setup_path: Some("sms"),
    control_calls: &["PUT /sandbox/sms/<phone> {faults, script}"],
    sample: ChannelSample {
        channel: "sms",
        shown_id: ShownId::Nothing,
        ttl: ("ValidityPeriod", |request| {
            let mut fields = url::form_urlencoded::parse(request["body"].as_str()?.as_bytes());
            fields.find(|(name, _)| name == "ValidityPeriod").map(|(_, value)| value.into())
        }),
        make: |sandbox, _, number, request| {
            let phone = format!("+1555{number:07}");
            sandbox.set_up(FakeKind::SMS, &phone, request)?;
            let address = json!({"channel": "sms", "phone": phone});
            Ok((phone, address))
        },
    },
    server_config: |sandbox, folder| {
        Ok(format!(
            "[accounts.phone]\nchannel = \"sms\"\naccount_sid = \"AC1\"\nfrom = \"+15550100\"\n\
             endpoint = \"https://127.0.0.1:{}\"\n{}",
            sandbox.https.port(),
            credential_file(folder, "twilio", "demo")?,
        ))
    },
};

struct FakeTwilio;

impl FakeProvider for FakeTwilio {
    fn serves(&self, path: &str) -> bool {
        account_of(path, MESSAGES).is_some()
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        let (to, id) = read(call.parts, call.body)?;
        Ok(call.checked(FakeKind::SMS, &to, id, 0))
    }

    fn accept(&self, _: &SandboxState, _: &CheckedRequest, message_id: u64) -> FakeAnswer {
        FakeAnswer::json(201, &twilio_message(message_id))
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
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

    fn is_side_call(&self, parts: &Parts) -> bool {
        parts.method == Method::GET && asked_account(parts.uri.path()).is_some()
    }

    fn answer_side_call(&self, _: &SandboxState, parts: &Parts, _: &Bytes) -> FakeAnswer {
        let account = asked_account(parts.uri.path()).unwrap_or_default();
        if !may_send(&parts.headers, account) {
            return twilio_error(401, 20003, "Authenticate");
        }
        let page = json!({ "sid": account, "status": "active", "type": "Full", "messages": [] });
        FakeAnswer::json(200, &page)
    }
}

/// The number, and the digest of number and text: Twilio knows no idempotency key.
fn read(parts: &Parts, content: &Bytes) -> Result<(String, CorrelationId), Box<RejectedRequest>> {
    let account = account_of(parts.uri.path(), MESSAGES).unwrap_or_default();
    if !may_send(&parts.headers, account) {
        return Err(RejectedRequest::signature(twilio_error(401, 20003, "Authenticate")));
    }
    let wrong = |code, message: &str| RejectedRequest::request(twilio_error(400, code, message));
    if parts.method != Method::POST {
        return Err(RejectedRequest::request(twilio_error(405, 20004, "Method not allowed")));
    }
    let kind = header_text(&parts.headers, "content-type").unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(RejectedRequest::request(twilio_error(415, 20415, "Unsupported Media Type")));
    }
    let form: HashMap<String, String> = url::form_urlencoded::parse(content).into_owned().collect();
    let field = |name: &str| form.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let to = field("To").ok_or_else(|| wrong(21604, "A 'To' phone number is required."))?;
    let digits = to.strip_prefix('+').unwrap_or_default();
    if !is_number(digits) {
        return Err(wrong(21211, "Invalid 'To' Phone Number"));
    }
    match (field("From"), field("MessagingServiceSid")) {
        (None, None) => return Err(wrong(21603, "A 'From' phone number is required.")),
        (Some(from), _) if !is_sender(from) => {
            return Err(wrong(21212, "Invalid 'From' Phone Number"));
        }
        (_, Some(service)) if !service.starts_with("MG") => {
            return Err(wrong(21705, "The 'MessagingServiceSid' is invalid"));
        }
        _ => {}
    }
    let text = field("Body").ok_or_else(|| wrong(21602, "Message body is required."))?;
    if text.chars().count() > TEXT_MAX {
        let message = "The concatenated message body exceeds the 1600 character limit";
        return Err(wrong(21617, message));
    }
    let validity = field("ValidityPeriod").map(str::parse::<u32>);
    if validity.is_some_and(|seconds| !seconds.is_ok_and(|s| VALIDITY_S.contains(&s))) {
        return Err(wrong(20001, "Parameter ValidityPeriod is not valid"));
    }
    let id = CorrelationId::Digest(hash(0, format!("{to}\n{text}").as_bytes()));
    Ok((to.to_owned(), id))
}

fn is_number(digits: &str) -> bool {
    (7..=15).contains(&digits.len())
        && !digits.starts_with('0')
        && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A number, a short code, or a name of up to 11 letters, digits and blanks.
fn is_sender(from: &str) -> bool {
    let short = (3..=8).contains(&from.len()) && from.bytes().all(|b| b.is_ascii_digit());
    let plain = |b: u8| b.is_ascii_alphanumeric() || b" &+-_".contains(&b);
    let name = from.len() <= 11
        && from.bytes().all(plain)
        && from.bytes().any(|b| b.is_ascii_alphabetic());
    from.strip_prefix('+').is_some_and(is_number) || short || name
}

/// Any secret but `wrong`, of the account itself or of an API key.
fn may_send(headers: &HeaderMap, account: &str) -> bool {
    let given = header_text(headers, "authorization").and_then(|t| t.strip_prefix("Basic "));
    let pair = given.and_then(|text| BASE64_STANDARD.decode(text).ok());
    let pair = pair.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let Some((user, secret)) = pair.split_once(':') else { return false };
    (user == account || user.starts_with("SK")) && !secret.is_empty() && secret != "wrong"
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

fn twilio_error(status: u16, code: u32, message: &str) -> FakeAnswer {
    FakeAnswer::json(
        status,
        &json!({
            "code": code,
            "message": message,
            "more_info": format!("https://www.twilio.com/docs/errors/{code}"),
            "status": status,
        }),
    )
}
