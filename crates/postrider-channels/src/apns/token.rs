//! Provider tokens: one per team and key, shared by all connections and accounts. Apple refuses tokens older than an
//! hour, and tokens that change more often than every 20 minutes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::HeaderValue;
use postrider_core::Timestamp;
use serde_json::json;

use super::key::ApnsSigningKey;
use crate::{Error, jwt};

/// Renewed at this age.
const RENEWED_AT: Duration = Duration::from_secs(48 * 60);
/// Never renewed before this age.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(20 * 60);

pub(super) struct ApnsToken {
    pub(super) authorization: HeaderValue,
    pub(super) signed_at: Timestamp,
}

/// The tokens of one team and key.
pub(super) struct ProviderTokens {
    team: Box<str>,
    key_id: Box<str>,
    state: Mutex<ApnsTokenState>,
}

#[derive(Default)]
struct ApnsTokenState {
    token: Option<Arc<ApnsToken>>,
    /// The public half of the key that signed it.
    signed_by: Box<[u8]>,
    /// No new token before this time.
    not_before: Option<Timestamp>,
}

impl ProviderTokens {
    pub(super) fn new(team: &str, key_id: &str) -> Self {
        Self { team: team.into(), key_id: key_id.into(), state: Mutex::default() }
    }

    /// The current token. `resign` says that Apple calls it expired.
    pub(super) fn get(
        &self,
        key: &ApnsSigningKey,
        now: Timestamp,
        resign: bool,
    ) -> Result<Arc<ApnsToken>, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = &state.token
            && *state.signed_by == *key.public()
        {
            // After the clock was set back, the age is zero, and the token is kept.
            let age = now.since(token.signed_at);
            let barred = age < KEPT_FOR || state.not_before.is_some_and(|until| now < until);
            if barred || (age < RENEWED_AT && !resign) {
                return Ok(token.clone());
            }
        }
        let header = json!({"alg": "ES256", "kid": self.key_id}).to_string();
        let claims = json!({"iss": self.team, "iat": now.as_secs()}).to_string();
        let text = jwt::signed(&header, &claims, |text| key.sign(text))?;
        let value = HeaderValue::try_from(format!("bearer {text}"));
        let mut authorization = value.map_err(|_| Error::Crypto)?;
        authorization.set_sensitive(true);
        let token = Arc::new(ApnsToken { authorization, signed_at: now });
        let signed_by = key.public().into();
        *state = ApnsTokenState { token: Some(token.clone()), signed_by, not_before: None };
        Ok(token)
    }

    /// Apple saw too many tokens: the current one stays for a while.
    pub(super) fn rest(&self, now: Timestamp) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.not_before = Some(now + KEPT_FOR);
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::super::key::ApnsCredential;
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn key() -> ApnsSigningKey {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let pem = rcgen_pem(pair.to_pkcs8v1().unwrap().as_ref());
        let Ok(ApnsCredential::Key(key)) = ApnsCredential::parse(&pem) else {
            panic!("a signing key")
        };
        key
    }

    fn rcgen_pem(der: &[u8]) -> String {
        let body = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
    }

    fn after(minutes: u64) -> Timestamp {
        NOW + Duration::from_secs(minutes * 60)
    }

    fn get(
        tokens: &ProviderTokens,
        key: &ApnsSigningKey,
        now: Timestamp,
        resign: bool,
    ) -> Arc<ApnsToken> {
        tokens.get(key, now, resign).unwrap()
    }

    #[test]
    fn a_token_names_team_key_and_moment_and_nothing_else() {
        let token = get(&ProviderTokens::new("TEAM123456", "KEY1234567"), &key(), NOW, false);
        let text = token.authorization.to_str().unwrap().strip_prefix("bearer ").unwrap();
        let part = |n: usize| {
            let bytes = URL_SAFE_NO_PAD.decode(text.split('.').nth(n).unwrap()).unwrap();
            serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()
        };
        assert_eq!(part(0), json!({"alg": "ES256", "kid": "KEY1234567"}));
        assert_eq!(part(1), json!({"iss": "TEAM123456", "iat": 1_800_000_000}));
    }

    #[test]
    fn one_token_serves_everybody_for_48_minutes() {
        let (tokens, key) = (ProviderTokens::new("T", "K"), key());
        let first = get(&tokens, &key, NOW, false);
        assert!(Arc::ptr_eq(&first, &get(&tokens, &key, after(47), false)));
        assert!(!Arc::ptr_eq(&first, &get(&tokens, &key, after(48), false)));
    }

    #[test]
    fn no_second_token_is_made_within_20_minutes_whatever_happens() {
        let (tokens, key) = (ProviderTokens::new("T", "K"), key());
        let first = get(&tokens, &key, NOW, false);
        assert!(Arc::ptr_eq(&first, &get(&tokens, &key, after(19), true)));
        assert!(Arc::ptr_eq(&first, &get(&tokens, &key, NOW - Duration::from_secs(9_000), true)));
        let second = get(&tokens, &key, after(20), true);
        assert!(!Arc::ptr_eq(&first, &second));
        tokens.rest(after(45));
        assert!(Arc::ptr_eq(&second, &get(&tokens, &key, after(64), true)), "too many updates");
        assert!(!Arc::ptr_eq(&second, &get(&tokens, &key, after(65), true)));
    }

    #[test]
    fn another_key_signs_at_once() {
        let tokens = ProviderTokens::new("T", "K");
        let (old, new) = (key(), key());
        let first = get(&tokens, &old, NOW, false);
        assert!(!Arc::ptr_eq(&first, &get(&tokens, &new, NOW, false)));
    }
}
