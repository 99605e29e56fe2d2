//! Decrypts a Web Push body (RFC 8291, `aes128gcm`, one record), as a browser does.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, ECDH_P256, UnparsedPublicKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use super::subscription::BrowserKeyPair;

const SALT_LEN: usize = 16;
const KEY_LEN: usize = 65;
const HEADER_LEN: usize = SALT_LEN + 4 + 1 + KEY_LEN;
const RECORD_LEN_MIN: usize = 17;

/// Why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecryptError {
    /// The body is shorter than one aes128gcm record.
    Short,
    /// The key id of an aes128gcm body must be a 65-byte P-256 point.
    KeyId,
    /// The record size is smaller than the record: Web Push allows exactly one record.
    RecordSize,
    /// The keys of this subscription do not open the body.
    Sealed,
    /// The padding does not end in the last-record delimiter 2.
    Padding,
}

pub(super) fn decrypt(
    keys: &BrowserKeyPair,
    auth: &[u8; 16],
    body: &[u8],
) -> Result<Vec<u8>, DecryptError> {
    if body.len() < HEADER_LEN + RECORD_LEN_MIN {
        return Err(DecryptError::Short);
    }
    let (header, record) = body.split_at(HEADER_LEN);
    let salt = &header[..SALT_LEN];
    let rs = u32::from_be_bytes([header[16], header[17], header[18], header[19]]) as usize;
    let sender = &header[HEADER_LEN - KEY_LEN..];
    if usize::from(header[20]) != KEY_LEN || sender[0] != 4 {
        return Err(DecryptError::KeyId);
    }
    if rs < record.len() {
        return Err(DecryptError::RecordSize);
    }
    let (key, nonce) = derive(keys, auth, salt, sender)?;
    let mut plain = record.to_vec();
    let len =
        key.open_in_place(nonce, Aad::empty(), &mut plain).map_err(|_| DecryptError::Sealed)?.len();
    plain.truncate(len);
    let end = plain.iter().rposition(|b| *b != 0).ok_or(DecryptError::Padding)?;
    if plain[end] != 2 {
        return Err(DecryptError::Padding);
    }
    plain.truncate(end);
    Ok(plain)
}

fn derive(
    keys: &BrowserKeyPair,
    auth: &[u8; 16],
    salt: &[u8],
    sender: &[u8],
) -> Result<(LessSafeKey, Nonce), DecryptError> {
    let peer = UnparsedPublicKey::new(&ECDH_P256, sender);
    let shared = agreement::agree(&keys.private, peer, DecryptError::KeyId, |secret| {
        Ok(Salt::new(HKDF_SHA256, auth).extract(secret))
    })?;
    let mut ikm = [0u8; 32];
    expand(&shared, &[b"WebPush: info\0", &keys.public, sender], &mut ikm)?;
    let prk = Salt::new(HKDF_SHA256, salt).extract(&ikm);
    let mut key = [0u8; 16];
    expand(&prk, &[b"Content-Encoding: aes128gcm\0"], &mut key)?;
    let mut nonce = [0u8; 12];
    expand(&prk, &[b"Content-Encoding: nonce\0"], &mut nonce)?;
    let key = UnboundKey::new(&AES_128_GCM, &key).map_err(|_| DecryptError::Sealed)?;
    Ok((LessSafeKey::new(key), Nonce::assume_unique_for_key(nonce)))
}

fn expand(prk: &Prk, info: &[&[u8]], out: &mut [u8]) -> Result<(), DecryptError> {
    struct HkdfLen(usize);
    impl KeyType for HkdfLen {
        fn len(&self) -> usize {
            self.0
        }
    }
    let len = out.len();
    prk.expand(info, HkdfLen(len)).and_then(|okm| okm.fill(out)).map_err(|_| DecryptError::Sealed)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD as B64;

    use super::*;

    /// RFC 8291, appendix A.
    const BODY: &str = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";

    fn rfc_keys() -> (BrowserKeyPair, [u8; 16]) {
        let private = B64.decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94").unwrap();
        let auth = B64.decode("BTBZMqHH6r4Tts7J_aSIgg").unwrap();
        (BrowserKeyPair::from_private(&private).unwrap(), auth.try_into().unwrap())
    }

    #[test]
    fn the_rfc_vector_opens() {
        let (keys, auth) = rfc_keys();
        let plain = decrypt(&keys, &auth, &B64.decode(BODY).unwrap()).unwrap();
        assert_eq!(plain, b"When I grow up, I want to be a watermelon");
    }

    #[test]
    fn a_changed_body_does_not_open() {
        let (keys, auth) = rfc_keys();
        let body = B64.decode(BODY).unwrap();
        let with = |at: usize, value: u8| {
            let mut changed = body.clone();
            changed[at] = value;
            decrypt(&keys, &auth, &changed)
        };
        assert_eq!(with(143, body[143] ^ 1), Err(DecryptError::Sealed));
        assert_eq!(with(20, 64), Err(DecryptError::KeyId));
        assert_eq!(with(18, 0), Err(DecryptError::RecordSize));
        assert_eq!(decrypt(&keys, &auth, &body[..100]), Err(DecryptError::Short));
        assert_eq!(decrypt(&keys, &[0; 16], &body), Err(DecryptError::Sealed));
    }
}
