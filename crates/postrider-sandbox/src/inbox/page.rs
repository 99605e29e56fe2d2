//! The page of the inbox at `/inbox`: files of our own. It loads nothing from other servers.

use http::Method;
use http::request::Parts;

use crate::answer::FakeAnswer;

const CSP: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; \
                   frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Path, content type and text.
const FILES: [(&str, &str, &str); 4] = [
    ("/inbox", "text/html; charset=utf-8", include_str!("page/index.html")),
    ("/inbox/inbox.css", "text/css; charset=utf-8", include_str!("page/inbox.css")),
    ("/inbox/inbox.js", "text/javascript; charset=utf-8", include_str!("page/inbox.js")),
    ("/inbox/view.js", "text/javascript; charset=utf-8", include_str!("page/view.js")),
];

/// The answer to a request for one of the files.
pub(crate) fn answer(parts: &Parts) -> Option<FakeAnswer> {
    let path = parts.uri.path();
    let path = if path == "/inbox/" { "/inbox" } else { path };
    let (_, kind, text) = FILES.into_iter().find(|(known, ..)| *known == path)?;
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Some(FakeAnswer::text(405, "GET\n").with("allow", "GET"));
    }
    let file = FakeAnswer::with_body(200, kind, text)
        .with("content-security-policy", CSP)
        .with("x-content-type-options", "nosniff")
        .with("referrer-policy", "no-referrer")
        .with("cache-control", "no-cache");
    Some(file)
}
