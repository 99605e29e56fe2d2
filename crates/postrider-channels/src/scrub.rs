//! What may be kept of a provider's words: short, printable, and without anything of ours in them.

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
    let value = headers.get(name)?.to_str().ok()?;
    Some(shorten(value, HEADER_MAX))
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
    fn a_detail_is_one_short_line() {
        let kept = excerpt("ü\n".repeat(5000).as_bytes(), &[]).unwrap();
        assert!(kept.len() <= DETAIL_MAX && kept.starts_with("ü ü"));
        assert_eq!(excerpt(b" \n", &[]), None);
    }
}
