//! The body of a webhook: the caller's own, byte for byte, or the message wrapped in our envelope.

use std::fmt::Write;

use bytes::Bytes;
use postrider_core::Attempt;
use postrider_core::model::content::{Content, raw_bytes};

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
    if content.has_overrides() {
        body.push_str(&serde_json::to_string(&content.into_common())?);
    } else {
        body.push_str(text);
    }
    body.push('}');
    Ok(body.into())
}
