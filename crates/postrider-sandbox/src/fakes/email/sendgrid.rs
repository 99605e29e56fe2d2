//! SendGrid v3: checks the key and the call.

use serde_json::{Value, json};

use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::fakes::{CheckedRequest, FakeCall, FakeCheckResult, FakeProvider, RejectedRequest};
use crate::service::{SandboxState, now_s};

pub(super) struct FakeSendGrid;

impl FakeProvider for FakeSendGrid {
    fn serves(&self, path: &str) -> bool {
        path == "/v3/mail/send"
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        call.check_post()?;
        let (to, id) = read(call)?;
        Ok(super::checked(call, &to, id))
    }

    fn accept(&self, _: &SandboxState, _: &CheckedRequest, message_id: u64) -> FakeAnswer {
        FakeAnswer::empty(202).with("x-message-id", &format!("{message_id:016x}"))
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
        let message = match status {
            401 => "The provided authorization grant is invalid, expired, or revoked",
            403 => "The from address does not match a verified Sender Identity.",
            413 => "The payload is too large.",
            429 => "too many requests",
            _ => "refused by the sandbox's fault profile",
        };
        sendgrid_error(status, message, None)
    }

    fn refuse(&self, _: &CheckedRequest, status: u16, retry_after_s: Option<u32>) -> FakeAnswer {
        let answer = self.refusal(status).with_retry_after(retry_after_s);
        if status != 429 {
            return answer;
        }
        let reset = now_s() + i64::from(retry_after_s.unwrap_or(60));
        let answer = answer.with("x-ratelimit-limit", "600").with("x-ratelimit-remaining", "0");
        answer.with("x-ratelimit-reset", &reset.to_string())
    }

    fn is_side_call(&self, call: &FakeCall<'_>) -> bool {
        call.is_get() && call.path() == "/v3/scopes"
    }

    fn answer_side_call(&self, call: &FakeCall<'_>) -> FakeAnswer {
        let scopes = json!({ "scopes": ["mail.send", "sender_verification_eligible"] });
        match has_key(call) {
            true => FakeAnswer::json(200, &scopes),
            false => self.refusal(401),
        }
    }
}

/// The mailbox, and the id of the delivery.
fn read(call: &FakeCall<'_>) -> FakeCheckResult<(String, CorrelationId)> {
    let content = call.body;
    if !has_key(call) {
        return Err(RejectedRequest::signature(FakeSendGrid.refusal(401)));
    }
    let wrong =
        |why: &str, field: &str| RejectedRequest::request(sendgrid_error(400, why, Some(field)));
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
    let id = call["custom_args"]["delivery"].as_str().map(CorrelationId::from_text);
    Ok((to.to_owned(), id.unwrap_or_else(|| CorrelationId::from_content(content))))
}

/// Every key but `wrong` is valid.
fn has_key(call: &FakeCall<'_>) -> bool {
    let key = call.header("authorization").and_then(|text| text.strip_prefix("Bearer "));
    key.is_some_and(|key| !key.is_empty() && key != "wrong")
}

fn sendgrid_error(status: u16, message: &str, field: Option<&str>) -> FakeAnswer {
    FakeAnswer::json(
        status,
        &json!({ "errors": [{ "message": message, "field": field, "help": null }] }),
    )
}
