//! The files of the dashboard, and the headers of everything that it answers. Nothing is loaded from another host.

use axum::extract::{Path, Request};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

/// No script and no style in a page, and nothing from another host.
const CSP: &str = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Name, content type and text.
const FILES: [(&str, &str, &str); 12] = [
    ("dashboard.css", STYLE, include_str!("assets/dashboard.css")),
    ("parts.css", STYLE, include_str!("assets/parts.css")),
    ("dashboard.js", SCRIPT, include_str!("assets/dashboard.js")),
    ("charts.js", SCRIPT, include_str!("assets/charts.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
    ("htmx-2.0.11.min.js", SCRIPT, include_str!("vendor/htmx-2.0.11.min.js")),
    ("idiomorph-ext-0.8.0.min.js", SCRIPT, include_str!("vendor/idiomorph-ext-0.8.0.min.js")),
    ("uplot-1.6.32.iife.min.js", SCRIPT, include_str!("vendor/uplot-1.6.32.iife.min.js")),
    ("uplot-1.6.32.min.css", STYLE, include_str!("vendor/uplot-1.6.32.min.css")),
    ("page.css", STYLE, include_str!("../page/page.css")),
    ("docs.css", STYLE, include_str!("../page/docs.css")),
    ("docs.js", SCRIPT, include_str!("../page/docs.js")),
];

pub(super) async fn show(Path(name): Path<String>) -> Response {
    let found = FILES.iter().find(|(own, ..)| *own == name);
    let Some((_, kind, text)) = found else { return StatusCode::NOT_FOUND.into_response() };
    ([("content-type", *kind), ("cache-control", "no-cache")], *text).into_response()
}

/// Adds what every answer has.
pub(super) async fn with_headers(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    for (name, value) in [
        ("content-security-policy", CSP),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::digest::{SHA256, digest};

    use super::*;

    #[test]
    fn vendored_files_are_those_that_the_table_names() {
        let table = include_str!("vendor/README.md");
        let vendored = FILES.iter().filter(|(name, ..)| name.contains(".min."));
        assert_eq!(vendored.clone().count(), 4);
        for (name, _, text) in vendored {
            let hash = digest(&SHA256, text.as_bytes());
            let hash: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            let row = table.lines().find(|line| line.contains(&format!("`{name}`"))).unwrap();
            assert!(row.contains(&hash), "{name} has {hash}");
        }
    }
}
