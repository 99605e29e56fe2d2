//! `/sandbox/inbox…` and `/sandbox/next…`: the inbox for its page and for tests.

use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream;
use http::{Method, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::message::InboxMessage;
use super::next_answers::ORDERED_MAX;
use super::view::{InboxForm, cut, view_of};
use super::{CLOSED, guard};
use crate::answer::FakeAnswer;
use crate::body::{self, FakeBody};
use crate::fakes::{ControlCall, FAKES, FakeEntry, FakeKind};
use crate::fault::Fault;
use crate::service::SandboxState;

pub(crate) const CALLS: [&str; 6] = [
    "GET /sandbox/inbox?kind&q&limit&before",
    "GET /sandbox/inbox/<number>",
    "GET /sandbox/inbox/<number>/raw",
    "GET /sandbox/inbox/events",
    "DELETE /sandbox/inbox",
    "PUT /sandbox/next/<kind> {script}",
];

/// What a mail may do in its frame: show itself, with styles and pictures of its own.
const MAIL_CSP: &str = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
                        form-action 'none'; base-uri 'none'; frame-ancestors 'self'";
/// Tags for which a browser may connect before it looks at the policy, and those that change where a page leads.
const CONNECTING_TAGS: [&str; 9] =
    ["link", "iframe", "frame", "fencedframe", "portal", "object", "embed", "base", "meta"];
const LIMIT: usize = 50;
const LIMIT_MAX: usize = 500;
/// Changes within this time are told together.
const TOGETHER: Duration = Duration::from_millis(100);
/// A stream without changes still says so often that it lives.
const ALIVE: Duration = Duration::from_secs(2);

/// What the list is about.
#[derive(Debug, Default)]
struct InboxQuery {
    kind: Option<FakeKind>,
    /// In lower case; every word must be found.
    words: Vec<String>,
    limit: usize,
    before: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NextRequest {
    script: Vec<Fault>,
}

/// `None` if the call is not about the inbox.
pub(crate) fn answer(call: &ControlCall<'_>) -> Option<anyhow::Result<Response<FakeBody>>> {
    if !matches!(call.path.first(), Some(&("inbox" | "next"))) {
        return None;
    }
    if let Some(refusal) = guard::refusal(call.state, call.scheme, call.parts) {
        return Some(Ok(refusal.into()));
    }
    let state = call.state;
    Some(match (&call.parts.method, call.path) {
        (&Method::GET, ["inbox"]) => list(call),
        (&Method::GET, ["inbox", "events"]) => Ok(events(state)),
        (&Method::GET, ["inbox", number]) => {
            Ok(with_message(state, number, |message| ok(&detail(state, message))))
        }
        (&Method::GET, ["inbox", number, "html"]) => {
            Ok(with_message(state, number, |message| html(state, message)))
        }
        (&Method::GET, ["inbox", number, "raw"]) => Ok(with_message(state, number, raw)),
        (&Method::DELETE, ["inbox"]) => {
            state.inbox.clear();
            Ok(FakeAnswer::empty(204).into())
        }
        (&Method::PUT, ["next", kind]) => order(call, kind),
        _ => return None,
    })
}

impl InboxQuery {
    fn parse(query: &str) -> anyhow::Result<Self> {
        let mut found = Self { limit: LIMIT, ..Self::default() };
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "kind" if value.is_empty() => {}
                "kind" => found.kind = Some(FakeKind::named(&value)?),
                "q" => {
                    found.words =
                        value.to_lowercase().split_whitespace().map(str::to_owned).collect()
                }
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                    found.limit = limit
                        .with_context(|| format!("limit is {value:?}: use 1 to {LIMIT_MAX}"))?;
                }
                "before" => {
                    let number = value.parse().ok();
                    found.before =
                        Some(number.with_context(|| format!("before is {value:?}: use a number"))?);
                }
                other => {
                    anyhow::bail!("unknown parameter {other:?}: use kind, q, limit or before")
                }
            }
        }
        Ok(found)
    }

    fn matches(&self, state: &SandboxState, message: &InboxMessage) -> bool {
        self.kind.is_none_or(|kind| kind == message.kind)
            && self.before.is_none_or(|before| message.number < before)
            && (self.words.is_empty() || {
                let text = searched(state, message);
                self.words.iter().all(|word| text.contains(word))
            })
    }
}

fn list(call: &ControlCall<'_>) -> anyhow::Result<Response<FakeBody>> {
    let state = call.state;
    let query = InboxQuery::parse(call.parts.uri.query().unwrap_or_default())?;
    let snapshot = state.inbox.snapshot();
    let mut found = snapshot.messages.iter().filter(|message| query.matches(state, message));
    let shown: Vec<_> = found.by_ref().take(query.limit).map(|m| summary(state, m)).collect();
    let kinds: Vec<_> = FAKES
        .iter()
        .map(|entry| {
            let ours = snapshot.messages.iter().filter(|message| message.kind == entry.kind);
            json!({
                "kind": entry.kind,
                "channel": entry.sample.channel,
                "messages": ours.count(),
                "next": state.next_answers.of(entry.kind),
            })
        })
        .collect();
    Ok(ok(&json!({
        "version": snapshot.version,
        "messages": shown,
        "more": found.count(),
        "forgotten": snapshot.forgotten,
        "kinds": kinds,
        "samples": state.samples.get().unwrap_or(&Value::Null),
    })))
}

fn with_message(
    state: &SandboxState,
    number: &str,
    answer: impl FnOnce(&InboxMessage) -> Response<FakeBody>,
) -> Response<FakeBody> {
    let known = number.parse().ok().and_then(|number| state.inbox.get(number));
    match known {
        Some(message) => answer(&message),
        None => {
            let error = format!(
                "no message {number:?} in the inbox, which keeps the last ones of each kind"
            );
            FakeAnswer::json(404, &json!({ "error": error })).into()
        }
    }
}

fn channel_of(kind: FakeKind) -> &'static str {
    let entry: Option<&FakeEntry> = FAKES.iter().find(|entry| entry.kind == kind);
    entry.map_or("", |entry| entry.sample.channel)
}

fn summary(state: &SandboxState, message: &InboxMessage) -> Value {
    let view = message.content.as_ref().map(|content| view_of(state, message, content));
    let (title, preview) = match (view, &message.rejected) {
        (Some(view), None) => (&*view.title, &*view.preview),
        (Some(view), Some(why)) => (&*view.title, &**why),
        (None, _) => ("(refused before its content was sent)", ""),
    };
    json!({
        "number": message.number,
        "version": message.version,
        "kind": message.kind,
        "channel": channel_of(message.kind),
        "to": *message.receiver,
        "id": *message.id,
        "title": title,
        "preview": preview,
        "at": message.at(),
        "state": message.state(),
        "rejected": message.rejected.as_deref(),
        "attempts": message.attempts_as_json(),
        "attempts_total": message.attempts_total,
    })
}

fn detail(state: &SandboxState, message: &InboxMessage) -> Value {
    let mut shown = summary(state, message);
    let Some(content) = &message.content else { return shown };
    let request = &content.request;
    shown["view"] = json!(view_of(state, message, content));
    let headers: Vec<_> = request
        .headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    let text = std::str::from_utf8(&request.body).ok();
    shown["request"] = json!({
        "method": request.method.as_str(),
        "uri": request.uri,
        "headers": headers,
        "bytes": request.body.len(),
        "body": text.map(cut),
        "body_base64": text.is_none().then(|| BASE64_STANDARD.encode(&request.body)),
    });
    shown
}

fn searched<'a>(state: &SandboxState, message: &'a InboxMessage) -> &'a str {
    let Some(content) = &message.content else { return &message.receiver };
    content.searched(|| {
        let view = view_of(state, message, content);
        let body = match &view.form {
            InboxForm::Mail(mail) => {
                let headers = mail.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
                let text = mail.text.iter().chain(&mail.html).cloned();
                headers.chain(text).collect()
            }
            InboxForm::Text(text) => text.segments.concat(),
            _ => cut(&String::from_utf8_lossy(&content.request.body)),
        };
        let parts = [&*message.receiver, &message.id, &view.title, &content.request.uri, &body];
        parts.join("\n").to_lowercase()
    })
}

/// A mail's HTML, for a frame in which nothing runs and nothing is fetched.
fn html(state: &SandboxState, message: &InboxMessage) -> Response<FakeBody> {
    let view = message.content.as_ref().map(|content| view_of(state, message, content));
    let html = view.and_then(|view| match &view.form {
        InboxForm::Mail(mail) => mail.html.clone(),
        _ => None,
    });
    match html {
        None => FakeAnswer::text(404, "this message has no HTML\n").into(),
        Some(html) => {
            FakeAnswer::with_body(200, "text/html; charset=utf-8", without_connecting_tags(&html))
                .with("content-security-policy", MAIL_CSP)
                .with("x-content-type-options", "nosniff")
                .with("referrer-policy", "no-referrer")
                .with("x-dns-prefetch-control", "off")
                .with("cache-control", "no-store")
                .into()
        }
    }
}

/// The HTML with other names for some tags. No policy stops a browser from opening a connection for
/// `<link rel=preconnect>` or for the address of an `<iframe>` that it then does not load. A tag is always written with
/// these letters, so none is missed.
fn without_connecting_tags(html: &str) -> String {
    let lower = html.to_ascii_lowercase();
    let mut shown = String::with_capacity(html.len());
    let mut end = 0;
    for at in memchr::memchr_iter(b'<', lower.as_bytes()) {
        if CONNECTING_TAGS.iter().any(|tag| lower[at + 1..].starts_with(tag)) {
            shown.push_str(&html[end..=at]);
            shown.push_str("removed-");
            end = at + 1;
        }
    }
    shown.push_str(&html[end..]);
    shown
}

/// The bytes of the body, as a file.
fn raw(message: &InboxMessage) -> Response<FakeBody> {
    let body = message.content.as_ref().map_or_else(Bytes::new, |c| c.request.body.clone());
    let is_mail = body.starts_with(b"DKIM-Signature:") || body.starts_with(b"From:");
    let end = if is_mail { "eml" } else { "txt" };
    let name = format!("attachment; filename=\"message-{}.{end}\"", message.number);
    FakeAnswer::with_body(200, "application/octet-stream", body)
        .with("content-disposition", &name)
        .with("content-security-policy", "sandbox; default-src 'none'")
        .with("x-content-type-options", "nosniff")
        .into()
}

/// `change` with the version after each change, and `alive` when there is none.
fn events(state: &SandboxState) -> Response<FakeBody> {
    let mut changes = state.inbox.watch();
    changes.mark_changed();
    let events = stream::unfold(changes, |mut changes| async move {
        let event = match tokio::time::timeout(ALIVE, changes.changed()).await {
            Err(_) => "event: alive\ndata: {}\n\n".to_owned(),
            Ok(Err(_)) => return None,
            Ok(Ok(())) => {
                if *changes.borrow() != CLOSED {
                    tokio::time::sleep(TOGETHER).await;
                }
                match *changes.borrow_and_update() {
                    CLOSED => return None,
                    version => format!("event: change\ndata: {{\"version\":{version}}}\n\n"),
                }
            }
        };
        Some((Bytes::from(event), changes))
    });
    let answer = FakeAnswer::with_body(200, "text/event-stream", "")
        .with("cache-control", "no-store")
        .with("x-content-type-options", "nosniff");
    Response::from(answer).map(|_| body::streamed(events))
}

fn order(call: &ControlCall<'_>, kind: &str) -> anyhow::Result<Response<FakeBody>> {
    let kind = FakeKind::named(kind)?;
    let request: NextRequest = serde_json::from_slice(call.body)?;
    let count = request.script.len();
    anyhow::ensure!(count <= ORDERED_MAX, "script has {count} answers: at most {ORDERED_MAX}");
    call.state.next_answers.set(kind, request.script);
    call.state.inbox.touch();
    Ok(ok(&json!({ "kind": kind, "next": call.state.next_answers.of(kind) })))
}

fn ok(value: &Value) -> Response<FakeBody> {
    FakeAnswer::json(200, value)
        .with("cache-control", "no-store")
        .with("x-content-type-options", "nosniff")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_tag_that_connects_is_left_however_it_is_written() {
        let html = "é<LiNk rel=preconnect><a>x</a><link/href=x><<IFRAME src=x></iframe><li>";
        let expected = "é<removed-LiNk rel=preconnect><a>x</a><removed-link/href=x><<removed-IFRAME src=x>\
                        </iframe><li>";
        assert_eq!(without_connecting_tags(html), expected);
    }
}
