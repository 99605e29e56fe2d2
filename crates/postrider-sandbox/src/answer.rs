//! An answer of a fake provider.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

#[derive(Debug, Default)]
pub(crate) struct FakeAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// How long the client must wait, whether a header or the body says so.
    pub(crate) retry_after_s: Option<u32>,
}

impl FakeAnswer {
    pub(crate) fn text(status: u16, text: impl Into<Bytes>) -> Self {
        Self::with_body(status, "text/plain; charset=utf-8", text)
    }

    pub(crate) fn json(status: u16, value: &serde_json::Value) -> Self {
        Self::with_body(status, "application/json", value.to_string())
    }

    pub(crate) fn with_body(status: u16, content_type: &str, body: impl Into<Bytes>) -> Self {
        let answer = Self { body: body.into(), ..Self::empty(status) };
        answer.with("content-type", content_type)
    }

    pub(crate) fn empty(status: u16) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, ..Self::default() }
    }

    /// The same answer with this header.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// The same answer with the header `Retry-After`, if there is a time to wait.
    pub(crate) fn with_retry_after(self, retry_after_s: Option<u32>) -> Self {
        let Some(seconds) = retry_after_s else { return self };
        Self { retry_after_s, ..self.with("retry-after", &seconds.to_string()) }
    }
}
