//! What may be kept of a provider's words: short, printable, and without anything of ours in them.

use std::borrow::Cow;

use ::http::HeaderMap;

/// The most that is kept of an answer's body.
const DETAIL_MAX: usize = 1024;
const HEADER_MAX: usize = 256;
/// A part of a URL shorter than this is a word, not a secret.
const SECRET_LEN_MIN: usize = 12;
const HIDDEN: &str = "[hidden]";

/// The beginning of a body as text.
pub(crate) fn excerpt(body: &[u8], hide_these: &[&str]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let text = hide(text.trim().to_owned(), hide_these);
    (!text.is_empty()).then(|| shorten(&text, DETAIL_MAX))
}

/// The text without these URLs and bodies, whole or in recognisable parts.
pub(crate) fn hide(mut text: String, hide_these: &[&str]) -> String {
    for secret in hide_these {
        for part in std::iter::once(*secret).chain(secret.split(['/', '?', '&', '=', '#'])) {
            if part.len() >= SECRET_LEN_MIN && text.contains(part) {
                text = text.replace(part, HIDDEN);
            }
        }
    }
    text
}

/// The text without this address, however short it is and in whichever case.
pub(crate) fn hide_exactly(text: &str, address: &str) -> String {
    let (lower, wanted) = (text.to_ascii_lowercase(), address.to_ascii_lowercase());
    if wanted.is_empty() || !lower.contains(&wanted) {
        return text.to_owned();
    }
    // Lower case in ASCII moves no byte, so positions hold in both.
    let mut shown = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(found) = lower[at..].find(&wanted) {
        shown.push_str(&text[at..at + found]);
        shown.push_str(HIDDEN);
        at += found + wanted.len();
    }
    shown.push_str(&text[at..]);
    shown
}

/// A body without these credentials, however short they are. They are hidden before anything is cut off, so that no
/// part is left.
pub(crate) fn without<'a>(body: &'a [u8], secrets: &[String]) -> Cow<'a, [u8]> {
    if secrets.is_empty() {
        return Cow::Borrowed(body);
    }
    let text = String::from_utf8_lossy(body).into_owned();
    Cow::Owned(hide_all(text, secrets).into_bytes())
}

/// The text without these credentials.
pub(crate) fn hide_all(text: String, secrets: &[String]) -> String {
    secrets.iter().fold(text, |text, secret| hide_exactly(&text, secret))
}

/// One line of at most `max` bytes, cut between characters.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    let mut short = String::with_capacity(text.len().min(max));
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if short.len() + c.len_utf8() > max {
            break;
        }
        short.push(c);
    }
    short
}

pub(crate) fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    whole_header(headers, name).map(short_header)
}

/// A header that may still repeat a credential.
pub(crate) fn whole_header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// The beginning of a header.
pub(crate) fn short_header(text: String) -> String {
    shorten(&text, HEADER_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echoed_endpoint_is_hidden_whole_and_in_parts() {
        let url = "https://push.example.com/send/dGhpcy1pcy1hLXRva2Vu?k=c2Vjb25kLXNlY3JldA";
        let body = format!("no such subscription: {url}; token dGhpcy1pcy1hLXRva2Vu is unknown");
        let kept = excerpt(body.as_bytes(), &[url]).unwrap();
        assert_eq!(kept, "no such subscription: [hidden]; token [hidden] is unknown");
    }

    #[test]
    fn a_credential_is_hidden_however_short_it_is_and_wherever_the_text_is_cut() {
        let secrets = ["s3c".to_owned()];
        assert_eq!(&*without(b"token S3C is wrong", &secrets), b"token [hidden] is wrong");
        let long = format!("{}s3c", "x".repeat(DETAIL_MAX - 1));
        let kept = excerpt(&without(long.as_bytes(), &secrets), &[]).unwrap();
        assert!(kept.ends_with("x["), "{kept}");
        assert_eq!(hide_all("s3c".to_owned(), &secrets), "[hidden]");
    }

    #[test]
    fn a_detail_is_one_short_line() {
        let kept = excerpt("ü\n".repeat(5000).as_bytes(), &[]).unwrap();
        assert!(kept.len() <= DETAIL_MAX && kept.starts_with("ü ü"));
        assert_eq!(excerpt(b" \n", &[]), None);
    }
}
