//! Amazon SES v2 and SendGrid v3, as far as a sender sees them: signature or key, shape of the call, the
//! mail itself.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method};
use hyper::body::Incoming;
use postrider_channels::email::{Signed, Signer};
use postrider_core::Timestamp;
use serde_json::Value;

use super::api::{Api, sendgrid_error, ses_error};
use super::body::{self, ReadError};
use super::correlation::Correlation;
use super::counts::Flaw;
use super::flavour::Answer;
use super::service::{App, Arrival, Refused, header_text};
use super::smtp;
use super::target::{Detail, Kind, Last};

const BODY_MAX: usize = 40 << 20;
const CLOCK_SKEW_S: i64 = 5 * 60;
/// Who uses this key id must sign with this secret; nobody else is known.
pub(super) const KEY_ID: &str = "AKIDSANDBOX";
const SECRET: &str = "sandbox-secret";

pub(super) async fn receive(
    app: &App,
    parts: Parts,
    body: Incoming,
    api: Api,
) -> Result<Result<Arrival, Refused>, ReadError> {
    let content = match body::read(body, BODY_MAX).await {
        Ok(content) => content,
        Err(ReadError::TooLarge) => return Ok(Err(*refused(Flaw::Request, api.refuse(413, None)))),
        Err(error) => return Err(error),
    };
    if parts.method != Method::POST {
        return Ok(Err(*refused(Flaw::Request, Answer::text(405, "POST\n"))));
    }
    let read = match api {
        Api::Ses => ses(&parts, &content, app.now_s()),
        _ => sendgrid(&parts.headers, &content),
    };
    Ok(read.map_err(|refused| *refused).map(|(to, id)| {
        let target = app.targets.get_or_put(Kind::Email, &to.to_lowercase(), Detail::Mailbox);
        target.remember(Last { method: parts.method, headers: parts.headers, body: content });
        Arrival { target, id, ttl_s: 0, api: Some(api) }
    }))
}

type Read = Result<(String, Correlation), Box<Refused>>;

fn ses(parts: &Parts, content: &Bytes, now_s: i64) -> Read {
    verify(parts, content, now_s)
        .map_err(|(kind, why)| refused(Flaw::Signature, ses_error(403, kind, why)))?;
    let wrong = |why: &str| refused(Flaw::Request, ses_error(400, "BadRequestException", why));
    let call: Value = serde_json::from_slice(content).map_err(|_| wrong("not JSON"))?;
    let to =
        call["Destination"]["ToAddresses"][0].as_str().ok_or_else(|| wrong("no ToAddresses"))?;
    if call["FromEmailAddress"].as_str().is_none_or(|from| !from.contains('@')) {
        return Err(wrong("FromEmailAddress is missing or no address"));
    }
    let mail = call["Content"]["Raw"]["Data"].as_str().and_then(|d| BASE64_STANDARD.decode(d).ok());
    let mail = mail.ok_or_else(|| wrong("Content.Raw.Data is not base64"))?;
    if let Some(flaw) = smtp::flaw(&mail) {
        return Err(wrong(flaw));
    }
    let id = smtp::correlation(&mail);
    Ok((to.to_owned(), id))
}

/// The kind of an error of Amazon's, and its words.
type Unsigned = (&'static str, &'static str);

/// What Amazon has against the signature of a call.
pub(super) fn verify(parts: &Parts, content: &[u8], now_s: i64) -> Result<(), Unsigned> {
    let headers = &parts.headers;
    let given = header_text(headers, "authorization")
        .ok_or(("MissingAuthenticationTokenException", "Missing Authentication Token"))?;
    let incomplete = |why| ("IncompleteSignatureException", why);
    let date = header_text(headers, "x-amz-date").ok_or(incomplete("x-amz-date is missing"))?;
    let at = read_time(date).ok_or(incomplete("x-amz-date is not a time"))?;
    if at.abs_diff(now_s) > CLOCK_SKEW_S as u64 {
        return Err(("SignatureDoesNotMatch", "Signature expired"));
    }
    let scope = given
        .strip_prefix("AWS4-HMAC-SHA256 Credential=")
        .and_then(|rest| rest.split(',').next())
        .ok_or(incomplete("not AWS4-HMAC-SHA256"))?;
    let [key_id, _, region, service, "aws4_request"] = scope.split('/').collect::<Vec<_>>()[..]
    else {
        return Err(("SignatureDoesNotMatch", "Credential should be scoped to a valid region."));
    };
    if service != "ses" {
        let why = "Credential should be scoped to correct service: 'ses'.";
        return Err(("SignatureDoesNotMatch", why));
    }
    if key_id != KEY_ID {
        let why = "The security token included in the request is invalid.";
        return Err(("UnrecognizedClientException", why));
    }
    let host = header_text(headers, "host").map(str::to_owned);
    let host = host.or_else(|| parts.uri.authority().map(ToString::to_string)).unwrap_or_default();
    let mut signed = Vec::new();
    for name in ["content-type", "x-amz-security-token"] {
        signed.extend(header_text(headers, name).map(|value| (name, value)));
    }
    let signer = Signer { key_id, secret: SECRET, region, service };
    let request = Signed {
        method: parts.method.as_str(),
        host: &host,
        path: parts.uri.path(),
        headers: &signed,
        body: content,
    };
    let (_, expected) = signer.sign(&request, Timestamp::from_secs(at));
    verify_slices_are_equal(expected.as_bytes(), given.as_bytes()).map_err(|_| {
        let why = "The request signature we calculated does not match the signature you provided.";
        ("SignatureDoesNotMatch", why)
    })
}

/// `20150830T123600Z`
fn read_time(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z')?.replacen('T', "", 1);
    let number = |from: usize, to: usize| digits.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (h, m, s) = (number(8, 10)?, number(10, 12)?, number(12, 14)?);
    let days = postrider_core::model::time::days_from_civil(
        year,
        u32::try_from(month).ok()?,
        u32::try_from(day).ok()?,
    );
    Some(days * 86_400 + h * 3600 + m * 60 + s)
}

fn sendgrid(headers: &HeaderMap, content: &Bytes) -> Read {
    if !has_key(headers) {
        return Err(refused(Flaw::Signature, Api::SendGrid.refuse(401, None)));
    }
    let wrong =
        |why: &str, field: &str| refused(Flaw::Request, sendgrid_error(400, why, Some(field)));
    let call: Value = serde_json::from_slice(content).map_err(|_| wrong("Bad Request", ""))?;
    let to = call["personalizations"][0]["to"][0]["email"].as_str();
    let to = to.filter(|to| to.contains('@')).ok_or_else(|| {
        wrong("Does not contain a valid address.", "personalizations.0.to.0.email")
    })?;
    if call["from"]["email"].as_str().is_none_or(|from| !from.contains('@')) {
        return Err(wrong("The from email does not contain a valid address.", "from.email"));
    }
    if call["subject"].as_str().is_none_or(str::is_empty) {
        return Err(wrong("The subject is required.", "subject"));
    }
    let parts = call["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    if parts.is_empty() || parts.iter().any(|p| p["value"].as_str().is_none_or(str::is_empty)) {
        return Err(wrong(
            "The content value must be a string at least one character in length.",
            "content.0.value",
        ));
    }
    if parts.iter().skip(1).any(|part| part["type"] == "text/plain") {
        return Err(wrong("If present, text/plain must be first.", "content"));
    }
    let id = call["custom_args"]["delivery"].as_str().map(Correlation::from_text);
    Ok((to.to_owned(), id.unwrap_or_else(|| Correlation::from_content(content))))
}

/// Every key of SendGrid's but `wrong`.
pub(super) fn has_key(headers: &HeaderMap) -> bool {
    let key = header_text(headers, "authorization").and_then(|text| text.strip_prefix("Bearer "));
    key.is_some_and(|key| !key.is_empty() && key != "wrong")
}

fn refused(flaw: Flaw, answer: Answer) -> Box<Refused> {
    Box::new(Refused { kind: Kind::Email, flaw, answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amazon_s_time_is_read() {
        assert_eq!(read_time("20150830T123600Z"), Some(1_440_938_160));
        assert_eq!(read_time("yesterday"), None);
    }
}
