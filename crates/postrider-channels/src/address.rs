//! Checks of addresses that several channels share: URLs, origins, blank text.
//! Pure; a host name is resolved and checked again when a connection is opened.

use std::net::IpAddr;
use std::sync::Arc;

use postrider_core::{FieldError, TenantId, model::json_fields};
use serde::Deserialize;
use url::{Host, Url};

use crate::pool::{Origin, is_public};

/// Where messages may be sent at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetworkPolicy {
    /// Loopback, private, link-local and metadata addresses.
    pub allow_private_targets: bool,
    /// `http://` beside `https://`.
    pub allow_plain_http: bool,
}

/// Whether a tenant has an account to send with.
pub type Serves = Arc<dyn Fn(&TenantId) -> bool + Send + Sync>;

const URL_MAX: usize = 2_048;

/// Checks a URL as far as that goes without a name server. Never repeats the URL: it is a secret.
pub(crate) fn check_url(field: &str, text: &str, policy: NetworkPolicy) -> Result<Url, FieldError> {
    let wrong = |found: &str, allowed: &str| Err(FieldError::new(field, found, allowed));
    if text.len() > URL_MAX {
        return wrong(&format!("{} bytes", text.len()), "at most 2048 bytes");
    }
    if let Some(odd) = text.bytes().find(|b| !(b'!'..=b'~').contains(b)) {
        let found = match odd {
            b' ' => "a blank",
            0x80.. => "a character outside of ASCII",
            _ => "a control character",
        };
        return wrong(found, "a URL in ASCII: host names as xn--…, everything else as %…");
    }
    let Ok(url) = Url::parse(text) else {
        return wrong("not a URL", "an absolute URL, https://…");
    };
    match url.scheme() {
        "https" => {}
        "http" if policy.allow_plain_http => {}
        "http" => {
            return wrong("http://", "https:// (set network.allow_plain_http to allow http://)");
        }
        _ => return wrong("another scheme", "https://…"),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong(
            "a user name or password in the URL",
            "a URL without; name a credential instead",
        );
    }
    if url.fragment().is_some() {
        return wrong("a fragment (#…)", "a URL without a fragment");
    }
    let private = match url.host() {
        None => return wrong("no host", "an absolute URL with a host"),
        Some(Host::Ipv4(ip)) => !is_public(IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => !is_public(IpAddr::V6(ip)),
        Some(Host::Domain(name)) => is_local_name(name),
    };
    if private && !policy.allow_private_targets {
        return wrong(
            "a private or local address",
            "a public host (set network.allow_private_targets to allow private ones)",
        );
    }
    if !is_plain(text, &url) {
        return wrong(
            "a URL that can be read in more than one way",
            "scheme://host[:port]/path as it is sent: no \\, the host without %… and in its usual form",
        );
    }
    Ok(url)
}

/// Whether the one who connects will read the same host and port out of it. What is checked here
/// and what is called later must not differ.
fn is_plain(text: &str, url: &Url) -> bool {
    let Ok(origin) = Origin::parse(text) else { return false };
    let same_host = match url.host() {
        Some(Host::Ipv4(ip)) => origin.ip() == Some(IpAddr::V4(ip)),
        Some(Host::Ipv6(ip)) => origin.ip() == Some(IpAddr::V6(ip)),
        Some(Host::Domain(name)) => origin.host() == name,
        None => false,
    };
    same_host && url.port_or_known_default() == Some(origin.port())
}

fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost"
        || name.ends_with(".localhost")
        || name.ends_with(".local")
        || name.ends_with(".internal")
}

/// `scheme://host[:port]`, the port only where it is not the scheme's own. Cheap: the text was
/// validated when it came in.
pub fn origin(url: &str) -> Arc<str> {
    let Some(start) = url.find("://").map(|i| i + 3) else { return url.into() };
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |i| start + i);
    let origin = url[..end].to_ascii_lowercase();
    let default = if origin.starts_with("https:") { ":443" } else { ":80" };
    origin.strip_suffix(default).unwrap_or(&origin).into()
}

/// An address as a caller wrote it.
pub(crate) fn read<'de, T: Deserialize<'de>>(
    address: &'de str,
    fields: &str,
) -> Result<T, Vec<FieldError>> {
    json_fields::read(address, fields).map_err(|error| vec![error])
}

/// At most so much of a caller's word as is needed to recognise it; for what is no secret.
pub(crate) fn shown(word: &str) -> String {
    let plain = word.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    plain.take(32).collect()
}

/// Blank text.
pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c.is_control())
}

/// The field and the finding of the first error about a content, for the tests of intakes.
#[cfg(test)]
pub(crate) fn first_error(
    intake: &dyn postrider_core::ChannelIntake,
    content: &serde_json::Value,
) -> Result<(), (String, String)> {
    let content = content.to_string();
    let content = postrider_core::model::content::Content::parse(&content).unwrap();
    intake.check(&content).map_err(|mut errors| {
        let error = errors.remove(0);
        (error.field, error.found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRICT: NetworkPolicy =
        NetworkPolicy { allow_private_targets: false, allow_plain_http: false };

    #[test]
    fn urls_that_could_reach_inside_are_refused() {
        for bad in [
            "http://example.com/",
            "ftp://example.com/",
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://10.0.0.1/",
            "https://169.254.169.254/latest/meta-data",
            "https://[::ffff:127.0.0.1]/",
            "https://0x7f000001/",
            "https://2130706433/",
            "https://localhost/",
            "https://metadata.google.internal/",
            "https://user:pass@example.com/",
            "https://example.com/#x",
            "/relative",
            "https://",
            "https:example.com/x",
            "https:\\\\example.com\\x",
            "https://example.com\\@evil.example/",
            "https://exa%6dple.com/",
            "https://example.com/a b",
            "https://example.com/\tx",
            " https://example.com/",
            "https://example.com/x\r\nHost: evil.example",
            "https://b\u{fc}cher.example/",
            "https://example.com/\u{fc}",
            "https://0300.0250.0.1/",
            "https://example.com:0/",
            "https://example.com:/",
            "https://example.com:65536/",
        ] {
            assert!(check_url("url", bad, STRICT).is_err(), "{bad}");
        }
        assert!(check_url("url", "https://example.com:8443/a?b=c", STRICT).is_ok());
    }

    #[test]
    fn an_origin_has_its_port_unless_it_is_the_default() {
        assert_eq!(&*origin("https://Example.com/a/b?c"), "https://example.com");
        assert_eq!(&*origin("https://example.com:443/a"), "https://example.com");
        assert_eq!(&*origin("https://example.com:8443?x"), "https://example.com:8443");
        assert_eq!(&*origin("http://example.com:80"), "http://example.com");
        assert_eq!(&*origin("https://[::1]:444/x"), "https://[::1]:444");
    }
}
