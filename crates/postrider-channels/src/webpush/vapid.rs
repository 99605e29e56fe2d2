//! VAPID tokens (RFC 8292): signed here, cached per key and origin, renewed before they expire.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::HeaderValue;
use postrider_core::{KeyId, Timestamp};

use super::keys::{VapidKey, VapidSubject};
use crate::pool::Origin;
use crate::{Error, jwt};

const VALID_FOR: Duration = Duration::from_secs(12 * 3600);
const REUSED_FOR: Duration = Duration::from_secs(11 * 3600);
/// A push service that refuses tokens gets a new one at most this often.
const RESIGN_PAUSE: Duration = Duration::from_secs(60);
/// This long after a push service accepted a key, a refusal of the key is the subscription's fault.
const WORKS_FOR: Duration = Duration::from_secs(3600);
const KEPT: usize = 256;
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
}

/// Signed tokens. The least recently used is forgotten first.
pub struct VapidTokens {
    subject: VapidSubject,
    kept: Mutex<CachedTokens>,
}

#[derive(Default)]
struct CachedTokens {
    by_key: HashMap<KeyId, HashMap<Box<str>, CachedVapidToken>>,
    count: usize,
    uses: u64,
}

struct CachedVapidToken {
    token: Arc<VapidToken>,
    last_use: u64,
}

impl VapidTokens {
    pub fn new(subject: VapidSubject) -> Self {
        Self { subject, kept: Mutex::default() }
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
        let mut kept = self.kept.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let known = kept.find(key.id(), origin.as_str());
        if let Some(token) = &known {
            let keep = !resign || now.since(token.signed_at) < RESIGN_PAUSE;
            if keep && token.is_fresh(now) {
                return Ok(token.clone());
            }
        }
        let mut token = sign(key, origin.as_str(), &self.subject, now)?;
        if let Some(known) = known {
            token.worked_at = known.worked_at.load(Ordering::Relaxed).into();
        }
        let token = Arc::new(token);
        kept.insert(key.id(), origin.as_str(), token.clone());
        Ok(token)
    }
}

impl CachedTokens {
    fn find(&mut self, key: KeyId, origin: &str) -> Option<Arc<VapidToken>> {
        self.uses += 1;
        let entry = self.by_key.get_mut(&key)?.get_mut(origin)?;
        entry.last_use = self.uses;
        Some(entry.token.clone())
    }

    fn insert(&mut self, key: KeyId, origin: &str, token: Arc<VapidToken>) {
        let entry = CachedVapidToken { token, last_use: self.uses };
        if self.by_key.entry(key).or_default().insert(origin.into(), entry).is_none() {
            self.count += 1;
        }
        if self.count > KEPT {
            self.forget_one();
        }
    }

    fn forget_one(&mut self) {
        let uses = self.by_key.values().flat_map(HashMap::values).map(|entry| entry.last_use);
        let Some(oldest) = uses.min() else { return };
        for origins in self.by_key.values_mut() {
            origins.retain(|_, entry| entry.last_use != oldest);
        }
        self.by_key.retain(|_, origins| !origins.is_empty());
        self.count = self.by_key.values().map(HashMap::len).sum();
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
    fn only_the_last_used_tokens_are_kept() {
        let (tokens, key) = (tokens(), VapidKey::generate(KeyId(1)).unwrap());
        let first = tokens.get(&key, &origin("https://h0.example"), NOW, false).unwrap();
        for n in 1..=KEPT {
            tokens.get(&key, &origin(&format!("https://h{n}.example")), NOW, false).unwrap();
            tokens.get(&key, &origin("https://h0.example"), NOW, false).unwrap();
        }
        assert_eq!(tokens.kept.lock().unwrap().count, KEPT);
        let again = tokens.get(&key, &origin("https://h0.example"), NOW, false).unwrap();
        assert!(Arc::ptr_eq(&first, &again), "the one in use was forgotten");
    }
}
