//! SendGrid v3: one call per mail, with its parts as JSON. SendGrid writes and signs the mail, so our DKIM keys are
//! not used.

use ::http::header::{ACCEPT, AUTHORIZATION};
use ::http::{HeaderValue, Method};
use postrider_core::Timestamp;
use serde_json::{Map, Value, json};

use super::mime::{MailDraft, Mailbox, message_id};
use crate::accounts::Material;
use crate::deliver::Reading;
use crate::pool::{JSON, Request, Response};
use crate::scrub;

pub(super) const SEND: &str = "/v3/mail/send";
pub(super) const SCOPES: &str = "/v3/scopes";

pub struct SendGrid {
    /// The API's origin.
    pub endpoint: String,
    pub key: Material<String>,
}

pub(super) fn body(draft: &MailDraft<'_>) -> Vec<u8> {
    let mut content = vec![json!({ "type": "text/plain", "value": filled(draft.text) })];
    if let Some(html) = draft.html {
        content.push(json!({ "type": "text/html", "value": filled(html) }));
    }
    let mut call = json!({
        "personalizations": [{ "to": [mailbox(draft.to)] }],
        "from": mailbox(draft.from),
        "subject": filled(draft.subject),
        "content": content,
        "headers": headers(draft),
        "custom_args": { "delivery": draft.delivery.to_string() },
    });
    if let Some(reply_to) = draft.reply_to {
        call["reply_to"] = mailbox(reply_to);
    }
    call.to_string().into_bytes()
}

/// SendGrid refuses empty values.
fn filled(text: &str) -> &str {
    if text.is_empty() { " " } else { text }
}

fn mailbox(of: Mailbox<'_>) -> Value {
    match of.name {
        Some(name) => json!({ "email": of.address, "name": name }),
        None => json!({ "email": of.address }),
    }
}

fn headers(draft: &MailDraft<'_>) -> Map<String, Value> {
    let ours = ["Auto-Submitted", "List-Unsubscribe", "List-Unsubscribe-Post", "Feedback-ID"];
    let mail = draft.fields();
    let kept = mail.iter().filter(|(name, _)| ours.contains(name));
    let mut headers: Map<String, Value> =
        kept.map(|(name, value)| ((*name).to_owned(), value.replace("\r\n", "").into())).collect();
    headers.insert("Message-ID".into(), message_id(draft.delivery, draft.from.address).into());
    headers
}

pub(super) fn request(method: Method, key: &str, body: Vec<u8>) -> Request {
    let mut request = Request::new(method, JSON, body);
    request.headers.insert(ACCEPT, HeaderValue::from_static(JSON));
    request.with_secret(AUTHORIZATION, format!("Bearer {key}"))
}

pub(super) fn reading(response: &Response, now: Timestamp) -> Reading<'static> {
    Reading {
        service: "email.sendgrid",
        code: code(response),
        retry_after: retry_after(response, now),
        provider_id: scrub::header(&response.headers, "x-message-id"),
        ..Reading::default()
    }
}

/// The first error's text.
pub(super) fn code(response: &Response) -> Option<String> {
    let body: Value = serde_json::from_slice(&response.body).ok()?;
    let first = &body["errors"][0];
    let text = first["message"].as_str()?;
    let text = match first["field"].as_str() {
        Some(field) => format!("{text} ({field})"),
        None => text.to_owned(),
    };
    Some(scrub::shorten(&text, 256))
}

/// `X-RateLimit-Reset`, which is in seconds of the epoch, as a value of `Retry-After`.
fn retry_after(response: &Response, now: Timestamp) -> Option<String> {
    let at: i64 = scrub::header(&response.headers, "x-ratelimit-reset")?.trim().parse().ok()?;
    Some((at - now.as_secs()).max(0).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = [r#"{"errors":[{"message":"x","field":"from","help":null}]}"#, r#"1790000060"#];
        crate::fuzzed_answers::fuzz_answers("sendgrid_answer", &seeds, |answer| {
            drop((reading(&answer, postrider_core::Timestamp(1_790_000_000_000)), code(&answer)));
        });
    }
}
