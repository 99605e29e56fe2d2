//! Receivers of webhooks (Standard Webhooks, verified where a secret is known) and of plain
//! HTTP requests (any method, nothing verified). Receivers come into being when first addressed.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method};
use hyper::body::Incoming;

use super::body::{self, ReadError};
use super::correlation::Correlation;
use super::counts::Flaw;
use super::flavour::Answer;
use super::service::{App, Arrival, Refused, header_text};
use super::target::{Detail, Kind, Last, Target};

const BODY_MAX: usize = 4 << 20;
const TOLERANCE_S: i64 = 5 * 60;
const NAME_MAX: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureError {
    #[error("webhook-id, webhook-timestamp or webhook-signature is missing")]
    Missing,
    #[error("webhook-timestamp is not within five minutes of now")]
    Timestamp,
    #[error("no signature in webhook-signature matches")]
    Mismatch,
    #[error("a secret is whsec_ followed by base64")]
    Secret,
}

pub(super) async fn receive(
    app: &App,
    parts: Parts,
    body: Incoming,
) -> Result<Result<Arrival, Refused>, ReadError> {
    let Some(target) = find_or_make(app, Kind::Hook, parts.uri.path()) else {
        return Ok(Err(refused(Kind::Hook, Flaw::Request, 404, "no such receiver\n")));
    };
    if parts.method != Method::POST {
        return Ok(Err(refused(Kind::Hook, Flaw::Request, 405, "a webhook is a POST\n")));
    }
    let content = match body::read(body, BODY_MAX).await {
        Ok(content) => content,
        Err(ReadError::TooLarge) => {
            return Ok(Err(refused(Kind::Hook, Flaw::Request, 413, "larger than 4 MiB\n")));
        }
        Err(error) => return Err(error),
    };
    let own = if let Detail::Hook { secret } = &target.detail { secret.as_deref() } else { None };
    match own.or(app.default_secret.as_ref()) {
        Some(key) => {
            if verify(key, &parts.headers, &content, app.now_s()).is_err() {
                return Ok(Err(refused(Kind::Hook, Flaw::Signature, 401, "bad signature\n")));
            }
        }
        None => app.received.counts.unverified(),
    }
    Ok(Ok(arrive(target, "webhook-id", parts, content)))
}

pub(super) async fn receive_plain(
    app: &App,
    parts: Parts,
    body: Incoming,
) -> Result<Result<Arrival, Refused>, ReadError> {
    let Some(target) = find_or_make(app, Kind::Http, parts.uri.path()) else {
        return Ok(Err(refused(Kind::Http, Flaw::Request, 404, "no such receiver\n")));
    };
    let content = match body::read(body, BODY_MAX).await {
        Ok(content) => content,
        Err(ReadError::TooLarge) => {
            return Ok(Err(refused(Kind::Http, Flaw::Request, 413, "larger than 4 MiB\n")));
        }
        Err(error) => return Err(error),
    };
    Ok(Ok(arrive(target, "idempotency-key", parts, content)))
}

fn arrive(target: Arc<Target>, id_header: &str, parts: Parts, content: Bytes) -> Arrival {
    let named =
        [id_header, "idempotency-key"].into_iter().find_map(|n| header_text(&parts.headers, n));
    let id = match named {
        Some(id) => Correlation::from_text(id),
        None => Correlation::from_content(&content),
    };
    target.remember(Last { method: parts.method, headers: parts.headers, body: content });
    Arrival { target, id, ttl_s: 0, api: None }
}

/// `/hook/<name>`, anything behind a further slash left out.
fn find_or_make(app: &App, kind: Kind, path: &str) -> Option<Arc<Target>> {
    let path = path.trim_start_matches('/');
    if let Some(found) = app.targets.get(path) {
        return Some(found);
    }
    let name = path.split('/').nth(1).filter(|n| !n.is_empty() && n.len() <= NAME_MAX)?;
    let detail = match kind {
        Kind::Hook => Detail::Hook { secret: None },
        _ => Detail::Http,
    };
    Some(app.targets.get_or_put(kind, name, detail))
}

/// `whsec_` + base64, as Standard Webhooks writes secrets.
pub(super) fn parse_secret(text: &str) -> Result<hmac::Key, SignatureError> {
    let encoded = text.strip_prefix("whsec_").ok_or(SignatureError::Secret)?;
    let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| SignatureError::Secret)?;
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

fn verify(
    key: &hmac::Key,
    headers: &HeaderMap,
    body: &[u8],
    now_s: i64,
) -> Result<(), SignatureError> {
    let get = |name| header_text(headers, name).ok_or(SignatureError::Missing);
    let (id, timestamp) = (get("webhook-id")?, get("webhook-timestamp")?);
    let signatures = get("webhook-signature")?;
    let at: i64 = timestamp.parse().map_err(|_| SignatureError::Timestamp)?;
    if at.abs_diff(now_s) > TOLERANCE_S as u64 {
        return Err(SignatureError::Timestamp);
    }
    let mut context = hmac::Context::with_key(key);
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        context.update(part);
    }
    let expected = BASE64_STANDARD.encode(context.sign());
    let matches = signatures.split(' ').filter_map(|s| s.strip_prefix("v1,")).any(|s| {
        aws_lc_rs::constant_time::verify_slices_are_equal(s.as_bytes(), expected.as_bytes()).is_ok()
    });
    if matches { Ok(()) } else { Err(SignatureError::Mismatch) }
}

fn refused(kind: Kind, flaw: Flaw, status: u16, why: &'static str) -> Refused {
    Refused { kind, flaw, answer: Answer::text(status, why) }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const AT: i64 = 1_614_265_330;

    fn headers(signature: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", HeaderValue::from_static("msg_p5jXN8AQM9LWM0D4loKWxJek"));
        headers.insert("webhook-timestamp", HeaderValue::from_static("1614265330"));
        headers.insert("webhook-signature", HeaderValue::from_static(signature));
        headers
    }

    #[test]
    fn the_known_vector_verifies_among_other_signatures() {
        let key = parse_secret(SECRET).unwrap();
        let good = headers("v1a,xx v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(verify(&key, &good, BODY, AT), Ok(()));
        assert_eq!(verify(&key, &good, b"{}", AT), Err(SignatureError::Mismatch));
    }

    #[test]
    fn a_timestamp_beyond_five_minutes_is_refused() {
        let key = parse_secret(SECRET).unwrap();
        let good = headers("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(verify(&key, &good, BODY, AT + 300), Ok(()));
        assert_eq!(verify(&key, &good, BODY, AT + 301), Err(SignatureError::Timestamp));
        assert_eq!(verify(&key, &good, BODY, AT - 301), Err(SignatureError::Timestamp));
    }

    #[test]
    fn a_secret_needs_its_prefix() {
        assert!(parse_secret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_err());
        assert!(parse_secret("whsec_%%%").is_err());
    }
}
