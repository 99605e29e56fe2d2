//! Amazon SES v2: checks the signature, the call and the mail itself.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postrider_channels::email::{SigV4Signer, SignedRequest};
use postrider_core::Timestamp;
use serde_json::{Value, json};

use super::smtp;
use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::fakes::{CheckedRequest, FakeCall, FakeCheckResult, FakeProvider, RejectedRequest};
use crate::service::SandboxState;

const CLOCK_SKEW_S: u64 = 5 * 60;
/// The only key id that is known, and its secret.
const KEY_ID: &str = "AKIDSANDBOX";
const SECRET: &str = "sandbox-secret";

pub(super) struct FakeSes;

impl FakeProvider for FakeSes {
    fn serves(&self, path: &str) -> bool {
        path == "/v2/email/outbound-emails"
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        call.check_post()?;
        let (to, id) = read(call)?;
        Ok(super::checked(call, &to, id))
    }

    fn accept(&self, _: &SandboxState, _: &CheckedRequest, message_id: u64) -> FakeAnswer {
        FakeAnswer::json(200, &json!({ "MessageId": format!("{message_id:016x}-000000") }))
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
        match status {
            429 => ses_error(429, "TooManyRequestsException", "Maximum sending rate exceeded."),
            401 | 403 => ses_error(403, BAD_SIGNATURE.0, BAD_SIGNATURE.1),
            404 | 410 => ses_error(404, "NotFoundException", "Template does not exist."),
            500..=599 => ses_error(status, "InternalServiceErrorException", "Internal failure"),
            _ => ses_error(400, "MessageRejected", "Email address is not verified."),
        }
    }

    fn is_side_call(&self, call: &FakeCall<'_>) -> bool {
        call.is_get() && call.path() == "/v2/email/account"
    }

    fn answer_side_call(&self, call: &FakeCall<'_>) -> FakeAnswer {
        let account = json!({
            "ProductionAccessEnabled": true,
            "SendingEnabled": true,
            "EnforcementStatus": "HEALTHY",
            "SendQuota": { "Max24HourSend": 50_000.0, "MaxSendRate": 14.0, "SentLast24Hours": 0.0 },
        });
        match verify(&FakeCall { body: &bytes::Bytes::new(), ..*call }) {
            Ok(()) => FakeAnswer::json(200, &account),
            Err((kind, why)) => ses_error(403, kind, why),
        }
    }
}

/// The mailbox, and the id of the delivery.
fn read(call: &FakeCall<'_>) -> FakeCheckResult<(String, CorrelationId)> {
    verify(call).map_err(|(kind, why)| RejectedRequest::signature(ses_error(403, kind, why)))?;
    let wrong = |why: &str| RejectedRequest::request(ses_error(400, "BadRequestException", why));
    let call: Value = serde_json::from_slice(call.body).map_err(|_| wrong("not JSON"))?;
    let to =
        call["Destination"]["ToAddresses"][0].as_str().ok_or_else(|| wrong("no ToAddresses"))?;
    if call["FromEmailAddress"].as_str().is_none_or(|from| !from.contains('@')) {
        return Err(wrong("FromEmailAddress is missing or no address"));
    }
    let mail = call["Content"]["Raw"]["Data"].as_str().and_then(|d| BASE64_STANDARD.decode(d).ok());
    let mail = mail.ok_or_else(|| wrong("Content.Raw.Data is not base64"))?;
    if let Some(flaw) = smtp::mail::flaw(&mail, false) {
        return Err(wrong(flaw));
    }
    Ok((to.to_owned(), smtp::correlation(&mail)))
}

/// Type and message of an error.
type SesSignatureError = (&'static str, &'static str);

const BAD_SIGNATURE: SesSignatureError = (
    "SignatureDoesNotMatch",
    "The request signature we calculated does not match the signature you provided.",
);

fn verify(call: &FakeCall<'_>) -> Result<(), SesSignatureError> {
    let given = call
        .header("authorization")
        .ok_or(("MissingAuthenticationTokenException", "Missing Authentication Token"))?;
    let incomplete = |why| ("IncompleteSignatureException", why);
    let date = call.header("x-amz-date").ok_or(incomplete("x-amz-date is missing"))?;
    let at = read_time(date).ok_or(incomplete("x-amz-date is not a time"))?;
    if at.abs_diff(call.state.now_s()) > CLOCK_SKEW_S {
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
    let uri = &call.parts.uri;
    let host = call.header("host").or_else(|| uri.authority().map(|authority| authority.as_str()));
    let signed: Vec<_> = ["content-type", "x-amz-security-token"]
        .into_iter()
        .filter_map(|name| Some((name, call.header(name)?)))
        .collect();
    let signer = SigV4Signer { key_id, secret: SECRET, region, service };
    let request = SignedRequest {
        method: call.parts.method.as_str(),
        host: host.unwrap_or_default(),
        path: uri.path(),
        headers: &signed,
        body: call.body,
    };
    let (_, expected) = signer.sign(&request, Timestamp::from_secs(at));
    verify_slices_are_equal(expected.as_bytes(), given.as_bytes()).map_err(|_| BAD_SIGNATURE)
}

/// `20150830T123600Z`
fn read_time(text: &str) -> Option<i64> {
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", text).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
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
