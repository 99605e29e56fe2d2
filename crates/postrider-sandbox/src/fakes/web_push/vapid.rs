//! Checks `Authorization: vapid t=…, k=…` (RFC 8292) as push services do. The signature of a token is verified once;
//! its times and audience are checked at every request.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD_INDIFFERENT as B64;

use crate::fakes::jwt::FakeJwt;

const LIFETIME_MAX_S: i64 = 24 * 3600;
const CACHE_MAX: usize = 4096;

/// What is wrong with a VAPID header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FakeVapidError {
    Missing,
    Malformed,
    Key,
    Token,
    ExpiryMissing,
    Expired,
    ExpiryTooFar,
    Audience,
}

/// A token with a valid signature.
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
        let known =
            self.verified.read().unwrap_or_else(PoisonError::into_inner).get(header).cloned();
        let token = match known {
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
    let jwt = FakeJwt::read(jwt).ok_or(FakeVapidError::Token)?;
    if jwt.head["alg"] != "ES256" || !jwt.is_signed_by(&ECDSA_P256_SHA256_FIXED, &key) {
        return Err(FakeVapidError::Token);
    }
    Ok(FakeVapidToken {
        key,
        audience: jwt.claims["aud"].as_str().ok_or(FakeVapidError::Audience)?.to_owned(),
        expires_at_s: jwt.claims["exp"].as_i64().ok_or(FakeVapidError::ExpiryMissing)?,
        subject: serde_json::from_value(jwt.claims["sub"].clone())
            .map_err(|_| FakeVapidError::Token)?,
    })
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

/// Apple's rule for `sub`: present, `mailto:` or `https:`, and not on `localhost`.
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
