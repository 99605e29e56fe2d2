//! The keys of a push: those of the subscription, and our VAPID keys.

use std::fmt;

use aws_lc_rs::agreement::{self, ECDH_P256, ParsedPublicKey, UnparsedPublicKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_core::KeyId;

use crate::Error;

/// The keys of a subscription, to encrypt with.
pub(super) struct SubscriptionKeys {
    pub(super) p256dh: [u8; 65],
    pub(super) auth: [u8; 16],
}

impl SubscriptionKeys {
    /// Reads stored keys. Does not check that `p256dh` is a point on the curve: encryption does.
    pub(super) fn parse(p256dh: &str, auth: &str) -> Result<Self, String> {
        Ok(Self { p256dh: decode_exact(p256dh)?, auth: decode_exact(auth)? })
    }
}

/// Exactly `N` bytes in base64 or base64url, with or without padding. The error says what was found instead.
pub(super) fn decode_exact<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let bytes = decode(text).ok_or_else(|| "not base64url".to_owned())?;
    <[u8; N]>::try_from(bytes.as_slice()).map_err(|_| format!("{} bytes", bytes.len()))
}

/// Reads an uncompressed point on P-256.
pub(super) fn decode_point(text: &str) -> Result<[u8; 65], String> {
    let key: [u8; 65] = decode_exact(text)?;
    match ParsedPublicKey::try_from(UnparsedPublicKey::new(&ECDH_P256, &key)) {
        Ok(_) if key[0] == 4 => Ok(key),
        _ => Err("65 bytes that are not a point on the curve".to_owned()),
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=');
    let as_url = || text.replace('+', "-").replace('/', "_");
    URL_SAFE_NO_PAD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(as_url())).ok()
}

/// A VAPID key pair, which identifies us to push services.
pub struct VapidKey {
    id: KeyId,
    pair: EcdsaKeyPair,
    public: Box<str>,
}

impl VapidKey {
    pub fn generate(id: KeyId) -> Result<Self, Error> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        Ok(Self::new(id, pair.map_err(|_| Error::Crypto)?))
    }

    pub fn from_pkcs8(id: KeyId, der: &[u8]) -> Result<Self, Error> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der);
        Ok(Self::new(id, pair.map_err(|_| Error::VapidKey("the PKCS#8 document is not one"))?))
    }

    /// From the 32 bytes in base64url that other Web Push tools call `VAPID_PRIVATE_KEY`.
    pub fn from_raw_private(id: KeyId, text: &str) -> Result<Self, Error> {
        let raw = decode(text.trim()).ok_or(Error::VapidKey("it is not base64url"))?;
        let private = agreement::PrivateKey::from_private_key(&ECDH_P256, &raw)
            .map_err(|_| Error::VapidKey("32 bytes in base64url are needed"))?;
        let public = private.compute_public_key().map_err(|_| Error::Crypto)?;
        let pair = EcdsaKeyPair::from_private_key_and_public_key(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &raw,
            public.as_ref(),
        );
        Ok(Self::new(id, pair.map_err(|_| Error::VapidKey("the number is out of range"))?))
    }

    fn new(id: KeyId, pair: EcdsaKeyPair) -> Self {
        let public = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref()).into();
        Self { id, pair, public }
    }

    pub fn id(&self) -> KeyId {
        self.id
    }

    /// What a browser wants as `applicationServerKey`: 65 bytes in base64url.
    pub fn public_key(&self) -> &str {
        &self.public
    }

    pub fn to_pkcs8(&self) -> Result<Vec<u8>, Error> {
        Ok(self.pair.to_pkcs8v1().map_err(|_| Error::Crypto)?.as_ref().to_vec())
    }

    /// ES256: r and s, 64 bytes.
    pub(super) fn sign(&self, text: &[u8]) -> Result<impl AsRef<[u8]> + use<>, Error> {
        self.pair.sign(&SystemRandom::new(), text).map_err(|_| Error::Crypto)
    }
}

impl fmt::Debug for VapidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VapidKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Our contact for push services. Apple refuses local hosts and texts that are not an address.
#[derive(Debug)]
pub struct VapidSubject(Box<str>);

impl VapidSubject {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let host = match text.strip_prefix("mailto:") {
            Some(mail) => mail.split_once('@').filter(|(name, _)| !name.is_empty()).map(|(_, h)| h),
            None => {
                text.strip_prefix("https://").map(|r| r.split(['/', '?', ':']).next().unwrap_or(r))
            }
        };
        let clean =
            !text.contains(|c: char| c.is_whitespace() || c.is_control() || "<>\"\\".contains(c));
        let real = |host: &str| {
            let host = host.to_ascii_lowercase();
            !host.is_empty()
                && host != "localhost"
                && !host.ends_with(".localhost")
                && !host.contains('@')
        };
        match host {
            Some(host) if clean && real(host) => Ok(Self(text.into())),
            _ => Err(Error::VapidSubject { found: text.to_owned() }),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_key_from_other_tools_gives_its_public_key() {
        let key =
            VapidKey::from_raw_private(KeyId(1), "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94")
                .unwrap();
        assert_eq!(
            key.public_key(),
            "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
        );
        let same = VapidKey::from_pkcs8(KeyId(1), &key.to_pkcs8().unwrap()).unwrap();
        assert_eq!(same.public_key(), key.public_key());
        assert!(VapidKey::from_raw_private(KeyId(1), "AAAA").is_err());
    }

    #[test]
    fn subscription_keys_are_read_in_every_common_spelling() {
        let url = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
        let standard = format!("{}=", url.replace('_', "/").replace('-', "+"));
        let auth = "BTBZMqHH6r4Tts7J_aSIgg";
        let one = SubscriptionKeys::parse(url, auth).unwrap();
        let other = SubscriptionKeys::parse(&standard, "BTBZMqHH6r4Tts7J/aSIgg==").unwrap();
        assert_eq!((one.p256dh, one.auth), (other.p256dh, other.auth));
        assert_eq!(decode_point(url), Ok(one.p256dh));
        assert_eq!(URL_SAFE_NO_PAD.encode(one.p256dh), url);
        assert_eq!(URL_SAFE_NO_PAD.encode(one.auth), auth);
        let mut off = one.p256dh;
        off[3] ^= 1;
        assert!(decode_point(&URL_SAFE_NO_PAD.encode(off)).is_err());
        assert_eq!(SubscriptionKeys::parse(url, "AAAA").err(), Some("3 bytes".to_owned()));
    }

    #[test]
    fn a_subject_must_be_a_real_address() {
        for good in ["mailto:ops@example.com", "https://example.com/contact", "https://example.com"]
        {
            assert!(VapidSubject::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "ops@example.com",
            "mailto: ops@example.com",
            "mailto:<ops@example.com>",
            "mailto:",
            "mailto:ops@localhost",
            "https://localhost",
            "https://LOCALHOST/x",
            "http://example.com",
            "mailto:@example.com",
            "https://",
            "mailto:a@b\"c",
        ] {
            assert!(VapidSubject::parse(bad).is_err(), "{bad}");
        }
    }
}
