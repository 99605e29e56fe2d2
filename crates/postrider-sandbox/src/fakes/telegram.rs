//! Telegram: `/bot<token>/sendMessage` and `/bot<token>/getMe`, as far as a sender sees them.

use bytes::Bytes;
use http::Method;
use http::request::Parts;
use serde_json::{Value, json};

use super::{CheckedRequest, FakeCall, FakeCheckResult, FakeEntry, FakeKind};
use super::{FakeProvider, RejectedRequest};
use crate::answer::FakeAnswer;
use crate::correlation::CorrelationId;
use crate::inbox::view::{InboxCardPart, InboxView, plain_text, text_of};
use crate::sample::{ChannelSample, ShownId};
use crate::service::{SandboxState, header_text};

const TEXT_MAX: usize = 4096;
/// Every other token of the right form is unknown.
const TOKEN: &str = "1234567890:AAFsandbox_token-of_a_bot_0123456789";
const FIELDS: [&str; 8] = [
    "chat_id",
    "text",
    "parse_mode",
    "disable_notification",
    "protect_content",
    "message_thread_id",
    "link_preview_options",
    "reply_markup",
];

/// The token and the method of a path.
fn token_and_method(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("/bot")?.split_once('/').filter(|(_, method)| !method.contains('/'))
}

pub(super) const ENTRY: FakeEntry = FakeEntry {
    kind: FakeKind("telegram"),
    make: |_| Ok(vec![Box::new(FakeTelegram)]),
    body_max: 1 << 20,
    setup_path: Some("telegram"),
    control_calls: &["PUT /sandbox/telegram/<chat_id> {faults, script}"],
    sample: ChannelSample {
        channel: "telegram",
        shown_id: ShownId::Nothing,
        ttl: ("none", |_| None),
        name: |_, number| (1_000_000 + number).to_string(),
        address: |_, chat| json!({"channel": "telegram", "chat_id": chat}),
    },
    show: |shown| {
        let fields = shown.json();
        let mut text = text_of(&fields["text"]);
        if fields["parse_mode"] == "HTML" {
            text = plain_text(&text);
        }
        let rows = fields["reply_markup"]["inline_keyboard"].as_array();
        let buttons = rows.into_iter().flatten().filter_map(Value::as_array).flatten();
        let buttons = buttons
            .map(|button| InboxCardPart::Button(text_of(&button["text"]), text_of(&button["url"])));
        let parts = std::iter::once(InboxCardPart::Text(text)).chain(buttons).collect();
        InboxView::card("Telegram", parts)
    },
    server_config: |sandbox, folder| {
        sandbox.account(folder, ["bot", "telegram", TOKEN], &sandbox.endpoint())
    },
};

struct FakeTelegram;

impl FakeProvider for FakeTelegram {
    fn serves(&self, path: &str) -> bool {
        token_and_method(path).is_some()
    }

    fn check(&self, call: &FakeCall<'_>) -> FakeCheckResult {
        let (chat, id) = read(call.parts, call.body)?;
        Ok(call.checked(ENTRY.kind, &chat, id, 0))
    }

    fn accept(&self, state: &SandboxState, _: &CheckedRequest, message_id: u64) -> FakeAnswer {
        let result = json!({"message_id": message_id, "date": state.now_s()});
        FakeAnswer::json(200, &json!({"ok": true, "result": result}))
    }

    fn refusal(&self, status: u16) -> FakeAnswer {
        match status {
            401 => telegram_error(401, "Unauthorized"),
            403 | 410 => telegram_error(403, "Forbidden: bot was blocked by the user"),
            404 => telegram_error(400, "Bad Request: chat not found"),
            502 => {
                let page = "<html><head><title>502 Bad Gateway</title></head></html>\r\n";
                FakeAnswer::text(502, page)
            }
            500..=599 => telegram_error(status, "Internal Server Error"),
            _ => telegram_error(400, "Bad Request: message is too long"),
        }
    }

    fn refuse(&self, _: &CheckedRequest, status: u16, retry_after_s: Option<u32>) -> FakeAnswer {
        match status {
            429 => throttled(retry_after_s.unwrap_or(1)),
            _ => self.refusal(status),
        }
    }

    fn is_side_call(&self, call: &FakeCall<'_>) -> bool {
        token_and_method(call.path()).is_some_and(|(_, method)| method == "getMe")
    }

    fn answer_side_call(&self, call: &FakeCall<'_>) -> FakeAnswer {
        let bot = json!({"id": 1_234_567_890, "is_bot": true, "username": "sandbox_bot"});
        let about_bot = || FakeAnswer::json(200, &json!({"ok": true, "result": bot}));
        token_error(call.parts).unwrap_or_else(about_bot)
    }
}

/// The chat, and the digest of chat and text: Telegram has no idempotency key.
fn read(parts: &Parts, body: &Bytes) -> FakeCheckResult<(String, CorrelationId)> {
    if let Some(error) = token_error(parts) {
        return Err(RejectedRequest::signature(error));
    }
    let wrong = |status, description| RejectedRequest::request(telegram_error(status, description));
    let method = token_and_method(parts.uri.path()).map(|(_, method)| method);
    if method != Some("sendMessage") || parts.method != Method::POST {
        return Err(wrong(404, "Not Found"));
    }
    let kind = header_text(&parts.headers, "content-type").unwrap_or_default();
    let fields: Option<Value> = serde_json::from_slice(body).ok();
    let fields = fields.as_ref().and_then(Value::as_object);
    let Some(fields) = fields.filter(|_| kind.starts_with("application/json")) else {
        return Err(wrong(400, "Bad Request: can't parse request JSON object"));
    };
    // The real server ignores unknown fields, so a misspelt one would not be noticed there.
    if fields.keys().any(|name| !FIELDS.contains(&name.as_str())) {
        return Err(wrong(400, "Bad Request: unknown field"));
    }
    let chat = match &fields.get("chat_id") {
        Some(Value::Number(number)) if number.is_i64() => number.to_string(),
        Some(Value::String(text)) if is_chat(text) => text.clone(),
        Some(Value::String(text)) if !text.is_empty() => {
            return Err(wrong(400, "Bad Request: chat not found"));
        }
        _ => return Err(wrong(400, "Bad Request: chat_id is empty")),
    };
    let text = fields.get("text").and_then(Value::as_str).unwrap_or_default();
    let parse_mode = fields.get("parse_mode").map(|mode| mode.as_str().unwrap_or_default());
    match parse_mode {
        None | Some("HTML" | "MarkdownV2" | "Markdown") => {}
        Some(_) => return Err(wrong(400, "Bad Request: unsupported parse_mode")),
    }
    if parse_mode == Some("HTML") && text.matches('<').count() != text.matches('>').count() {
        return Err(wrong(400, "Bad Request: can't parse entities: Unclosed start tag"));
    }
    if text.trim().is_empty() {
        return Err(wrong(400, "Bad Request: message text is empty"));
    }
    if parse_mode.is_none() && text.chars().count() > TEXT_MAX {
        return Err(wrong(400, "Bad Request: message is too long"));
    }
    let id = CorrelationId::of_text(&chat, text);
    Ok((chat, id))
}

fn is_chat(text: &str) -> bool {
    let is_name = text.strip_prefix('@').is_some_and(|name| {
        (5..=32).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    });
    is_name || text.parse::<i64>().is_ok()
}

/// What Telegram answers to a token that is malformed or unknown.
fn token_error(parts: &Parts) -> Option<FakeAnswer> {
    let (token, _) = token_and_method(parts.uri.path())?;
    let (id, secret) = token.split_once(':').unwrap_or_default();
    let is_formed = !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()) && secret.len() >= 30;
    match (token == TOKEN, is_formed) {
        (true, _) => None,
        (false, true) => Some(telegram_error(401, "Unauthorized")),
        (false, false) => Some(telegram_error(404, "Not Found")),
    }
}

/// The time to wait is in the body; there is no header `Retry-After`.
fn throttled(wait_s: u32) -> FakeAnswer {
    let description = format!("Too Many Requests: retry after {wait_s}");
    let body = json!({"ok": false, "error_code": 429, "description": description,
        "parameters": {"retry_after": wait_s}});
    FakeAnswer { retry_after_s: Some(wait_s), ..FakeAnswer::json(429, &body) }
}

fn telegram_error(status: u16, description: &str) -> FakeAnswer {
    let body = json!({"ok": false, "error_code": status, "description": description});
    FakeAnswer::json(status, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer_to(path: &str, kind: &str, body: &str) -> Result<String, String> {
        let request = http::Request::post(path).header("content-type", kind);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        match read(&parts, &Bytes::copy_from_slice(body.as_bytes())) {
            Ok((chat, _)) => Ok(chat),
            Err(refused) => {
                let body: Value = serde_json::from_slice(&refused.answer.body).unwrap();
                Err(format!("{} {}", body["error_code"], body["description"].as_str().unwrap()))
            }
        }
    }

    #[test]
    fn telegram_refuses_tokens_chats_and_texts_in_its_own_words() {
        let path = format!("/bot{TOKEN}/sendMessage");
        let send = |body: Value| answer_to(&path, "application/json", &body.to_string());
        assert_eq!(send(json!({"chat_id": -100, "text": "x"})), Ok("-100".to_owned()));
        assert_eq!(
            send(json!({"chat_id": "@shop_news", "text": "x"})),
            Ok("@shop_news".to_owned())
        );
        for (body, words) in [
            (json!({"text": "x"}), "400 Bad Request: chat_id is empty"),
            (json!({"chat_id": "shop", "text": "x"}), "400 Bad Request: chat not found"),
            (json!({"chat_id": 1, "text": " "}), "400 Bad Request: message text is empty"),
            (
                json!({"chat_id": 1, "text": "x".repeat(4097)}),
                "400 Bad Request: message is too long",
            ),
            (
                json!({"chat_id": 1, "text": "<b", "parse_mode": "HTML"}),
                "400 Bad Request: can't parse entities: Unclosed start tag",
            ),
            (
                json!({"chat_id": 1, "text": "x", "parse_mode": "BBCode"}),
                "400 Bad Request: unsupported parse_mode",
            ),
            (json!({"chat_id": 1, "text": "x", "ttl": 1}), "400 Bad Request: unknown field"),
            (json!([1]), "400 Bad Request: can't parse request JSON object"),
        ] {
            assert_eq!(send(body), Err(words.to_owned()));
        }
        let good = r#"{"chat_id": 1, "text": "x"}"#;
        let form = answer_to(&path, "text/plain", good);
        assert_eq!(form, Err("400 Bad Request: can't parse request JSON object".to_owned()));
        let unknown = format!("/bot1:{}/sendMessage", "A".repeat(35));
        let json = "application/json";
        assert_eq!(answer_to(&unknown, json, good), Err("401 Unauthorized".to_owned()));
        assert_eq!(answer_to("/botx/sendMessage", json, good), Err("404 Not Found".to_owned()));
        let method = path.replace("sendMessage", "sendMessages");
        assert_eq!(answer_to(&method, json, good), Err("404 Not Found".to_owned()));
    }

    #[test]
    fn a_wait_is_in_the_body_and_in_no_header() {
        let answer = throttled(7);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(
            (&body["parameters"]["retry_after"], answer.retry_after_s),
            (&json!(7), Some(7))
        );
        assert!(!answer.headers.contains_key("retry-after"));
    }
}
