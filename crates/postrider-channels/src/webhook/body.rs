//! The body of a webhook: the caller's own, byte for byte, or the message wrapped in our envelope.

use std::fmt::Write;

use bytes::Bytes;
use postrider_core::Attempt;
use postrider_core::model::content::{Content, raw_bytes};

use super::WebhookContent;
use crate::deliver::{Ended, bad_content};

pub(super) fn render(attempt: &Attempt) -> Result<Bytes, Ended> {
    let text = &*attempt.message.content;
    let content = Content::parse(text).map_err(bad_content)?;
    if let Some(payload) = WebhookContent::of(&content).map_err(bad_content)?.payload {
        return Ok(raw_bytes(payload).into_owned().into());
    }
    let mut body = String::with_capacity(text.len() + 112);
    let _ = write!(
        body,
        r#"{{"type":"message","id":"{}","delivery":"{}","content":"#,
        attempt.message.id, attempt.delivery
    );
    if content.has_parts() {
        body.push_str(&content.common_json().map_err(bad_content)?);
    } else {
        body.push_str(text);
    }
    body.push('}');
    Ok(body.into())
}
