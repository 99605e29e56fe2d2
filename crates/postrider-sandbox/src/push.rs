//! The fake Web Push service: checks what the real ones check, in their order, then does the
//! browser's part and decrypts. Does not keep messages and does not replace by topic.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, header};
use hyper::body::Incoming;

use super::body::{self, ReadError};
use super::correlation::Correlation;
use super::counts::Flaw;
use super::ece;
use super::flavour::{Answer, Flavour, Refusal};
use super::service::{App, Arrival, Refused, header_text};
use super::target::{Detail, Kind, Last, Subscription};
use super::vapid::{Token, subject_suits_apple};

const BODY_MAX: usize = 4096;
const TTL_MAX_S: u64 = 30 * 24 * 3600;
const TOPIC_MAX: usize = 32;

pub(super) async fn receive(
    app: &App,
    scheme: &str,
    mut parts: Parts,
    body: Incoming,
) -> Result<Result<Arrival, Refused>, ReadError> {
    let target = app.targets.get(parts.uri.path().trim_start_matches('/'));
    let Some((target, Detail::Push(subscription))) = target.as_ref().map(|t| (t, &t.detail)) else {
        return Ok(Err(refuse(Flavour::Generic, Refusal::NotFound)));
    };
    let flavour = subscription.flavour;
    if parts.method != Method::POST {
        return Ok(Err(refuse(flavour, Refusal::Status { code: 405, retry_after_s: None })));
    }
    let sealed = match body::read(body, BODY_MAX).await {
        Ok(sealed) => sealed,
        Err(ReadError::TooLarge) => return Ok(Err(refuse(flavour, Refusal::TooLarge))),
        Err(error) => return Err(error),
    };
    let (ttl_s, plain) = match check(app, scheme, &parts, subscription, &sealed) {
        Ok(passed) => passed,
        Err(refusal) => return Ok(Err(refuse(flavour, refusal))),
    };
    let id = Correlation::from_content(&plain);
    let headers = std::mem::take(&mut parts.headers);
    target.remember(Last { method: parts.method, headers, body: plain });
    Ok(Ok(Arrival { target: target.clone(), id, ttl_s, api: None }))
}

fn check(
    app: &App,
    scheme: &str,
    parts: &Parts,
    subscription: &Subscription,
    sealed: &Bytes,
) -> Result<(u32, Bytes), Refusal> {
    let ttl_s = check_headers(&parts.headers, subscription.flavour, sealed.is_empty())?;
    let authorization = header_text(&parts.headers, header::AUTHORIZATION.as_str());
    let token = app
        .verifier
        .check(authorization, &origin(scheme, parts), app.now_s())
        .map_err(Refusal::Vapid)?;
    check_sender(subscription, &token)?;
    if sealed.is_empty() {
        return Ok((ttl_s, Bytes::new()));
    }
    let plain = ece::decrypt(&subscription.keys, &subscription.auth, sealed)
        .map_err(|_| Refusal::Undecryptable)?;
    Ok((ttl_s, plain.into()))
}

fn check_headers(headers: &HeaderMap, flavour: Flavour, empty: bool) -> Result<u32, Refusal> {
    let ttl_s = ttl(header_text(headers, "ttl"))?;
    if let Some(urgency) = headers.get("urgency") {
        let known = [&b"very-low"[..], b"low", b"normal", b"high"];
        if !known.contains(&urgency.as_bytes()) {
            return Err(Refusal::Urgency);
        }
    }
    if headers.get("topic").is_some_and(|topic| !topic_is_legal(topic.as_bytes(), flavour)) {
        return Err(Refusal::Topic);
    }
    let encoding = headers.get(header::CONTENT_ENCODING).map(|v| v.as_bytes());
    if !empty && encoding != Some(b"aes128gcm") {
        return Err(Refusal::Encoding);
    }
    let policy = header_text(headers, "x-wns-cache-policy");
    if flavour == Flavour::Wns && (ttl_s == 0) != (policy == Some("no-cache")) {
        return Err(Refusal::CachePolicy);
    }
    Ok(ttl_s)
}

fn ttl(value: Option<&str>) -> Result<u32, Refusal> {
    let value = value.ok_or(Refusal::TtlMissing)?;
    if value.starts_with('-') {
        return Err(Refusal::TtlNegative);
    }
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Refusal::TtlInvalid);
    }
    // More digits than a number holds is still a very long time.
    Ok(value.parse::<u64>().unwrap_or(u64::MAX).min(TTL_MAX_S) as u32)
}

/// Apple decodes the topic as base64url, which no text of length 4n + 1 can be.
fn topic_is_legal(topic: &[u8], flavour: Flavour) -> bool {
    let alphabet = topic.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    let decodable = flavour != Flavour::Apple || topic.len() % 4 != 1;
    !topic.is_empty() && topic.len() <= TOPIC_MAX && alphabet && decodable
}

fn check_sender(subscription: &Subscription, token: &Token) -> Result<(), Refusal> {
    if subscription.flavour == Flavour::Apple && !subject_suits_apple(token.subject.as_deref()) {
        return Err(Refusal::Subject);
    }
    if subscription.sender.get_or_init(|| token.key) != &token.key {
        return Err(Refusal::KeyMismatch);
    }
    Ok(())
}

fn refuse(flavour: Flavour, refusal: Refusal) -> Refused {
    let flaw = match refusal {
        Refusal::Vapid(_) | Refusal::Subject | Refusal::KeyMismatch => Flaw::Vapid,
        Refusal::Undecryptable => Flaw::Undecryptable,
        _ => Flaw::Request,
    };
    let answer: Answer = flavour.refuse(refusal);
    Refused { kind: Kind::Push, flaw, answer }
}

/// The origin that the sender addressed, without a default port.
fn origin(scheme: &str, parts: &Parts) -> String {
    let authority = parts.uri.authority().map(|a| a.as_str());
    let authority = authority.or_else(|| header_text(&parts.headers, "host")).unwrap_or_default();
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    let host = authority.strip_suffix(default_port).unwrap_or(authority);
    format!("{scheme}://{}", host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_a_plain_number() {
        assert_eq!(ttl(Some("0")), Ok(0));
        assert_eq!(ttl(Some("99999999999999999999999")), Ok(2_592_000));
        assert_eq!(ttl(None), Err(Refusal::TtlMissing));
        assert_eq!(ttl(Some("-1")), Err(Refusal::TtlNegative));
        for bad in ["", "1.5", "1 h", "+3"] {
            assert_eq!(ttl(Some(bad)), Err(Refusal::TtlInvalid), "{bad}");
        }
    }

    #[test]
    fn apple_refuses_topics_that_no_base64_can_be() {
        for (topic, generic, apple) in [
            ("abcd", true, true),
            ("abcde", true, false),
            ("a.b", false, false),
            ("", false, false),
        ] {
            assert_eq!(topic_is_legal(topic.as_bytes(), Flavour::Generic), generic, "{topic}");
            assert_eq!(topic_is_legal(topic.as_bytes(), Flavour::Apple), apple, "{topic}");
        }
        assert!(!topic_is_legal(&[b'a'; 33], Flavour::Generic));
    }
}
