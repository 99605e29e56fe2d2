//! Standard Webhooks signatures over id, time and body: HMAC-SHA-256 (`v1`), and Ed25519 (`v1a`), which receivers can
//! check but not make.

use std::fmt;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::hmac::{self, Context, HMAC_SHA256, Key};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::Error;

const PREFIX: &str = "whsec_";
const PUBLIC_PREFIX: &str = "whpk_";
/// What is hashed with a tenant's secret, before the URL, for the secret of one address.
const FOR_ADDRESS: &str = "postrider webhook secret 1 ";
/// The same for the seed of the tenant's Ed25519 key.
const FOR_ED25519: &str = "postrider webhook ed25519 1";
const LEN_MIN: usize = 24;
const LEN_MAX: usize = 64;

/// A shared secret, ready to sign with.
pub struct WebhookSecret {
    key: Key,
    /// Made when it is needed.
    ed25519: OnceLock<Option<Ed25519KeyPair>>,
}

impl WebhookSecret {
    /// From `whsec_` and base64.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let base64 = text.strip_prefix(PREFIX).ok_or(Error::WebhookSecret("another beginning"))?;
        let raw = STANDARD_NO_PAD
            .decode(base64.trim_end_matches('='))
            .map_err(|_| Error::WebhookSecret("something that is not base64"))?;
        Self::from_raw(&raw)
    }

    pub fn from_raw(raw: &[u8]) -> Result<Self, Error> {
        match raw.len() {
            LEN_MIN..=LEN_MAX => {
                Ok(Self { key: Key::new(HMAC_SHA256, raw), ed25519: OnceLock::new() })
            }
            0..LEN_MIN => Err(Error::WebhookSecret("fewer bytes")),
            _ => Err(Error::WebhookSecret("more bytes")),
        }
    }

    /// 32 fresh random bytes, to be kept raw and shown with [`WebhookSecret::show`].
    pub fn generate() -> Result<[u8; 32], Error> {
        let mut raw = [0; 32];
        aws_lc_rs::rand::fill(&mut raw).map_err(|_| Error::Crypto)?;
        Ok(raw)
    }

    /// The raw secret of one address, made from the tenant's: who has it can make neither the tenant's nor that of
    /// another address.
    pub fn raw_for_address(&self, url: &str) -> [u8; 32] {
        let mut hash = Context::with_key(&self.key);
        hash.update(FOR_ADDRESS.as_bytes());
        hash.update(url.as_bytes());
        bytes_of(&hash.sign())
    }

    pub(super) fn for_address(&self, url: &str) -> Self {
        let key = Key::new(HMAC_SHA256, &self.raw_for_address(url));
        Self { key, ed25519: OnceLock::new() }
    }

    /// The public key for `v1a` signatures as receivers configure it, `whpk_…`.
    pub fn public_key(&self) -> Option<String> {
        let public = self.ed25519()?.public_key();
        Some(format!("{PUBLIC_PREFIX}{}", STANDARD.encode(public)))
    }

    fn ed25519(&self) -> Option<&Ed25519KeyPair> {
        let make = || {
            let seed = bytes_of(&hmac::sign(&self.key, FOR_ED25519.as_bytes()));
            Ed25519KeyPair::from_seed_unchecked(&seed).ok()
        };
        self.ed25519.get_or_init(make).as_ref()
    }

    /// The raw bytes as receivers configure them.
    pub fn show(raw: &[u8]) -> String {
        format!("{PREFIX}{}", STANDARD.encode(raw))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret")
    }
}

fn bytes_of(hash: &hmac::Tag) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(hash.as_ref());
    bytes
}

/// Adds an Ed25519 signature per key to the value of `webhook-signature`.
pub(super) fn sign_ed25519(
    list: &mut String,
    keys: &[Arc<WebhookSecret>],
    id: &str,
    timestamp_s: i64,
    body: &[u8],
) {
    let mut signed = format!("{id}.{timestamp_s}.").into_bytes();
    signed.extend_from_slice(body);
    for key in keys.iter().filter_map(|secret| secret.ed25519()) {
        list.push_str(" v1a,");
        STANDARD.encode_string(key.sign(&signed), list);
    }
}

/// The value of `webhook-signature`: one signature per secret, so that a receiver may check with
/// the old one or the new one.
pub fn sign(secrets: &[Arc<WebhookSecret>], id: &str, timestamp_s: i64, body: &[u8]) -> String {
    let head = format!("{id}.{timestamp_s}.");
    let mut list = String::with_capacity(secrets.len() * 48);
    for secret in secrets {
        let mut hmac = Context::with_key(&secret.key);
        hmac.update(head.as_bytes());
        hmac.update(body);
        if !list.is_empty() {
            list.push(' ');
        }
        list.push_str("v1,");
        STANDARD.encode_string(hmac.sign(), &mut list);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn signed(secrets: &[&str]) -> String {
        let secrets: Vec<_> =
            secrets.iter().map(|s| Arc::new(WebhookSecret::parse(s).unwrap())).collect();
        sign(&secrets, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#)
    }

    #[test]
    fn the_vector_of_standard_webhooks_is_met() {
        assert_eq!(signed(&[SECRET]), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn during_a_rotation_both_secrets_sign() {
        let new = WebhookSecret::show(&[7; 32]);
        let both = signed(&[&new, SECRET]);
        assert_eq!(both, format!("{} {}", signed(&[&new]), signed(&[SECRET])));
    }

    #[test]
    fn every_address_has_a_secret_of_its_own() {
        let tenant = WebhookSecret::parse(SECRET).unwrap();
        let one = WebhookSecret::show(&tenant.raw_for_address("https://a.example/hook"));
        let two = WebhookSecret::show(&tenant.raw_for_address("https://b.example/hook"));
        assert!(one != two && one != SECRET);
        let derived = [Arc::new(tenant.for_address("https://a.example/hook"))];
        let list = sign(
            &derived,
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(list, signed(&[&one]), "it is the secret that is shown");
        assert_ne!(list, signed(&[&two]));
    }

    #[test]
    fn an_ed25519_signature_is_checked_with_the_public_key() {
        use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
        let secret = Arc::new(WebhookSecret::parse(SECRET).unwrap());
        let mut list = String::from("v1,x");
        sign_ed25519(&mut list, std::slice::from_ref(&secret), "dlv_1", 7, b"body");
        let signature = STANDARD.decode(list.strip_prefix("v1,x v1a,").unwrap()).unwrap();
        let public = secret.public_key().unwrap();
        let public = STANDARD.decode(public.strip_prefix("whpk_").unwrap()).unwrap();
        let key = UnparsedPublicKey::new(&ED25519, public);
        assert!(key.verify(b"dlv_1.7.body", &signature).is_ok());
        assert!(key.verify(b"dlv_1.7.other", &signature).is_err());
    }

    #[test]
    fn a_secret_that_is_none_is_refused() {
        for bad in
            ["", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_AAAA", "whsec_!", "whsk_AAAA"]
        {
            assert!(WebhookSecret::parse(bad).is_err(), "{bad}");
        }
        assert!(WebhookSecret::parse(&WebhookSecret::show(&[1; 64])).is_ok());
        assert!(WebhookSecret::parse(&WebhookSecret::show(&[1; 65])).is_err());
    }
}
