//! What the inbox shows of a message: one form per kind of message, in words that need no knowledge of its provider.
//! The fakes make them; the page draws them.

use serde::Serialize;
use serde_json::Value;

use super::message::{InboxContent, InboxMessage};
use crate::receiver::LastRequest;
use crate::service::SandboxState;

/// Longer texts are cut.
const TEXT_MAX: usize = 200_000;
const LINE_MAX: usize = 200;

/// What a fake's `show` gets.
pub(crate) struct ShownMessage<'a> {
    pub(crate) state: &'a SandboxState,
    pub(crate) receiver: &'a str,
    pub(crate) request: &'a LastRequest,
    /// When it arrived, in seconds since 1970.
    pub(crate) at_s: i64,
}

impl ShownMessage<'_> {
    /// The body as JSON; null if it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.request.body).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        crate::service::header_text(&self.request.headers, name)
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct InboxView {
    /// The first line of the list.
    pub(crate) title: String,
    /// The second one.
    pub(crate) preview: String,
    #[serde(flatten)]
    pub(crate) form: InboxForm,
}

#[derive(Debug, Serialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub(crate) enum InboxForm {
    Mail(Box<InboxMail>),
    Text(InboxText),
    Notification(InboxNotification),
    Card(InboxCard),
    Call(InboxCall),
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct InboxMail {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) text: Option<String>,
    pub(crate) has_html: bool,
    /// Shown in a frame of its own only.
    #[serde(skip)]
    pub(crate) html: Option<String>,
    pub(crate) links: Vec<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) attachments: Vec<InboxAttachment>,
    pub(crate) dkim: Vec<InboxCheck>,
}

#[derive(Debug, Serialize)]
pub(crate) struct InboxAttachment {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) bytes: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct InboxText {
    pub(crate) from: String,
    pub(crate) encoding: &'static str,
    pub(crate) units: usize,
    pub(crate) segments: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct InboxNotification {
    /// What would show it: a browser, an app.
    pub(crate) app: String,
    pub(crate) heading: String,
    pub(crate) body: String,
    pub(crate) icon: Option<String>,
    pub(crate) image: Option<String>,
    pub(crate) link: Option<String>,
    pub(crate) actions: Vec<String>,
    /// Nothing is shown; only the app learns of it.
    pub(crate) is_silent: bool,
    /// Urgency, TTL and the like.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) data: Option<Value>,
}

#[derive(Debug, Serialize)]
pub(crate) struct InboxCard {
    pub(crate) service: &'static str,
    pub(crate) parts: Vec<InboxCardPart>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "part", content = "value", rename_all = "snake_case")]
pub(crate) enum InboxCardPart {
    Heading(String),
    Text(String),
    /// Name and value.
    Fact(String, String),
    /// Label and link.
    Button(String, String),
    Image(String),
    Line,
}

#[derive(Debug, Serialize)]
pub(crate) struct InboxCall {
    pub(crate) signature: Option<InboxCheck>,
    /// A command that makes the same call again.
    pub(crate) curl: String,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct InboxCheck {
    /// `pass`, `fail` or `unknown`.
    pub(crate) verdict: &'static str,
    pub(crate) detail: String,
}

impl InboxCheck {
    pub(crate) fn pass(detail: impl Into<String>) -> Self {
        Self { verdict: "pass", detail: detail.into() }
    }

    pub(crate) fn fail(detail: impl Into<String>) -> Self {
        Self { verdict: "fail", detail: detail.into() }
    }

    pub(crate) fn unknown(detail: impl Into<String>) -> Self {
        Self { verdict: "unknown", detail: detail.into() }
    }
}

impl InboxView {
    /// Title and preview are cut to a line.
    pub(crate) fn new(title: &str, preview: &str, form: InboxForm) -> Self {
        Self { title: line(title), preview: line(preview), form }
    }

    pub(crate) fn notification(shown: InboxNotification) -> Self {
        let heading = if shown.heading.is_empty() { &shown.body } else { &shown.heading };
        let title = match (heading.is_empty(), shown.is_silent) {
            (true, true) => "(silent push)",
            (true, false) => "(push without content)",
            _ => heading,
        };
        let (title, preview) = (line(title), line(&shown.body));
        Self { title, preview, form: InboxForm::Notification(shown) }
    }

    pub(crate) fn card(service: &'static str, parts: Vec<InboxCardPart>) -> Self {
        let mut texts = parts.iter().filter_map(|part| match part {
            InboxCardPart::Heading(text) | InboxCardPart::Text(text) => Some(text.clone()),
            _ => None,
        });
        let title = texts.next().unwrap_or_default();
        let (first, rest) = title.split_once('\n').unwrap_or((&title, ""));
        let preview = texts.next().unwrap_or_else(|| rest.to_owned());
        Self::new(first, &preview, InboxForm::Card(InboxCard { service, parts }))
    }

    /// Any request as it came.
    pub(crate) fn call(shown: &ShownMessage<'_>, signature: Option<InboxCheck>) -> Self {
        let request = shown.request;
        let body = String::from_utf8_lossy(&request.body);
        let title = serde_json::from_slice::<Value>(&request.body).ok().and_then(|body| {
            let content = [&body["content"]["title"], &body["content"]["body"]].into_iter();
            let own = ["title", "event", "type"].into_iter().map(|name| &body[name]);
            content.chain(own).find_map(Value::as_str).map(str::to_owned)
        });
        let title = title.unwrap_or_else(|| format!("{} {}", request.method, request.uri));
        let curl = curl(request, shown.state.http_origin());
        Self::new(&title, &body, InboxForm::Call(InboxCall { signature, curl }))
    }
}

/// What a message looks like; made once, when somebody looks.
pub(crate) fn view_of<'a>(
    state: &SandboxState,
    message: &InboxMessage,
    content: &'a InboxContent,
) -> &'a InboxView {
    content.view(|content| {
        let (request, at_s) = (&*content.request, content.at_ms / 1000);
        let shown = ShownMessage { state, receiver: &message.receiver, request, at_s };
        let entry = crate::fakes::FAKES.iter().find(|entry| entry.kind == message.kind);
        match entry.filter(|_| message.rejected.is_none()) {
            Some(entry) => (entry.show)(&shown),
            None => InboxView::call(&shown, None),
        }
    })
}

/// At most so much of a text.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The text in one line.
fn line(text: &str) -> String {
    let words = text.split_whitespace().take(LINE_MAX).collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(LINE_MAX) {
        None => words,
        Some((end, _)) => format!("{}…", &words[..end]),
    }
}

/// The text of a field; empty if there is none.
pub(crate) fn text_of(value: &Value) -> String {
    value.as_str().map(cut).unwrap_or_default()
}

/// Text with simple markup, without its tags and with characters for the usual entities.
pub(crate) fn plain_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        shown.push_str(before);
        let is_tag = after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
        rest = match after.split_once('>').filter(|_| is_tag) {
            Some((_, after)) => after,
            None => {
                shown.push('<');
                after
            }
        };
    }
    shown.push_str(rest);
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.iter().fold(shown, |text, (entity, character)| text.replace(entity, character))
}

/// A command for a shell that makes the same call again.
fn curl(request: &LastRequest, origin: &str) -> String {
    // curl sets these itself.
    const OWN: [&str; 4] = ["host", "content-length", "connection", "transfer-encoding"];
    let mut command =
        format!("curl -X {} {}", request.method, quoted(&format!("{origin}{}", request.uri)));
    let headers = request.headers.iter().filter(|(name, _)| !OWN.contains(&name.as_str()));
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        command += &format!(" \\\n  -H {}", quoted(&format!("{name}: {value}")));
    }
    match std::str::from_utf8(&request.body) {
        Ok("") => command,
        Ok(text) => format!("{command} \\\n  --data-raw {}", quoted(text)),
        Err(_) => {
            use base64::Engine as _;
            let body = base64::prelude::BASE64_STANDARD.encode(&request.body);
            format!("echo {body} | base64 -d | {command} \\\n  --data-binary @-")
        }
    }
}

/// For a shell: nothing inside of single quotes has a meaning.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, Method};

    #[test]
    fn a_curl_line_survives_what_a_shell_would_read() {
        let mut headers = HeaderMap::new();
        headers.insert("x-note", HeaderValue::from_static("it's $HOME"));
        headers.insert("host", HeaderValue::from_static("left.out"));
        let body = Bytes::from_static(b"{\"a\": \"'; rm -rf / #\"}");
        let request =
            LastRequest { method: Method::POST, uri: "/hook/a?b='c'".to_owned(), headers, body };
        let line = curl(&request, "http://127.0.0.1:9080");
        let said = std::process::Command::new("sh")
            .args(["-c", &line.replacen("curl", "printf '%s\\n'", 1)])
            .output()
            .unwrap();
        let words = String::from_utf8(said.stdout).unwrap();
        let expected = "-X\nPOST\nhttp://127.0.0.1:9080/hook/a?b='c'\n-H\nx-note: it's $HOME\n\
                        --data-raw\n{\"a\": \"'; rm -rf / #\"}\n";
        assert_eq!(words, expected);
    }

    #[test]
    fn a_line_is_short_and_has_no_breaks() {
        assert_eq!(line(" a\r\n\tb  c "), "a b c");
        assert_eq!(line(&"é".repeat(500)).chars().count(), LINE_MAX + 1);
    }
}
