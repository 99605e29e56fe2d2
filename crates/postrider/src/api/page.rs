//! The status page at `/`: four files of our own. It loads nothing from other servers.

use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};

const CSP: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                   img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) async fn index() -> Response {
    file("text/html; charset=utf-8", include_str!("../page/index.html"))
}

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../page/page.css"))
}

pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../page/page.js"))
}

pub(crate) async fn view() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../page/view.js"))
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
