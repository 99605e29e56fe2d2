//! Twilio's Messages resource, as far as a sender sees it.

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method};
use hyper::body::Incoming;

use super::api::{Api, twilio_error};
use super::body::{self, ReadError};
use super::correlation::{Correlation, hash};
use super::counts::Flaw;
use super::flavour::Answer;
use super::service::{App, Arrival, Refused, header_text};
use super::target::{Detail, Kind, Last};

const BODY_MAX: usize = 1 << 20;
const TEXT_MAX: usize = 1600;
const VALIDITY_S: std::ops::RangeInclusive<u32> = 1..=36_000;

/// `/2010-04-01/Accounts/<AC…>/Messages.json`
pub(super) fn account_of(path: &str) -> Option<&str> {
    let account = path.strip_prefix("/2010-04-01/Accounts/")?.strip_suffix("/Messages.json")?;
    (!account.is_empty() && !account.contains('/')).then_some(account)
}

pub(super) async fn receive(
    app: &App,
    parts: Parts,
    body: Incoming,
) -> Result<Result<Arrival, Refused>, ReadError> {
    let content = match body::read(body, BODY_MAX).await {
        Ok(content) => content,
        Err(ReadError::TooLarge) => {
            return Ok(Err(*refused(Flaw::Request, Answer::text(413, "larger than 1 MiB\n"))));
        }
        Err(error) => return Err(error),
    };
    Ok(read(&parts, &content).map_err(|refused| *refused).map(|(to, id)| {
        let target = app.targets.get_or_put(Kind::Sms, &to, Detail::Phone);
        target.remember(Last { method: parts.method, headers: parts.headers, body: content });
        Arrival { target, id, ttl_s: 0, api: Some(Api::Twilio) }
    }))
}

/// The number, and the digest of number and text: Twilio knows no idempotency key.
fn read(parts: &Parts, content: &Bytes) -> Result<(String, Correlation), Box<Refused>> {
    let account = account_of(parts.uri.path()).unwrap_or_default();
    if !may_send(&parts.headers, account) {
        return Err(refused(Flaw::Signature, twilio_error(401, 20003, "Authenticate")));
    }
    let wrong = |code, message: &str| refused(Flaw::Request, twilio_error(400, code, message));
    if parts.method != Method::POST {
        return Err(refused(Flaw::Request, twilio_error(405, 20004, "Method not allowed")));
    }
    let kind = header_text(&parts.headers, "content-type").unwrap_or_default();
    if !kind.starts_with("application/x-www-form-urlencoded") {
        return Err(refused(Flaw::Request, twilio_error(415, 20415, "Unsupported Media Type")));
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
    let id = Correlation::Digest(hash(0, format!("{to}\n{text}").as_bytes()));
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
pub(super) fn may_send(headers: &HeaderMap, account: &str) -> bool {
    let given = header_text(headers, "authorization").and_then(|t| t.strip_prefix("Basic "));
    let pair = given.and_then(|text| BASE64_STANDARD.decode(text).ok());
    let pair = pair.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let Some((user, secret)) = pair.split_once(':') else { return false };
    (user == account || user.starts_with("SK")) && !secret.is_empty() && secret != "wrong"
}

fn refused(flaw: Flaw, answer: Answer) -> Box<Refused> {
    Box::new(Refused { kind: Kind::Sms, flaw, answer })
}
