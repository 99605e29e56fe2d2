//! The body of a plain HTTP request.

use ::http::Method;
use bytes::Bytes;
use postrider_core::Attempt;
use postrider_core::model::content::raw_bytes;

use super::{HttpContent, KIND};
use crate::deliver::{Ended, bad_content, content_of};

pub(super) struct HttpBody {
    pub(super) bytes: Bytes,
    /// For requests without a content type of their own.
    pub(super) content_type: Option<&'static str>,
}

/// The caller's own body, or else the message's common fields as JSON. Empty if there are none, or if the method
/// usually has no body.
pub(super) fn render(attempt: &Attempt, method: &Method) -> Result<HttpBody, Ended> {
    let (content, own): (_, HttpContent<'_>) = content_of(KIND, &attempt.message)?;
    if let Some(body) = own.body {
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
        attempt.message.content.to_string()
    };
    Ok(HttpBody { bytes: json.into(), content_type: Some("application/json") })
}
