//! The body of a plain HTTP request.

use ::http::Method;
use bytes::Bytes;
use postrider_core::Attempt;
use postrider_core::model::content::{Content, raw_bytes};

use super::HttpContent;
use crate::deliver::{Ended, bad_content};

pub(super) struct HttpBody {
    pub(super) bytes: Bytes,
    /// What it is, if the caller does not say.
    pub(super) content_type: Option<&'static str>,
}

/// The caller's own body, else the message's common fields as JSON, else (and where a method has no
/// body by nature) nothing.
pub(super) fn render(attempt: &Attempt, method: &Method) -> Result<HttpBody, Ended> {
    let text = &*attempt.message.content;
    let content = Content::parse(text).map_err(bad_content)?;
    if let Some(body) = HttpContent::of(&content).map_err(bad_content)?.body {
        let is_text = body.get().starts_with('"');
        let content_type = if is_text { "text/plain; charset=utf-8" } else { "application/json" };
        let bytes: Bytes = raw_bytes(body).into_owned().into();
        let content_type = (!bytes.is_empty()).then_some(content_type);
        return Ok(HttpBody { bytes, content_type });
    }
    let bodiless = [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS].contains(method);
    if bodiless || content.is_bare() {
        return Ok(HttpBody { bytes: Bytes::new(), content_type: None });
    }
    let json = if content.has_parts() {
        content.common_json().map_err(bad_content)?
    } else {
        text.to_owned()
    };
    Ok(HttpBody { bytes: json.into(), content_type: Some("application/json") })
}
