//! Message encryption of RFC 8291, for a batch at once. Every message gets a new key pair and salt. Knows no HTTP.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, Salt};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::PLAINTEXT_MAX;

const SALT_LEN: usize = 16;
const POINT_LEN: usize = 65;
/// Salt, record size, key length, key.
const HEADER_LEN: usize = SALT_LEN + 4 + 1 + POINT_LEN;
const TAG_LEN: usize = 16;
const RECORD_SIZE: u32 = 4096;
const LAST_RECORD: u8 = 2;

/// One message to be encrypted for one subscription.
#[derive(Clone)]
pub struct PlainPayload {
    pub ua_public: [u8; POINT_LEN],
    pub auth: [u8; 16],
    pub plaintext: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncryptError {
    /// More than fits into one record that every push service takes.
    TooLong,
    /// The subscription's key is not a point on the curve.
    BadKey,
    Crypto,
}

impl EncryptError {
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLong => "payload_too_large",
            Self::BadKey => "bad_keys",
            Self::Crypto => "crypto",
        }
    }
}

/// How much of a message's length is hidden.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Padding {
    None,
    /// Up to the next multiple of 256, and never past what a bridge to a phone takes (2744).
    #[default]
    Blocks,
}

impl Padding {
    const BLOCK: usize = 256;
    const BELOW: usize = 2744;

    fn zeros(self, len: usize) -> usize {
        match self {
            Self::Blocks if len < Self::BELOW => {
                len.next_multiple_of(Self::BLOCK).clamp(Self::BLOCK, Self::BELOW) - len
            }
            _ => 0,
        }
    }
}

/// One body, or the reason why there is none, for each message and in their order.
pub fn encrypt_batch(batch: &[PlainPayload], padding: Padding) -> Vec<Result<Bytes, EncryptError>> {
    let mut salts = vec![[0u8; SALT_LEN]; batch.len()];
    if aws_lc_rs::rand::fill(salts.as_flattened_mut()).is_err() {
        return vec![Err(EncryptError::Crypto); batch.len()];
    }
    let encrypt_one = |(plain, salt): (&PlainPayload, &[u8; SALT_LEN])| {
        let sender = PrivateKey::generate(&ECDH_P256).map_err(|_| EncryptError::Crypto)?;
        encrypt(plain, &sender, salt, padding)
    };
    batch.iter().zip(&salts).map(encrypt_one).collect()
}

fn encrypt(
    plain: &PlainPayload,
    sender: &PrivateKey,
    salt: &[u8; SALT_LEN],
    padding: Padding,
) -> Result<Bytes, EncryptError> {
    if plain.plaintext.len() > PLAINTEXT_MAX {
        return Err(EncryptError::TooLong);
    }
    let public = sender.compute_public_key().map_err(|_| EncryptError::Crypto)?;
    let (key, nonce) = derive(plain, sender, public.as_ref(), salt)?;

    let zeros = padding.zeros(plain.plaintext.len());
    let mut body = Vec::with_capacity(HEADER_LEN + plain.plaintext.len() + 1 + zeros + TAG_LEN);
    body.extend_from_slice(salt);
    body.extend_from_slice(&RECORD_SIZE.to_be_bytes());
    body.push(POINT_LEN as u8);
    body.extend_from_slice(public.as_ref());
    body.extend_from_slice(&plain.plaintext);
    body.push(LAST_RECORD);
    body.resize(body.len() + zeros, 0);
    let tag = key
        .seal_in_place_separate_tag(nonce, Aad::empty(), &mut body[HEADER_LEN..])
        .map_err(|_| EncryptError::Crypto)?;
    body.extend_from_slice(tag.as_ref());
    Ok(body.into())
}

/// The content key and nonce of RFC 8291 §3.4.
fn derive(
    plain: &PlainPayload,
    sender: &PrivateKey,
    sender_public: &[u8],
    salt: &[u8; SALT_LEN],
) -> Result<(LessSafeKey, Nonce), EncryptError> {
    let peer = UnparsedPublicKey::new(&ECDH_P256, &plain.ua_public);
    let mut ikm = [0u8; 32];
    agreement::agree(sender, peer, EncryptError::BadKey, |shared| {
        let info = [b"WebPush: info\0".as_slice(), &plain.ua_public, sender_public];
        expand(&Salt::new(HKDF_SHA256, &plain.auth).extract(shared), &info, &mut ikm)
    })?;
    let prk = Salt::new(HKDF_SHA256, salt).extract(&ikm);
    let (mut key, mut nonce) = ([0u8; 16], [0u8; 12]);
    expand(&prk, &[b"Content-Encoding: aes128gcm\0"], &mut key)?;
    expand(&prk, &[b"Content-Encoding: nonce\0"], &mut nonce)?;
    let key = UnboundKey::new(&AES_128_GCM, &key).map_err(|_| EncryptError::Crypto)?;
    Ok((LessSafeKey::new(key), Nonce::assume_unique_for_key(nonce)))
}

fn expand(prk: &hkdf::Prk, info: &[&[u8]], out: &mut [u8]) -> Result<(), EncryptError> {
    struct FixedLen(usize);
    impl hkdf::KeyType for FixedLen {
        fn len(&self) -> usize {
            self.0
        }
    }
    let okm = prk.expand(info, FixedLen(out.len())).map_err(|_| EncryptError::Crypto)?;
    okm.fill(out).map_err(|_| EncryptError::Crypto)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    fn b64(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    fn array<const N: usize>(text: &str) -> [u8; N] {
        b64(text).try_into().unwrap()
    }

    const UA_PRIVATE: &str = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94";
    const UA_PUBLIC: &str =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

    fn plain(plaintext: Vec<u8>) -> PlainPayload {
        PlainPayload { ua_public: array(UA_PUBLIC), auth: array(AUTH), plaintext }
    }

    /// The receiver's side of RFC 8291.
    fn decrypt(body: &[u8]) -> Vec<u8> {
        let receiver = PrivateKey::from_private_key(&ECDH_P256, &b64(UA_PRIVATE)).unwrap();
        let (salt, public) = (&body[..16], &body[21..86]);
        assert_eq!(&body[16..21], &[0, 0, 16, 0, 65]);
        let mut ikm = [0u8; 32];
        let peer = UnparsedPublicKey::new(&ECDH_P256, public);
        agreement::agree(&receiver, peer, EncryptError::BadKey, |shared| {
            let info = [b"WebPush: info\0".as_slice(), &b64(UA_PUBLIC), public];
            expand(&Salt::new(HKDF_SHA256, &b64(AUTH)).extract(shared), &info, &mut ikm)
        })
        .unwrap();
        let prk = Salt::new(HKDF_SHA256, salt).extract(&ikm);
        let (mut key, mut nonce) = ([0u8; 16], [0u8; 12]);
        expand(&prk, &[b"Content-Encoding: aes128gcm\0"], &mut key).unwrap();
        expand(&prk, &[b"Content-Encoding: nonce\0"], &mut nonce).unwrap();
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        let mut record = body[86..].to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let open = key.open_in_place(nonce, Aad::empty(), &mut record).unwrap();
        let end = open.iter().rposition(|b| *b != 0).unwrap();
        assert_eq!(open[end], LAST_RECORD);
        open[..end].to_vec()
    }

    #[test]
    fn the_vector_of_rfc_8291_is_met() {
        let sender = PrivateKey::from_private_key(
            &ECDH_P256,
            &b64("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"),
        )
        .unwrap();
        let message = plain(b"When I grow up, I want to be a watermelon".to_vec());
        let salt = array("DGv6ra1nlYgDCS1FRnbzlw");
        let body = encrypt(&message, &sender, &salt, Padding::None).unwrap();
        let expected = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";
        assert_eq!(URL_SAFE_NO_PAD.encode(&body), expected);
    }

    #[test]
    fn the_longest_plaintext_fills_4096_bytes_and_one_more_is_refused() {
        let bodies = encrypt_batch(
            &[plain(vec![b'x'; PLAINTEXT_MAX]), plain(vec![b'x'; PLAINTEXT_MAX + 1])],
            Padding::default(),
        );
        assert_eq!(bodies[0].as_ref().unwrap().len(), 4096);
        assert_eq!(bodies[1], Err(EncryptError::TooLong));
    }

    #[test]
    fn a_point_off_the_curve_is_refused_and_the_others_are_not_harmed() {
        let mut bad = plain(b"x".to_vec());
        bad.ua_public[64] ^= 1;
        let bodies = encrypt_batch(&[bad, plain(b"y".to_vec())], Padding::default());
        assert_eq!(bodies[0], Err(EncryptError::BadKey));
        assert_eq!(decrypt(bodies[1].as_ref().unwrap()), b"y");
    }

    #[test]
    fn padding_hides_lengths_in_blocks_up_to_what_bridges_take() {
        for (len, padded) in
            [(0, 256), (1, 256), (256, 256), (257, 512), (2700, 2744), (2744, 2744), (3000, 3000)]
        {
            assert_eq!(len + Padding::Blocks.zeros(len), padded);
            assert_eq!(Padding::None.zeros(len), 0);
        }
    }

    #[test]
    fn no_two_messages_share_salt_or_key() {
        let bodies = encrypt_batch(&vec![plain(b"same".to_vec()); 8], Padding::None);
        let distinct = |part: std::ops::Range<usize>| {
            let parts = bodies.iter().map(|b| b.as_ref().unwrap()[part.clone()].to_vec());
            parts.collect::<std::collections::HashSet<_>>().len()
        };
        assert_eq!((distinct(0..16), distinct(21..86)), (8, 8));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn whatever_is_encrypted_is_decrypted(text in proptest::collection::vec(1u8.., 0..=PLAINTEXT_MAX)) {
            for padding in [Padding::None, Padding::Blocks] {
                let body = encrypt_batch(&[plain(text.clone())], padding).remove(0).unwrap();
                prop_assert!(body.len() <= 4096);
                prop_assert_eq!(decrypt(&body), text.clone());
            }
        }
    }
}
