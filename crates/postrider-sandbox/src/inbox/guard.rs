//! Who may look into the inbox: whoever reaches the sandbox by an address, and no page of another site. A browser
//! lets foreign pages call this machine, and a foreign name can be made to lead here, so both are refused.

use http::request::Parts;

use crate::answer::FakeAnswer;
use crate::service::{SandboxState, header_text};

/// Why a request is refused.
pub(super) fn refusal(state: &SandboxState, scheme: &str, parts: &Parts) -> Option<FakeAnswer> {
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let authority = authority.or_else(|| header_text(&parts.headers, "host")).unwrap_or_default();
    if !is_own_name(host_of(authority), state.https_origin()) {
        let why = "this name is not the sandbox's: use its address, localhost, or start it with --host NAME\n";
        return Some(FakeAnswer::text(403, why));
    }
    let origin = header_text(&parts.headers, "origin");
    let is_own = |origin: &str| origin.eq_ignore_ascii_case(&format!("{scheme}://{authority}"));
    let is_foreign = origin.is_some_and(|origin| !is_own(origin))
        || header_text(&parts.headers, "sec-fetch-site") == Some("cross-site");
    is_foreign.then(|| FakeAnswer::text(403, "pages of other sites may not call the inbox\n"))
}

/// Whether a page of a foreign name asks. Programs may use any name that leads here; browsers say that they ask.
pub(crate) fn is_foreign_page(state: &SandboxState, scheme: &str, parts: &Parts) -> bool {
    let is_page = ["origin", "sec-fetch-site"].iter().any(|name| parts.headers.contains_key(*name));
    is_page && refusal(state, scheme, parts).is_some()
}

/// The host of `host:port`; an IPv6 address in brackets.
fn host_of(authority: &str) -> &str {
    match authority.rfind(':') {
        Some(colon) if !authority[colon..].contains(']') => &authority[..colon],
        _ => authority,
    }
}

/// An address, `localhost`, or the name that the sandbox was started with.
fn is_own_name(host: &str, https_origin: &str) -> bool {
    let is_address = url::Host::parse(host).is_ok_and(|host| !matches!(host, url::Host::Domain(_)));
    let own = https_origin.strip_prefix("https://").map(host_of).unwrap_or_default();
    is_address || host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_own_names_lead_to_the_inbox() {
        let origin = "https://mail.test:9443";
        for host in ["127.0.0.1", "[::1]", "localhost", "LOCALHOST", "mail.test", "192.168.1.7"] {
            assert!(is_own_name(host, origin), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
            assert!(!is_own_name(host, origin), "{host}");
        }
        assert_eq!(["[::1]:80", "[::1]", "a:1", "a"].map(host_of), ["[::1]", "[::1]", "a", "a"]);
    }
}
