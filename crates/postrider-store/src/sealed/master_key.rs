//! The master key: wraps data keys. It is never stored; the store has only the name of the one that was used.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use postrider_core::ports::store::{StoreError, StoreResult};

use super::cipher::{KEY_BYTES, NONCE_BYTES, random};

/// What a master key must be. Never says what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not 32 bytes in hexadecimal or base64; `openssl rand -base64 32` prints a good one")]
pub struct MasterKeyError;

/// A master key.
pub struct MasterKey {
    name: String,
    key: LessSafeKey,
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.name)
    }
}

impl MasterKey {
    /// Reads 32 bytes in hexadecimal or base64.
    pub fn parse(text: &str) -> Result<Self, MasterKeyError> {
        let bytes = hexadecimal(text.trim()).or_else(|| {
            let engines = [&STANDARD, &STANDARD_NO_PAD, &URL_SAFE, &URL_SAFE_NO_PAD];
            engines.iter().find_map(|engine| engine.decode(text.trim()).ok())
        });
        let bytes = bytes.filter(|bytes| bytes.len() == KEY_BYTES).ok_or(MasterKeyError)?;
        let key = UnboundKey::new(&AES_256_GCM, &bytes).map_err(|_| MasterKeyError)?;
        let mut named = b"postrider master key".to_vec();
        named.extend_from_slice(&bytes);
        let digest = digest::digest(&digest::SHA256, &named);
        let name = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { name, key: LessSafeKey::new(key) })
    }

    /// A name that says nothing about the key, to tell keys apart.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Wraps a data key. `about` must be the same when it is unwrapped.
    pub(super) fn wrap(&self, secret: &[u8], about: &str) -> StoreResult<Vec<u8>> {
        let nonce = random::<NONCE_BYTES>()?;
        let mut wrapped = secret.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(unique, Aad::from(about.as_bytes()), &mut wrapped)
            .map_err(|_| failed("a data key cannot be wrapped"))?;
        Ok([nonce.as_slice(), &wrapped].concat())
    }

    /// `None` if it was wrapped by another key, or changed.
    pub(super) fn unwrap_key(&self, wrapped: &[u8], about: &str) -> Option<[u8; KEY_BYTES]> {
        let (nonce, sealed) = wrapped.split_first_chunk::<NONCE_BYTES>()?;
        let mut secret = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let secret =
            self.key.open_in_place(nonce, Aad::from(about.as_bytes()), &mut secret).ok()?;
        (&*secret).try_into().ok()
    }
}

pub(super) fn failed(what: &str) -> StoreError {
    StoreError::Io { what: what.to_owned(), cause: None }
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len() == 2 * KEY_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex {
        return None;
    }
    (0..KEY_BYTES).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_in_hexadecimal_and_base64_and_nothing_else() {
        let bytes: Vec<u8> = (0..32).collect();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let names: Vec<_> = [hex, STANDARD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)]
            .iter()
            .map(|text| MasterKey::parse(text).unwrap().name().to_owned())
            .collect();
        assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
        for wrong in ["", "secret", &STANDARD.encode([7; 31]), &"é".repeat(32)] {
            assert_eq!(MasterKey::parse(wrong).unwrap_err(), MasterKeyError);
        }
    }

    #[test]
    fn a_data_key_is_unwrapped_only_by_its_master_and_for_its_owner() {
        let [one, two] =
            [[1; 32], [2; 32]].map(|key| MasterKey::parse(&STANDARD.encode(key)).unwrap());
        let wrapped = one.wrap(&[7; 32], "acme 1").unwrap();
        assert_eq!(one.unwrap_key(&wrapped, "acme 1"), Some([7; 32]));
        assert_eq!(one.unwrap_key(&wrapped, "shop 1"), None);
        assert_eq!(two.unwrap_key(&wrapped, "acme 1"), None);
        assert!(!format!("{one:?}").contains("AQEB"));
    }
}
