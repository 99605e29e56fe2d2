//! The body of a webhook: the caller's own, byte for byte, or the message wrapped in our envelope.

use std::fmt::Write;

use bytes::Bytes;
use postrider_core::Attempt;
use postrider_core::model::content::raw_bytes;

use super::{KIND, WebhookContent};
use crate::deliver::{Ended, bad_content, content_of};

pub(super) fn render(attempt: &Attempt) -> Result<Bytes, Ended> {
    let (content, WebhookContent { payload }) = content_of(KIND, &attempt.message)?;
    if let Some(payload) = payload {
        return Ok(raw_bytes(payload).into_owned().into());
    }
    let text = &*attempt.message.content;
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
