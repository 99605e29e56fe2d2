//! Turns a reference to a credential into a header when a request is sent. No queue holds the credential itself.

use std::collections::HashSet;

use ::http::header::AUTHORIZATION;
use ::http::{HeaderName, HeaderValue};

/// Resolves references; called for every request, so that a changed secret is used at once.
pub trait Credentials: Send + Sync {
    /// `None` if it is not here, or not meant for this origin.
    fn header(&self, reference: &str, origin: &str) -> Option<(HeaderName, HeaderValue)>;
}

/// `env:NAME` reads a variable, `file:PATH` a file. The text is a whole header
/// (`Authorization: Basic …`, `X-Api-Key: …`) or only a bearer token.
///
/// A caller chooses both the reference and the URL, and could otherwise have any file of the server sent to a host of
/// its own. So only the references that the operator listed are resolved, each for its own origin.
#[derive(Debug, Default, Clone)]
pub struct EnvAndFiles {
    allowed: HashSet<(String, String)>,
}

impl EnvAndFiles {
    /// References with the origin that each is meant for, e.g. `https://api.example.com`.
    pub fn allowing(allowed: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { allowed: allowed.into_iter().collect() }
    }
}

impl Credentials for EnvAndFiles {
    fn header(&self, reference: &str, origin: &str) -> Option<(HeaderName, HeaderValue)> {
        if !self.allowed.contains(&(reference.to_owned(), origin.to_owned())) {
            return None;
        }
        let text = match reference.split_once(':')? {
            ("env", name) => std::env::var(name).ok()?,
            ("file", path) => std::fs::read_to_string(path).ok()?,
            _ => return None,
        };
        header(text.trim())
    }
}

fn header(text: &str) -> Option<(HeaderName, HeaderValue)> {
    if text.is_empty() {
        return None;
    }
    // A bearer token has no space in it, so `: ` shows a whole header.
    let named = text.split_once(": ").and_then(|(name, value)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
    });
    named.or_else(|| Some((AUTHORIZATION, HeaderValue::try_from(format!("Bearer {text}")).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const ORIGIN: &str = "https://api.example.com";

    fn allowing(reference: &str) -> EnvAndFiles {
        EnvAndFiles::allowing([(reference.to_owned(), ORIGIN.to_owned())])
    }

    #[test]
    fn a_credential_goes_only_where_the_operator_said() {
        assert!(allowing("env:PATH").header("env:PATH", ORIGIN).is_some());
        assert_eq!(allowing("env:PATH").header("env:PATH", "https://attacker.example"), None);
        assert_eq!(allowing("env:PATH").header("env:HOME", ORIGIN), None);
        assert_eq!(EnvAndFiles::default().header("env:PATH", ORIGIN), None);
    }

    #[test]
    fn a_file_holds_a_header_or_a_token_and_is_read_anew() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let reference = format!("file:{}", file.path().display());
        let credentials = allowing(&reference);
        assert_eq!(credentials.header(&reference, ORIGIN), None);
        writeln!(file, "abc.def:ghi").unwrap();
        let (name, value) = credentials.header(&reference, ORIGIN).unwrap();
        assert_eq!(
            (name.as_str(), value.to_str().unwrap()),
            ("authorization", "Bearer abc.def:ghi")
        );
        std::fs::write(file.path(), "X-Api-Key: s3cret\n").unwrap();
        let (name, value) = credentials.header(&reference, ORIGIN).unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-api-key", "s3cret"));
    }

    #[test]
    fn what_cannot_be_resolved_is_nothing() {
        for reference in
            ["", "env", "env:POSTRIDER_SURELY_NOT_SET", "file:/surely/not/there", "vault:x"]
        {
            assert_eq!(allowing(reference).header(reference, ORIGIN), None, "{reference}");
        }
    }
}
