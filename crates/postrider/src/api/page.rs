//! The API explorer at `/docs`: files of our own. It loads nothing from other servers.

use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};

use super::SharedState;

const CSP: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                   img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Path, content type and text. The dashboard has its other files.
const FILES: [(&str, &str, &str); 1] =
    [("/docs", "text/html; charset=utf-8", include_str!("../page/docs.html"))];

/// The OpenAPI description leaves them out.
pub(super) fn routes() -> impl Iterator<Item = (&'static str, MethodRouter<SharedState>)> {
    FILES.into_iter().map(|(path, kind, text)| (path, get(async move || file(kind, text))))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    for (name, value) in [
        ("content-type", kind),
        ("content-security-policy", CSP),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
