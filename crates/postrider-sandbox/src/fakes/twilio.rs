//! Twilio: the Messages resource, as far as a sender sees it.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postrider_channels::sms::segments::{self, SmsEncoding};
use serde_json::{Value, json};

use super::RejectedRequest;
use super::{CheckedRequest, FakeCall, FakeCheckResult, FakeEntry, FakeKind, FakeProvider};
use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::inbox::view::{InboxForm, InboxText, InboxView};
use crate::sample::{ChannelSample, ShownId};
use crate::service::SandboxState;

const MESSAGES: &str = "/Messages.json";
const TEXT_MAX: usize = 1600;
const VALIDITY_S: std::ops::RangeInclusive<u32> = 1..=36_000;

/// The account in `/2010-04-01/Accounts/<AC…><page>`.
fn account_of<'a>(path: &'a str, page: &str) -> Option<&'a str> {
    let account = path.strip_prefix("/2010-04-01/Accounts/")?.strip_suffix(page)?;
    (!account.is_empty() && !account.contains('/')).then_some(account)
}

/// The account in the path of its messages or of its own page.
fn asked_account(path: &str) -> Option<&str> {
    account_of(path, MESSAGES).or_else(|| account_of(path, ".json"))
}

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("sms"),
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
        name: |_, number| format!("+1555{number:07}"),
        address: |_, phone| json!({"channel": "sms", "phone": phone}),
    },
    show: |shown| {
        let form: HashMap<_, _> = url::form_urlencoded::parse(&shown.request.body).collect();
        let field = |name: &str| form.get(name).map_or("", |value| &**value);
        let text = field("Body");
        let size = segments::of(text);
        let encoding = match size.encoding {
            SmsEncoding::Gsm7 => "GSM-7",
            SmsEncoding::Ucs2 => "UCS-2",
        };
        let from = [field("From"), field("MessagingServiceSid")].concat();
        let segments = segments::split(text).into_iter().map(str::to_owned).collect();
        let form = InboxText { from, encoding, units: size.units, segments };
        let (title, preview) = text.split_once('\n').unwrap_or((text, ""));
        InboxView::new(title, preview, InboxForm::Text(form))
    },
    server_config: |sandbox, folder| {
        let from = "account_sid = \"AC1\"\nfrom = \"+15550100\"";
        let settings = format!("{from}\n{}", sandbox.endpoint());
        sandbox.account(folder, ["phone", "sms", "demo"], &settings)
    },
};

struct FakeTwilio;

impl FakeProvider for FakeTwilio {
    fn serves(&self, path: &str) -> bool {
        account_of(path, MESSAGES).is_some()
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        let (to, id) = read(call)?;
        Ok(call.checked(ENTRY.kind, &to, id, 0))
    }

    fn accept(&self, _: &SandboxState, _: &CheckedRequest, message_id: u64) -> FakeAnswer {
        FakeAnswer::json(201, &twilio_message(message_id))
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
        match status {
            401 | 403 => unauthorized(),
            404 | 410 => twilio_error(400, 21614, "'To' number is not a valid mobile number"),
            429 => twilio_error(429, 20429, "Too Many Requests"),
            503 => twilio_error(503, 20503, "Service unavailable"),
            500..=599 => twilio_error(status, 20500, "Internal Server Error"),
            _ => too_long(),
        }
    }

    fn is_side_call(&self, call: &FakeCall<'_>) -> bool {
        call.is_get() && asked_account(call.path()).is_some()
    }

    fn answer_side_call(&self, call: &FakeCall<'_>) -> FakeAnswer {
        let account = asked_account(call.path()).unwrap_or_default();
        if !may_send(call, account) {
            return unauthorized();
        }
        let page = json!({ "sid": account, "status": "active", "type": "Full", "messages": [] });
        FakeAnswer::json(200, &page)
    }
}

/// The number, and the digest of number and text: Twilio has no idempotency key.
fn read(call: &FakeCall<'_>) -> FakeCheckResult<(String, CorrelationId)> {
    if !may_send(call, account_of(call.path(), MESSAGES).unwrap_or_default()) {
        return Err(RejectedRequest::signature(unauthorized()));
    }
    let wrong = |code, message: &str| RejectedRequest::request(twilio_error(400, code, message));
    if !call.is_post() {
        return Err(RejectedRequest::request(twilio_error(405, 20004, "Method not allowed")));
    }
    let kind = call.header("content-type").unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(RejectedRequest::request(twilio_error(415, 20415, "Unsupported Media Type")));
    }
    let form = url::form_urlencoded::parse(call.body).into_owned();
    let form: HashMap<String, String> = form.collect();
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
        return Err(RejectedRequest::request(too_long()));
    }
    let validity = field("ValidityPeriod").map(str::parse::<u32>);
    if validity.is_some_and(|seconds| !seconds.is_ok_and(|s| VALIDITY_S.contains(&s))) {
        return Err(wrong(20001, "Parameter ValidityPeriod is not valid"));
    }
    Ok((to.to_owned(), CorrelationId::of_text(to, text)))
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
fn may_send(call: &FakeCall<'_>, account: &str) -> bool {
    let given = call.header("authorization").and_then(|text| text.strip_prefix("Basic "));
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

fn unauthorized() -> FakeAnswer {
    twilio_error(401, 20003, "Authenticate")
}

fn too_long() -> FakeAnswer {
    twilio_error(400, 21617, "The concatenated message body exceeds the 1600 character limit")
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
