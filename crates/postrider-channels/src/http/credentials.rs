//! Turns a reference to a credential into a header at the moment of sending, so that no queue ever
//! holds the credential itself.

use ::http::header::AUTHORIZATION;
use ::http::{HeaderName, HeaderValue};

/// Resolves references; called for every request, so that a changed secret is used at once.
pub trait Credentials: Send + Sync {
    fn header(&self, reference: &str) -> Option<(HeaderName, HeaderValue)>;
}

/// `env:NAME` reads a variable, `file:PATH` a file. The text is a whole header
/// (`Authorization: Basic …`, `X-Api-Key: …`) or only a bearer token.
#[derive(Debug, Default, Clone, Copy)]
pub struct EnvAndFiles;

impl Credentials for EnvAndFiles {
    fn header(&self, reference: &str) -> Option<(HeaderName, HeaderValue)> {
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
    // A token holds no space, and a header's name none before its colon.
    let named = text.split_once(": ").and_then(|(name, value)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
    });
    named.or_else(|| Some((AUTHORIZATION, HeaderValue::try_from(format!("Bearer {text}")).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_file_holds_a_header_or_a_token_and_is_read_anew() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let reference = format!("file:{}", file.path().display());
        assert_eq!(EnvAndFiles.header(&reference), None);
        writeln!(file, "abc.def:ghi").unwrap();
        let (name, value) = EnvAndFiles.header(&reference).unwrap();
        assert_eq!(
            (name.as_str(), value.to_str().unwrap()),
            ("authorization", "Bearer abc.def:ghi")
        );
        std::fs::write(file.path(), "X-Api-Key: s3cret\n").unwrap();
        let (name, value) = EnvAndFiles.header(&reference).unwrap();
        assert_eq!((name.as_str(), value.to_str().unwrap()), ("x-api-key", "s3cret"));
    }

    #[test]
    fn what_cannot_be_resolved_is_nothing() {
        for reference in
            ["", "env", "env:POSTRIDER_SURELY_NOT_SET", "file:/surely/not/there", "vault:x"]
        {
            assert_eq!(EnvAndFiles.header(reference), None, "{reference}");
        }
    }
}
