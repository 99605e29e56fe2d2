//! Which names of headers and query parameters carry a secret. Looks at names only, never at values.

/// Headers that a credential replaces.
const KNOWN_HEADERS: [&str; 5] =
    ["authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token"];

/// Other headers that look like a secret.
const HEADERS: [&str; 13] = [
    "*authorization",
    "cookie*",
    "set-cookie*",
    "*token",
    "*-key",
    "*apikey",
    "*secret",
    "*password",
    "*-signature",
    "*-credential",
    "*-credentials",
    "*-auth",
    "*session-id",
];

/// Headers that only look so.
const PUBLIC_HEADERS: [&str; 8] = [
    "*idempotency-key",
    "*surrogate-key",
    "*cache-key",
    "*partition-key",
    "*routing-key",
    "*ordering-key",
    "*dedup-key",
    "*page-token",
];

const PARAMETERS: [&str; 18] = [
    "*token",
    "key",
    "*apikey",
    "*api_key",
    "*api-key",
    "*access_key",
    "*secret",
    "*secret_key",
    "*password",
    "passwd",
    "pwd",
    "sig",
    "*signature",
    "*credential",
    "jwt",
    "auth",
    "*session_id",
    "*sessionid",
];

const PUBLIC_PARAMETERS: [&str; 6] =
    ["*page_token", "*pagetoken", "*next_token", "*nexttoken", "*continuation_token", "*synctoken"];

/// The built-in patterns, and the operator's own beside them. `*` stands for any text at the start or at the end.
#[derive(Debug, Clone, Default)]
pub struct SecretNames {
    /// Further names that carry a secret.
    pub secret: Vec<String>,
    /// Names that carry none, whatever they look like. They win.
    pub public: Vec<String>,
}

impl SecretNames {
    /// Whether a header is one of those that a credential replaces.
    pub(super) fn is_known_header(name: &str) -> bool {
        KNOWN_HEADERS.contains(&name)
    }

    /// `name` is in lower case.
    pub(super) fn is_secret_header(&self, name: &str) -> bool {
        self.is_secret(name, &HEADERS, &PUBLIC_HEADERS)
    }

    /// The first query parameter of a URL that looks like a secret.
    pub(super) fn secret_parameter(&self, url: &str) -> Option<String> {
        let (_, query) = url.split_once('?')?;
        let query = query.split('#').next().unwrap_or_default();
        let names = url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
        let mut names = names.map(|name| name.to_ascii_lowercase());
        names.find(|name| self.is_secret(name, &PARAMETERS, &PUBLIC_PARAMETERS))
    }

    fn is_secret(&self, name: &str, secret: &[&str], public: &[&str]) -> bool {
        let own = |patterns: &[String]| patterns.iter().any(|pattern| fits(pattern, name));
        let built_in = |patterns: &[&str]| patterns.iter().any(|pattern| fits(pattern, name));
        !own(&self.public) && (own(&self.secret) || (built_in(secret) && !built_in(public)))
    }
}

/// Whether a name fits a pattern, in whichever case.
fn fits(pattern: &str, name: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (Some(rest), Some(_)) => name.contains(rest.trim_end_matches('*')),
        (None, None) => name == pattern,
    }
}

/// Whether an operator's pattern can be used.
pub(super) fn is_pattern(text: &str) -> bool {
    let letters = text.trim_matches('*');
    !letters.is_empty()
        && text.len() <= 64
        && letters.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_look_like_a_secret_are_recognised() {
        let names = SecretNames::default();
        for secret in [
            "authorization",
            "x-amz-security-token",
            "x-gitlab-token",
            "ocp-apim-subscription-key",
            "x-client-secret",
            "cookie",
            "x-hub-signature",
            "apikey",
            "x-goog-api-key",
        ] {
            assert!(names.is_secret_header(secret), "{secret}");
        }
        for public in
            ["idempotency-key", "content-type", "x-request-id", "surrogate-key", "accept", "etag"]
        {
            assert!(!names.is_secret_header(public), "{public}");
        }
    }

    #[test]
    fn parameters_that_look_like_a_secret_are_recognised() {
        let names = SecretNames::default();
        let found = |query: &str| names.secret_parameter(&format!("https://a.example/x?{query}"));
        for secret in [
            "a=1&access_token=x",
            "api%5Fkey=x",
            "X-Amz-Signature=x",
            "sig=x",
            "Token=x",
            "key=x#page_token",
        ] {
            assert!(found(secret).is_some(), "{secret}");
        }
        for public in ["a=1", "page_token=x", "keyword=x", "sort_key=x", ""] {
            assert_eq!(found(public), None, "{public}");
        }
        assert_eq!(names.secret_parameter("https://a.example/token"), None);
    }

    #[test]
    fn the_operator_adds_and_exempts_names() {
        let names = SecretNames {
            secret: vec!["X-Internal-*".to_owned()],
            public: vec!["x-internal-trace".to_owned(), "key".to_owned()],
        };
        assert!(names.is_secret_header("x-internal-pass"));
        assert!(!names.is_secret_header("x-internal-trace"));
        assert_eq!(names.secret_parameter("https://a.example/?key=1"), None);
        assert!(is_pattern("x-*") && !is_pattern("*") && !is_pattern("a b"));
    }
}
