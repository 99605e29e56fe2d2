//! The signing key of the fake team (`GET /sandbox/apns/key`), and the checks of provider tokens: signature, age, and
//! how often they change.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
};
use serde_json::{Value, json};

use super::FakeApnsRefusal;
use crate::correlation::hash;
use crate::fakes::jwt::{FakeJwt, private_key_pem};
use crate::listener::ConnectionControl;

pub(super) const TEAM: &str = "SANDBOXTEA";
pub(super) const KEY_ID: &str = "SANDBOXKEY";
const LIFE_S: i64 = 3600;
const SKEW_S: i64 = 300;
/// The shortest time between two tokens on one connection.
const CHANGE_S: i64 = 20 * 60;
const TOKENS_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct FakeProviderTokens {
    key: OnceLock<Option<EcdsaKeyPair>>,
    /// Tokens with a valid signature, and when each was signed.
    verified: Mutex<HashMap<Box<str>, i64>>,
}

/// Refuses a token that replaces another one too soon on the same connection.
fn check_change(
    connection: &ConnectionControl,
    token: &str,
    now: i64,
) -> Result<(), FakeApnsRefusal> {
    let token = hash(0, token.as_bytes());
    let mut last = connection.credential.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((same, _)) if same == token => {}
        Some((_, since)) if now - since < CHANGE_S => {
            return Err((429, "TooManyProviderTokenUpdates"));
        }
        _ => *last = Some((token, now)),
    }
    Ok(())
}

impl FakeProviderTokens {
    fn key(&self) -> Option<&EcdsaKeyPair> {
        let make = || EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).ok();
        self.key.get_or_init(make).as_ref()
    }

    /// Team, key id and the `.p8` file of an account.
    pub(super) fn credential(&self) -> Option<Value> {
        let pkcs8 = self.key()?.to_pkcs8v1().ok()?;
        let key = private_key_pem(pkcs8.as_ref());
        Some(json!({ "team_id": TEAM, "key_id": KEY_ID, "key": key }))
    }

    pub(super) fn check(
        &self,
        header: Option<&str>,
        connection: &ConnectionControl,
        now: i64,
    ) -> Result<(), FakeApnsRefusal> {
        let token = header
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token)
            .ok_or((403, "MissingProviderToken"))?;
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let signed_at = match verified.get(token) {
            Some(at) => *at,
            None => {
                let at = self.verify(token).ok_or((403, "InvalidProviderToken"))?;
                if verified.len() >= TOKENS_MAX {
                    verified.clear();
                }
                verified.insert(token.into(), at);
                at
            }
        };
        drop(verified);
        if signed_at > now + SKEW_S {
            return Err((403, "InvalidProviderToken"));
        }
        if now - signed_at > LIFE_S {
            return Err((403, "ExpiredProviderToken"));
        }
        check_change(connection, token, now)
    }

    fn verify(&self, token: &str) -> Option<i64> {
        let jwt = FakeJwt::read(token)?;
        let is_ours =
            jwt.head["alg"] == "ES256" && jwt.head["kid"] == KEY_ID && jwt.claims["iss"] == TEAM;
        let key = self.key()?.public_key().as_ref();
        let at = jwt.claims["iat"].as_i64()?;
        (is_ours && jwt.is_signed_by(&ECDSA_P256_SHA256_FIXED, key)).then_some(at)
    }
}
