//! The body of a plain HTTP request.

use ::http::Method;
use bytes::Bytes;
use postrider_core::Attempt;
use postrider_core::model::content::{Content, raw_bytes};

pub(super) struct Body {
    pub(super) bytes: Bytes,
    /// What it is, if the caller does not say.
    pub(super) content_type: Option<&'static str>,
}

/// The caller's own body, else the message's common fields as JSON, else (and where a method has no
/// body by nature) nothing.
pub(super) fn render(attempt: &Attempt, method: &Method) -> Result<Body, serde_json::Error> {
    let text = &*attempt.message.content;
    let content = Content::parse(text)?;
    if let Some(body) = content.http.as_ref().and_then(|own| own.body) {
        let is_text = body.get().starts_with('"');
        let content_type = if is_text { "text/plain; charset=utf-8" } else { "application/json" };
        let bytes: Bytes = raw_bytes(body).into_owned().into();
        let content_type = (!bytes.is_empty()).then_some(content_type);
        return Ok(Body { bytes, content_type });
    }
    let bodiless = [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS].contains(method);
    if bodiless || content.is_bare() {
        return Ok(Body { bytes: Bytes::new(), content_type: None });
    }
    let json = if content.has_overrides() {
        serde_json::to_string(&content.into_common())?
    } else {
        text.to_owned()
    };
    Ok(Body { bytes: json.into(), content_type: Some("application/json") })
}
