//! Checks `Authorization: vapid t=…, k=…` (RFC 8292) the way push services do. The signature of a
//! token is verified once and remembered; its times and audience are checked at every request.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD_INDIFFERENT as B64;
use serde::Deserialize;

const LIFETIME_MAX_S: i64 = 24 * 3600;
const CACHE_MAX: usize = 4096;

/// What is wrong with a request's proof of who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FakeVapidError {
    #[error("the Authorization header is missing")]
    Missing,
    #[error("the Authorization header is not `vapid t=…, k=…`")]
    Malformed,
    #[error("k is not an uncompressed P-256 point in base64url")]
    Key,
    #[error("t is not a JWT signed by k with ES256")]
    Token,
    #[error("exp is missing or not an integer")]
    ExpiryMissing,
    #[error("exp has passed")]
    Expired,
    #[error("exp is more than 24 hours away")]
    ExpiryTooFar,
    #[error("aud is not the origin of the endpoint")]
    Audience,
}

/// A token whose signature is in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FakeVapidToken {
    pub key: [u8; 65],
    pub audience: String,
    pub expires_at_s: i64,
    pub subject: Option<String>,
}

#[derive(Default)]
pub(super) struct FakeVapidVerifier {
    verified: RwLock<HashMap<Box<str>, Arc<FakeVapidToken>>>,
}

impl FakeVapidVerifier {
    pub(super) fn check(
        &self,
        header: Option<&str>,
        origin: &str,
        now_s: i64,
    ) -> Result<Arc<FakeVapidToken>, FakeVapidError> {
        let header = header.ok_or(FakeVapidError::Missing)?;
        let token = match self.known(header) {
            Some(token) => token,
            None => self.learn(header)?,
        };
        if token.expires_at_s <= now_s {
            return Err(FakeVapidError::Expired);
        }
        if token.expires_at_s > now_s + LIFETIME_MAX_S {
            return Err(FakeVapidError::ExpiryTooFar);
        }
        if token.audience != origin {
            return Err(FakeVapidError::Audience);
        }
        Ok(token)
    }

    fn known(&self, header: &str) -> Option<Arc<FakeVapidToken>> {
        self.verified.read().unwrap_or_else(PoisonError::into_inner).get(header).cloned()
    }

    fn learn(&self, header: &str) -> Result<Arc<FakeVapidToken>, FakeVapidError> {
        let token = Arc::new(verify(header)?);
        let mut verified = self.verified.write().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= CACHE_MAX {
            verified.clear();
        }
        verified.insert(header.into(), Arc::clone(&token));
        Ok(token)
    }
}

fn verify(header: &str) -> Result<FakeVapidToken, FakeVapidError> {
    let (jwt, key) = parts(header)?;
    let key: [u8; 65] = B64
        .decode(key)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .filter(|bytes: &[u8; 65]| bytes[0] == 4)
        .ok_or(FakeVapidError::Key)?;
    let (signed, signature) = jwt.rsplit_once('.').ok_or(FakeVapidError::Token)?;
    let (head, claims) = signed.split_once('.').ok_or(FakeVapidError::Token)?;
    check_head(head)?;
    let signature = B64.decode(signature).map_err(|_| FakeVapidError::Token)?;
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key)
        .verify(signed.as_bytes(), &signature)
        .map_err(|_| FakeVapidError::Token)?;
    read_claims(key, claims)
}

fn parts(header: &str) -> Result<(&str, &str), FakeVapidError> {
    let (scheme, rest) = header.trim().split_once(' ').ok_or(FakeVapidError::Malformed)?;
    if !scheme.eq_ignore_ascii_case("vapid") {
        return Err(FakeVapidError::Malformed);
    }
    let mut found = (None, None);
    for part in rest.split(',') {
        match part.trim().split_once('=') {
            Some(("t", value)) => found.0 = Some(value),
            Some(("k", value)) => found.1 = Some(value),
            _ => return Err(FakeVapidError::Malformed),
        }
    }
    found.0.zip(found.1).ok_or(FakeVapidError::Malformed)
}

fn check_head(head: &str) -> Result<(), FakeVapidError> {
    #[derive(Deserialize)]
    struct VapidJwtHead {
        alg: String,
    }
    let bytes = B64.decode(head).map_err(|_| FakeVapidError::Token)?;
    match serde_json::from_slice::<VapidJwtHead>(&bytes) {
        Ok(head) if head.alg == "ES256" => Ok(()),
        _ => Err(FakeVapidError::Token),
    }
}

fn read_claims(key: [u8; 65], claims: &str) -> Result<FakeVapidToken, FakeVapidError> {
    #[derive(Deserialize)]
    struct VapidJwtClaims {
        #[serde(default)]
        aud: serde_json::Value,
        #[serde(default)]
        exp: serde_json::Value,
        sub: Option<String>,
    }
    let bytes = B64.decode(claims).map_err(|_| FakeVapidError::Token)?;
    let claims: VapidJwtClaims =
        serde_json::from_slice(&bytes).map_err(|_| FakeVapidError::Token)?;
    Ok(FakeVapidToken {
        key,
        audience: claims.aud.as_str().ok_or(FakeVapidError::Audience)?.to_owned(),
        expires_at_s: claims.exp.as_i64().ok_or(FakeVapidError::ExpiryMissing)?,
        subject: claims.sub,
    })
}

/// Apple's rule for `sub`: present, `mailto:` or `https:`, and not on this very machine.
pub(super) fn subject_suits_apple(subject: Option<&str>) -> bool {
    let Some(subject) = subject else { return false };
    let host = match (subject.strip_prefix("mailto:"), subject.strip_prefix("https://")) {
        (Some(mail), _) => mail.rsplit_once('@').map(|(_, host)| host),
        (_, Some(rest)) => rest.split(['/', ':', '?']).next(),
        _ => None,
    };
    host.is_some_and(|host| !host.is_empty() && host != "localhost")
        && !subject.contains([' ', '<', '>'])
}
