//! Turns a reference to a credential into a part of a request when it is sent. No queue holds the credential itself.

use std::collections::{BTreeSet, HashMap};

use ::http::header::AUTHORIZATION;
use ::http::{HeaderName, HeaderValue};
use postrider_core::TenantId;

/// The value that stands for every tenant.
const EVERY_TENANT: &str = "*";

/// The part of a request that holds its credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialPart {
    Header(HeaderName, HeaderValue),
    /// `name=value`, as it stands in a URL.
    Query(String),
}

/// Resolves references; called for every request, so that a changed secret is used at once.
pub trait Credentials: Send + Sync {
    /// `None` if it is not here, or not meant for this tenant and this origin.
    fn resolve(&self, tenant: &TenantId, reference: &str, origin: &str) -> Option<CredentialPart>;

    /// Whether a tenant may name this reference for this origin. Reads nothing.
    fn allows(&self, tenant: &TenantId, reference: &str, origin: &str) -> bool;
}

/// A credential that callers may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedCredential {
    pub reference: String,
    /// The one origin that it may be sent to, e.g. `https://api.example.com`.
    pub origin: String,
    /// Who may name it; `*` for every tenant.
    pub tenants: BTreeSet<String>,
}

/// `env:NAME` reads a variable, `file:PATH` a file. The text is a whole header
/// (`Authorization: Basic …`, `X-Api-Key: …`), a parameter of the query (`?key=…`), or only a bearer token.
///
/// A caller chooses both the reference and the URL, and could otherwise have any file of the server sent to a host of
/// its own. So only the references that the operator listed are resolved, each for its own origin and tenants.
#[derive(Debug, Default, Clone)]
pub struct EnvAndFiles {
    /// The tenants of a reference at an origin.
    allowed: HashMap<(String, String), BTreeSet<String>>,
}

impl EnvAndFiles {
    pub fn allowing(allowed: impl IntoIterator<Item = AllowedCredential>) -> Self {
        let mut all: HashMap<_, BTreeSet<String>> = HashMap::new();
        for AllowedCredential { reference, origin, tenants } in allowed {
            all.entry((reference, origin)).or_default().extend(tenants);
        }
        Self { allowed: all }
    }
}

impl Credentials for EnvAndFiles {
    fn resolve(&self, tenant: &TenantId, reference: &str, origin: &str) -> Option<CredentialPart> {
        if !self.allows(tenant, reference, origin) {
            return None;
        }
        let text = match reference.split_once(':')? {
            ("env", name) => std::env::var(name).ok()?,
            ("file", path) => std::fs::read_to_string(path).ok()?,
            _ => return None,
        };
        part(text.trim())
    }

    fn allows(&self, tenant: &TenantId, reference: &str, origin: &str) -> bool {
        let tenants = self.allowed.get(&(reference.to_owned(), origin.to_owned()));
        tenants.is_some_and(|tenants| {
            tenants.contains(EVERY_TENANT) || tenants.contains(tenant.as_str())
        })
    }
}

fn part(text: &str) -> Option<CredentialPart> {
    if text.is_empty() {
        return None;
    }
    if let Some(query) = text.strip_prefix('?') {
        let is_one_line = !query.chars().any(|c| c.is_control() || c == ' ' || c == '#');
        return (is_one_line && query.contains('='))
            .then(|| CredentialPart::Query(query.to_owned()));
    }
    // A bearer token has no space in it, so `: ` shows a whole header.
    let named = text.split_once(": ").and_then(|(name, value)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
    });
    let bearer = || Some((AUTHORIZATION, HeaderValue::try_from(format!("Bearer {text}")).ok()?));
    named.or_else(bearer).map(|(name, value)| CredentialPart::Header(name, value))
}

impl CredentialPart {
    /// The secrets in the query. What is in a header is known from the request.
    pub(super) fn in_query(&self) -> Vec<String> {
        let Self::Query(query) = self else { return Vec::new() };
        let value = query.split_once('=').map(|(_, value)| value.to_owned());
        [Some(query.clone()), value].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const ORIGIN: &str = "https://api.example.com";

    fn allowing(reference: &str, tenants: &[&str]) -> EnvAndFiles {
        EnvAndFiles::allowing([AllowedCredential {
            reference: reference.to_owned(),
            origin: ORIGIN.to_owned(),
            tenants: tenants.iter().map(|name| (*name).to_owned()).collect(),
        }])
    }

    fn resolve(credentials: &EnvAndFiles, reference: &str, origin: &str) -> Option<CredentialPart> {
        credentials.resolve(&TenantId::new("acme"), reference, origin)
    }

    fn header(name: &'static str, value: &str) -> Option<CredentialPart> {
        let value = HeaderValue::from_str(value).unwrap();
        Some(CredentialPart::Header(HeaderName::from_static(name), value))
    }

    #[test]
    fn a_credential_goes_only_where_the_operator_said() {
        let path = allowing("env:PATH", &["*"]);
        assert!(resolve(&path, "env:PATH", ORIGIN).is_some());
        assert_eq!(resolve(&path, "env:PATH", "https://attacker.example"), None);
        assert_eq!(resolve(&path, "env:HOME", ORIGIN), None);
        assert_eq!(resolve(&EnvAndFiles::default(), "env:PATH", ORIGIN), None);
    }

    #[test]
    fn a_credential_is_for_the_tenants_that_the_operator_named() {
        assert!(resolve(&allowing("env:PATH", &["acme", "shop"]), "env:PATH", ORIGIN).is_some());
        assert_eq!(resolve(&allowing("env:PATH", &["shop"]), "env:PATH", ORIGIN), None);
        assert_eq!(resolve(&allowing("env:PATH", &[]), "env:PATH", ORIGIN), None);
    }

    #[test]
    fn a_file_holds_a_header_a_parameter_or_a_token_and_is_read_anew() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let reference = format!("file:{}", file.path().display());
        let credentials = allowing(&reference, &["acme"]);
        assert_eq!(resolve(&credentials, &reference, ORIGIN), None);
        writeln!(file, "abc.def:ghi").unwrap();
        let found = resolve(&credentials, &reference, ORIGIN);
        assert_eq!(found, header("authorization", "Bearer abc.def:ghi"));
        std::fs::write(file.path(), "X-Api-Key: s3cret\n").unwrap();
        assert_eq!(resolve(&credentials, &reference, ORIGIN), header("x-api-key", "s3cret"));
        std::fs::write(file.path(), "?key=s3cret\n").unwrap();
        let query = Some(CredentialPart::Query("key=s3cret".to_owned()));
        assert_eq!(resolve(&credentials, &reference, ORIGIN), query);
    }

    #[test]
    fn what_cannot_be_resolved_is_nothing() {
        for reference in
            ["", "env", "env:POSTRIDER_SURELY_NOT_SET", "file:/surely/not/there", "vault:x"]
        {
            let credentials = allowing(reference, &["*"]);
            assert_eq!(resolve(&credentials, reference, ORIGIN), None, "{reference}");
        }
    }
}
