//! An API key as text: `prk_` + the id + `_` + the secret in base64url.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use postrider_core::KeyId;

use super::KeyError;

const PREFIX: &str = "prk_";
const ID_LEN: usize = 26;
const SECRET_BYTES: usize = 32;
/// Of 32 random bytes, fewer different ones than these are practically impossible.
const DIFFERENT_MIN: usize = 20;

/// A new secret. It is shown once and not stored.
pub(super) fn new_secret() -> Result<String, KeyError> {
    Ok(URL_SAFE_NO_PAD.encode(random::<SECRET_BYTES>()?))
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| KeyError::NoRandomness)?;
    Ok(bytes)
}

pub(super) fn compose(id: KeyId, secret: &str) -> String {
    let id = id.to_string();
    format!("{PREFIX}{}_{secret}", id.trim_start_matches("key_"))
}

/// The id and the secret of a key's text; `None` if the text is not a key.
pub(super) fn parse(text: &str) -> Option<(KeyId, &str)> {
    let rest = text.strip_prefix(PREFIX)?;
    let (id, secret) = (rest.get(..ID_LEN)?, rest.get(ID_LEN..)?);
    let mut full = [0u8; ID_LEN + 4];
    full[..4].copy_from_slice(b"key_");
    full[4..].copy_from_slice(id.as_bytes());
    Some((std::str::from_utf8(&full).ok()?.parse().ok()?, secret.strip_prefix('_')?))
}

pub(super) fn hash(secret: &str) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, secret.as_bytes());
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

/// Compares in constant time.
pub(super) fn same(a: &[u8; 32], b: &[u8; 32]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(a, b).is_ok()
}

/// Whether a text can be at least 32 random bytes in hexadecimal, base64 or base64url. A repeated or counted
/// pattern cannot.
pub fn is_random(text: &str) -> bool {
    let hex = || {
        let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let pairs = text.as_bytes().chunks(2).map(|two| pair(two).filter(|_| two.len() == 2));
        pairs.collect::<Option<Vec<u8>>>()
    };
    let base64 = || {
        // Any random characters will do: the last bits need not be zero.
        let config = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
        let config = config.with_decode_padding_mode(DecodePaddingMode::Indifferent);
        let decode = |letters| GeneralPurpose::new(letters, config).decode(text).ok();
        decode(&alphabet::STANDARD).or_else(|| decode(&alphabet::URL_SAFE))
    };
    let Some(bytes) = hex().or_else(base64) else { return false };
    let different: std::collections::BTreeSet<_> = bytes.iter().collect();
    bytes.len() >= 32 && different.len() >= DIFFERENT_MIN
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn a_key_survives_the_way_through_its_text_even_with_underscores_in_the_secret() {
        let id = KeyId(0x0190_0000_0000_7000_8000_0000_0000_0001);
        let text = compose(id, "a_b_c");
        assert_eq!(parse(&text), Some((id, "a_b_c")));
        assert_eq!(parse(&text[1..]), None);
        assert_eq!(parse("prk_short"), None);
        assert_eq!(parse("prk_üüüüüüüüüüüüü_x"), None);
    }

    #[test]
    fn a_key_of_ones_own_needs_32_random_bytes() {
        let bytes: [u8; 32] = random().unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(is_random(&hex));
        assert!(is_random(&STANDARD.encode(bytes)) && is_random(&URL_SAFE_NO_PAD.encode(bytes)));
        assert!(!is_random(&URL_SAFE_NO_PAD.encode(&bytes[1..])), "31 bytes");
        for text in
            ["", "secret", "an-admin-key-for-tests", &"0123456789".repeat(7), &"ab".repeat(40)]
        {
            assert!(!is_random(text), "{text}");
        }
        assert!(!is_random("a sentence of more than forty-three characters, with spaces"));
    }
}
