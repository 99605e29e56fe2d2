//! Standard Webhooks signatures: HMAC-SHA-256 over id, time and body.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use crate::Error;

const PREFIX: &str = "whsec_";
const LEN_MIN: usize = 24;
const LEN_MAX: usize = 64;

/// A shared secret, ready to sign with.
pub struct WebhookSecret {
    key: Key,
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
            LEN_MIN..=LEN_MAX => Ok(Self { key: Key::new(HMAC_SHA256, raw) }),
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
