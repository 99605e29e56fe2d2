//! VAPID tokens (RFC 8292): signed here, cached per key and origin, renewed before they expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ::http::HeaderValue;
use postrider_core::{KeyId, Timestamp};

use super::keys::{VapidKey, VapidSubject};
use super::token_cache::VapidTokenCache;
use crate::pool::Origin;
use crate::{Error, jwt};

const VALID_FOR: Duration = Duration::from_secs(12 * 3600);
const REUSED_FOR: Duration = Duration::from_secs(11 * 3600);
/// A push service that refuses tokens gets a new one at most this often.
const RESIGN_PAUSE: Duration = Duration::from_secs(60);
/// This long after a push service accepted a key, a refusal of the key is the subscription's fault.
const WORKS_FOR: Duration = Duration::from_secs(3600);
const HEADER: &str = r#"{"typ":"JWT","alg":"ES256"}"#;

/// A signed token as it goes into `Authorization`.
pub struct VapidToken {
    pub authorization: HeaderValue,
    pub(super) signed_at: Timestamp,
    pub(super) key: KeyId,
    /// When its origin last accepted its key.
    worked_at: AtomicI64,
}

impl VapidToken {
    pub(super) fn worked(&self, now: Timestamp) {
        self.worked_at.store(now.0, Ordering::Relaxed);
    }

    /// Whether the origin accepted the key not long ago.
    pub(super) fn works(&self, now: Timestamp) -> bool {
        let at = self.worked_at.load(Ordering::Relaxed);
        at != i64::MIN && now.since(Timestamp(at)) < WORKS_FOR
    }

    /// False for old tokens, and for tokens from the future after the clock was set back.
    fn is_fresh(&self, now: Timestamp) -> bool {
        now + RESIGN_PAUSE >= self.signed_at && now.since(self.signed_at) < REUSED_FOR
    }

    /// Fresh, and from the last minute if a new token is wanted.
    fn is_usable(&self, now: Timestamp, resign: bool) -> bool {
        self.is_fresh(now) && (!resign || now.since(self.signed_at) < RESIGN_PAUSE)
    }
}

/// Signed tokens. The least recently used are forgotten first.
pub struct VapidTokens {
    subject: VapidSubject,
    cache: VapidTokenCache,
}

impl VapidTokens {
    pub fn new(subject: VapidSubject) -> Self {
        Self { subject, cache: VapidTokenCache::new() }
    }

    /// The token for this key and origin. Signed anew if it is old, or if `resign` is set and the token is not from the
    /// last minute.
    pub fn get(
        &self,
        key: &VapidKey,
        origin: &Origin,
        now: Timestamp,
        resign: bool,
    ) -> Result<Arc<VapidToken>, Error> {
        let sign = || sign(key, origin.as_str(), &self.subject, now);
        self.get_or_sign(key.id(), origin.as_str(), now, resign, sign)
    }

    /// Signs without a lock. Of those that sign the same token at once, the first one's is kept and all get it.
    fn get_or_sign(
        &self,
        key: KeyId,
        origin: &str,
        now: Timestamp,
        resign: bool,
        sign: impl FnOnce() -> Result<VapidToken, Error>,
    ) -> Result<Arc<VapidToken>, Error> {
        let found = self.cache.find(key, origin);
        if let Some(token) = found.filter(|token| token.is_usable(now, resign)) {
            return Ok(token);
        }
        let signed = sign()?;
        Ok(self.cache.replace(key, origin, |present| match present {
            Some(present) if present.is_usable(now, resign) => present,
            Some(present) => {
                signed
                    .worked_at
                    .store(present.worked_at.load(Ordering::Relaxed), Ordering::Relaxed);
                Arc::new(signed)
            }
            None => Arc::new(signed),
        }))
    }
}

fn sign(
    key: &VapidKey,
    audience: &str,
    subject: &VapidSubject,
    now: Timestamp,
) -> Result<VapidToken, Error> {
    let expires = (now + VALID_FOR).as_secs();
    let subject = subject.as_str();
    // Neither an origin nor a subject can hold a character that JSON would have to escape.
    let claims = format!(r#"{{"aud":"{audience}","exp":{expires},"sub":"{subject}"}}"#);
    let jwt = jwt::signed(HEADER, &claims, |text| key.sign(text))?;
    let value = format!("vapid t={jwt}, k={}", key.public_key());
    let mut authorization = HeaderValue::try_from(value).map_err(|_| Error::Crypto)?;
    authorization.set_sensitive(true);
    let worked_at = AtomicI64::new(i64::MIN);
    Ok(VapidToken { authorization, signed_at: now, key: key.id(), worked_at })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    fn tokens() -> VapidTokens {
        VapidTokens::new(VapidSubject::parse("mailto:ops@example.com").unwrap())
    }

    fn origin(url: &str) -> Origin {
        Origin::parse(url).unwrap()
    }

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn a_token_names_the_origin_with_its_port_and_verifies() {
        let key = VapidKey::generate(KeyId(1)).unwrap();
        let token = tokens().get(&key, &origin("https://push.example:8443/x"), NOW, false).unwrap();
        let text = token.authorization.to_str().unwrap();
        let (jwt, public) =
            text.strip_prefix("vapid t=").and_then(|t| t.split_once(", k=")).unwrap();
        let (signed, signature) = jwt.rsplit_once('.').unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
        assert_eq!(decode(header), HEADER.as_bytes());
        assert_eq!(
            String::from_utf8(decode(claims)).unwrap(),
            r#"{"aud":"https://push.example:8443","exp":1800043200,"sub":"mailto:ops@example.com"}"#
        );
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, decode(public));
        public.verify(signed.as_bytes(), &decode(signature)).unwrap();
    }

    #[test]
    fn a_token_is_reused_for_eleven_hours_per_key_and_origin() {
        let (tokens, key) = (tokens(), VapidKey::generate(KeyId(1)).unwrap());
        let a = origin("https://a.example");
        let first = tokens.get(&key, &a, NOW, false).unwrap();
        let after = |s: u64| NOW + Duration::from_secs(s);
        let same = tokens.get(&key, &a, after(11 * 3600 - 1), false).unwrap();
        assert!(Arc::ptr_eq(&first, &same));
        let renewed = tokens.get(&key, &a, after(11 * 3600), false).unwrap();
        assert!(!Arc::ptr_eq(&first, &renewed));
        let elsewhere = tokens.get(&key, &origin("https://a.example:444"), NOW, false).unwrap();
        let other_key = VapidKey::generate(KeyId(2)).unwrap();
        let for_other = tokens.get(&other_key, &a, NOW, false).unwrap();
        assert_ne!(elsewhere.authorization, first.authorization);
        assert_ne!(for_other.authorization, first.authorization);
    }

    #[test]
    fn a_token_is_signed_anew_on_demand_but_at_most_once_a_minute() {
        let (tokens, key) = (tokens(), VapidKey::generate(KeyId(1)).unwrap());
        let a = origin("https://a.example");
        let first = tokens.get(&key, &a, NOW, false).unwrap();
        let soon = tokens.get(&key, &a, NOW + Duration::from_secs(59), true).unwrap();
        assert!(Arc::ptr_eq(&first, &soon));
        let later = tokens.get(&key, &a, NOW + Duration::from_secs(60), true).unwrap();
        assert!(!Arc::ptr_eq(&first, &later));
    }

    #[test]
    fn a_clock_set_back_does_not_leave_a_token_from_the_future() {
        let (tokens, key) = (tokens(), VapidKey::generate(KeyId(1)).unwrap());
        let a = origin("https://a.example");
        tokens.get(&key, &a, NOW, false).unwrap();
        let back = Timestamp(NOW.0 - 24 * 3_600_000);
        assert_eq!(tokens.get(&key, &a, back, false).unwrap().signed_at, back);
    }

    #[test]
    fn two_that_sign_at_once_do_not_block_each_other_and_get_the_same_token() {
        let (tokens, key) = (tokens(), VapidKey::generate(KeyId(1)).unwrap());
        let a = origin("https://a.example");
        let old = tokens.get(&key, &a, NOW, false).unwrap();
        old.worked(NOW);
        for (resign, after_s) in [(true, 60), (false, 12 * 3600)] {
            let now = NOW + Duration::from_secs(after_s);
            let mut others = None;
            let own = tokens.get_or_sign(key.id(), a.as_str(), now, resign, || {
                assert!(!tokens.cache.is_locked(), "signs under a lock");
                others = Some(tokens.get(&key, &a, now, resign)?);
                sign(&key, a.as_str(), &tokens.subject, now)
            });
            let (own, others) = (own.unwrap(), others.unwrap());
            assert!(Arc::ptr_eq(&own, &others));
            assert!(Arc::ptr_eq(&own, &tokens.get(&key, &a, now, false).unwrap()));
            assert_eq!(own.signed_at, now, "an old token was kept");
            assert_eq!(own.worked_at.load(Ordering::Relaxed), NOW.0);
        }
    }

    #[test]
    fn the_tokens_of_a_thousand_tenants_are_reused() {
        let tokens = tokens();
        let a = origin("https://a.example");
        let keys = (1..=1000).map(|n| VapidKey::generate(KeyId(n)).unwrap());
        let keys: Vec<VapidKey> = keys.collect();
        let get = |key| tokens.get(key, &a, NOW, false).unwrap();
        let first: Vec<_> = keys.iter().map(get).collect();
        assert!(keys.iter().zip(&first).all(|(key, token)| Arc::ptr_eq(token, &get(key))));
    }
}
