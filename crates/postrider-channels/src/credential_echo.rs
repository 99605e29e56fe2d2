//! The texts by which a receiver could repeat the credential of a call. Reads no answers and hides nothing itself.

use ::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use url::form_urlencoded;

/// A part of a list such as `t=…,k=…` that is shorter than this is a word.
const PART_LEN_MIN: usize = 12;

/// The credentials in the headers of a request.
#[derive(Debug, Clone, Default)]
pub struct SentCredentials(Vec<HeaderValue>);

impl SentCredentials {
    /// Every credential is marked as sensitive. Apple's own headers are marked, too, for their compression only.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let marked = headers.iter().filter(|(_, value)| value.is_sensitive());
        let marked = marked.filter(|(name, _)| !name.as_str().starts_with("apns-"));
        Self(marked.map(|(_, value)| value.clone()).collect())
    }

    /// The credentials as they are written in the headers.
    fn values(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|value| std::str::from_utf8(value.as_bytes()).ok())
    }

    /// Every form of these credentials and of others of the same call, the longest first.
    pub(crate) fn forms(&self, others: &[&str]) -> Vec<String> {
        let mut all: Vec<String> = self.values().flat_map(parts).collect();
        all.extend(others.iter().map(|text| (*text).to_owned()));
        forms(all)
    }

    /// Whether a text has a credential in it as it was sent.
    pub(crate) fn are_in(&self, text: &str, others: &[&str]) -> bool {
        let sent = self.values().flat_map(|value| value.rsplit(' ').next());
        let mut all = sent.chain(others.iter().copied());
        all.any(|secret| !secret.is_empty() && text.contains(secret))
    }
}

/// The value of a header and the secrets in it.
pub(crate) fn parts(whole: &str) -> Vec<String> {
    let mut all = vec![whole.to_owned()];
    let Some((scheme, secret)) = whole.split_once(' ') else { return all };
    all.push(secret.to_owned());
    if scheme.eq_ignore_ascii_case("basic") {
        let decoded = STANDARD.decode(secret).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let password = decoded.as_deref().and_then(|text| Some(text.split_once(':')?.1));
        all.extend(password.map(str::to_owned));
        all.extend(decoded);
    }
    let listed = secret.split([',', ' ']).filter_map(|part| Some(part.split_once('=')?.1));
    all.extend(listed.filter(|part| part.len() >= PART_LEN_MIN).map(str::to_owned));
    all
}

/// These texts as they are, in JSON, in a form or a URL, and in base64; the longest first.
pub(crate) fn forms(mut all: Vec<String>) -> Vec<String> {
    all.retain(|text| !text.is_empty());
    let plain = all.clone();
    for text in &plain {
        all.push(text.replace('/', "\\/"));
        let in_json = serde_json::Value::from(text.as_str()).to_string();
        all.push(in_json.trim_matches('"').to_owned());
        all.push(form_urlencoded::byte_serialize(text.as_bytes()).collect());
        all.extend([STANDARD.encode(text), URL_SAFE_NO_PAD.encode(text)]);
    }
    all.retain(|text| !text.is_empty());
    all.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(header: &str) -> Vec<String> {
        forms(parts(header))
    }

    #[test]
    fn a_secret_is_known_in_every_form_that_could_be_repeated() {
        let basic = known("Basic dXNlcjpwYXNz");
        for form in ["Basic dXNlcjpwYXNz", "dXNlcjpwYXNz", "user:pass", "user%3Apass", "pass"] {
            assert!(basic.iter().any(|known| known == form), "{form}");
        }
        let vapid = known("vapid t=eyJ0eXAiOiJKV1Q, k=BCVxsr7N_eNgVRqvHtD0");
        for form in ["eyJ0eXAiOiJKV1Q", "BCVxsr7N_eNgVRqvHtD0"] {
            assert!(vapid.iter().any(|known| known == form), "{form}");
        }
        let plain = forms(vec!["a/\"b".to_owned(), String::new()]);
        for form in ["a/\"b", "a\\/\"b", "a/\\\"b", "a%2F%22b", "YS8iYg=="] {
            assert!(plain.iter().any(|known| known == form), "{form}");
        }
        assert!(plain.is_sorted_by_key(|form| std::cmp::Reverse(form.len())));
    }

    #[test]
    fn the_id_of_a_notification_is_no_credential() {
        let mut headers = HeaderMap::new();
        for (name, text) in [("authorization", "bearer abc"), ("apns-id", "1-2-3")] {
            let mut value = HeaderValue::from_static(text);
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers.insert("user-agent", HeaderValue::from_static("Postrider"));
        let sent = SentCredentials::of(&headers);
        assert!(sent.are_in("id abc", &[]) && sent.are_in("a key", &["key"]));
        assert!(!sent.are_in("id 1-2-3 of Postrider", &[""]));
    }
}
