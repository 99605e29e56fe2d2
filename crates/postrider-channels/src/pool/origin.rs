//! An origin: scheme, host and port in normal form.

use std::net::IpAddr;

/// Why a text cannot be used as the URL of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlError {
    NotAUrl,
    Scheme,
    Host,
    Port,
    UserInfo,
}

impl UrlError {
    pub fn allowed(self) -> &'static str {
        match self {
            Self::NotAUrl => "an absolute URL in ASCII, e.g. https://example.com/path",
            Self::Scheme => "a URL that starts with https://",
            Self::Host => "a URL with a host name or IP address",
            Self::Port => "a port from 1 to 65535",
            Self::UserInfo => "a URL without user name or password",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    https: bool,
    host: Box<str>,
    port: u16,
    text: Box<str>,
}

impl Origin {
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let uri: ::http::Uri = url.parse().map_err(|_| UrlError::NotAUrl)?;
        let https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(UrlError::Scheme),
        };
        let authority = uri.authority().ok_or(UrlError::Host)?;
        if authority.as_str().contains('@') {
            return Err(UrlError::UserInfo);
        }
        let host = authority.host().to_ascii_lowercase();
        if host.is_empty() {
            return Err(UrlError::Host);
        }
        let default = if https { 443 } else { 80 };
        let port = match authority.port() {
            None => default,
            Some(port) => Some(port.as_u16()).filter(|&p| p > 0).ok_or(UrlError::Port)?,
        };
        if authority.as_str().ends_with(':') {
            return Err(UrlError::Port);
        }
        let scheme = if https { "https" } else { "http" };
        let text = if port == default {
            format!("{scheme}://{host}")
        } else {
            format!("{scheme}://{host}:{port}")
        };
        Ok(Self { https, host: host.into(), port, text: text.into() })
    }

    pub fn is_https(&self) -> bool {
        self.https
    }

    /// In lower case; an IPv6 address keeps its brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `scheme://host`, and the port if it is not the scheme's default.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `host`, and the port if it is not the scheme's default.
    pub fn authority(&self) -> &str {
        self.text.split_once("://").map_or("", |(_, rest)| rest)
    }

    /// The host if it is an IP address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.trim_start_matches('[').trim_end_matches(']').parse().ok()
    }
}

/// The part of a URL that names its origin, as written.
pub(super) fn prefix(url: &str) -> &str {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
    &url[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_origin_has_one_spelling() {
        for (url, text) in [
            ("https://Push.Example.com/x?y=1", "https://push.example.com"),
            ("https://push.example.com:443/x", "https://push.example.com"),
            ("https://push.example.com:8443", "https://push.example.com:8443"),
            ("http://push.example.com:80/", "http://push.example.com"),
            ("http://push.example.com:443/", "http://push.example.com:443"),
            ("https://[2606:4700::1]:444/x", "https://[2606:4700::1]:444"),
        ] {
            assert_eq!(Origin::parse(url).unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_is_no_target_is_refused_by_cause() {
        for (url, error) in [
            ("/path", UrlError::Scheme),
            ("ftp://example.com/", UrlError::Scheme),
            ("https://user:pw@example.com/", UrlError::UserInfo),
            ("https://user@example.com/", UrlError::UserInfo),
            ("https://example.com:0/", UrlError::Port),
            ("https://example.com:/", UrlError::Port),
            ("https://exämple.com/", UrlError::NotAUrl),
            ("", UrlError::NotAUrl),
        ] {
            assert_eq!(Origin::parse(url), Err(error), "{url}");
        }
    }

    #[test]
    fn prefix_is_the_url_up_to_its_path() {
        assert_eq!(prefix("https://a.b:1/c?d"), "https://a.b:1");
        assert_eq!(prefix("https://a.b?d"), "https://a.b");
        assert_eq!(prefix("https://a.b"), "https://a.b");
    }
}
