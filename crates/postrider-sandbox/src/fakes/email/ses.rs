//! Amazon SES v2: checks the signature, the call and the mail itself.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Method;
use http::request::Parts;
use postrider_channels::email::{SigV4Signer, SignedRequest};
use postrider_core::Timestamp;
use serde_json::{Value, json};

use super::smtp;
use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::fakes::{CheckedRequest, FakeCall, FakeCheckResult, FakeProvider, RejectedRequest};
use crate::service::{SandboxState, header_text};

const CLOCK_SKEW_S: i64 = 5 * 60;
/// Who uses this key id must sign with this secret; no other key id is known.
const KEY_ID: &str = "AKIDSANDBOX";
const SECRET: &str = "sandbox-secret";

pub(super) struct FakeSes;

impl FakeProvider for FakeSes {
    fn serves(&self, path: &str) -> bool {
        path == "/v2/email/outbound-emails"
    }

    fn too_large(&self, _: &SandboxState, _: &Parts, _: usize) -> FakeAnswer {
        self.refusal(413)
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        super::check_post(call)?;
        let (to, id) = read(call)?;
        Ok(super::checked(call, &to, id))
    }

    fn accept(&self, _: &SandboxState, _: &CheckedRequest, message_id: u64) -> FakeAnswer {
        FakeAnswer::json(200, &json!({ "MessageId": format!("{message_id:016x}-000000") }))
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
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

    fn is_side_call(&self, parts: &Parts) -> bool {
        parts.method == Method::GET && parts.uri.path() == "/v2/email/account"
    }

    fn answer_side_call(&self, state: &SandboxState, parts: &Parts, _: &Bytes) -> FakeAnswer {
        match verify(parts, b"", state.now_s()) {
            Ok(()) => FakeAnswer::json(
                200,
                &json!({
                    "ProductionAccessEnabled": true,
                    "SendingEnabled": true,
                    "EnforcementStatus": "HEALTHY",
                    "SendQuota": { "Max24HourSend": 50_000.0, "MaxSendRate": 14.0, "SentLast24Hours": 0.0 },
                }),
            ),
            Err((kind, why)) => ses_error(403, kind, why),
        }
    }
}

/// The mailbox, and the id of the delivery.
fn read(call: &FakeCall<'_>) -> Result<(String, CorrelationId), Box<RejectedRequest>> {
    let (parts, content) = (call.parts, call.body);
    verify(parts, content, call.state.now_s())
        .map_err(|(kind, why)| RejectedRequest::signature(ses_error(403, kind, why)))?;
    let wrong = |why: &str| RejectedRequest::request(ses_error(400, "BadRequestException", why));
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
type SesSignatureError = (&'static str, &'static str);

/// What Amazon has against the signature of a call.
fn verify(parts: &Parts, content: &[u8], now_s: i64) -> Result<(), SesSignatureError> {
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
    let signer = SigV4Signer { key_id, secret: SECRET, region, service };
    let request = SignedRequest {
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

/// `{"message": …}` with the type in a header.
fn ses_error(status: u16, kind: &str, message: &str) -> FakeAnswer {
    FakeAnswer::json(status, &json!({ "message": message })).with("x-amzn-errortype", kind)
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
