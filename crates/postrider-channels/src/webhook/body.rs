//! The body of a webhook: the caller's own, byte for byte, or the message wrapped in our envelope.

use std::fmt::Write;

use bytes::Bytes;
use postrider_core::Attempt;
use postrider_core::content::{Content, raw_bytes};

pub(super) fn render(attempt: &Attempt) -> Result<Bytes, serde_json::Error> {
    let text = &*attempt.message.content;
    let content = Content::parse(text)?;
    if let Some(payload) = content.webhook.as_ref().and_then(|own| own.payload) {
        return Ok(raw_bytes(payload).into_owned().into());
    }
    let mut body = String::with_capacity(text.len() + 112);
    let _ = write!(
        body,
        r#"{{"type":"message","id":"{}","delivery":"{}","content":"#,
        attempt.message.id, attempt.delivery
    );
    if has_overrides(&content) {
        body.push_str(&common(content)?);
    } else {
        body.push_str(text);
    }
    body.push('}');
    Ok(body.into())
}

/// What every channel renders; the other channels' own parts are none of a receiver's business.
pub(crate) fn common(content: Content<'_>) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Content { webpush: None, webhook: None, http: None, ..content })
}

pub(crate) fn has_overrides(content: &Content<'_>) -> bool {
    content.webpush.is_some() || content.webhook.is_some() || content.http.is_some()
}
