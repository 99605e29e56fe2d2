//! Tokens for the receipts of one delivery: its id and an end, signed with a key that is derived from the store's own
//! key. Nothing is stored for them, and each server that shares the store knows those of the others.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use postrider_channels::ReceiptLinks;
use postrider_core::{DeliveryId, Timestamp};

use super::{CALLBACK_PATH, RECEIPT_PATH};

/// What the store's own key is used for here, so that no text that it signs elsewhere is a token.
const PURPOSE: &[u8] = b"postrider receipt tokens 1";
const ID_BYTES: usize = 16;
/// The end of the token, in seconds since 1970.
const END_BYTES: usize = 4;
const MAC_BYTES: usize = 16;
const TOKEN_BYTES: usize = ID_BYTES + END_BYTES + MAC_BYTES;
/// In base64url.
const TOKEN_LEN: usize = TOKEN_BYTES.div_ceil(3) * 4;

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiptTokenRefusal {
    /// It is no token of ours.
    Forged,
    Expired,
}

pub(crate) struct ReceiptTokens {
    /// The newest first.
    keys: RwLock<Vec<hmac::Key>>,
}

impl ReceiptTokens {
    /// `hash_keys` are the store's own keys, the newest first.
    pub(crate) fn new(hash_keys: &[Vec<u8>]) -> Self {
        Self { keys: RwLock::new(derived(hash_keys)) }
    }

    /// From now on the first of these keys signs, and all of them are accepted.
    pub(crate) fn use_keys(&self, hash_keys: &[Vec<u8>]) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = derived(hash_keys);
    }

    fn token(&self, delivery: DeliveryId, until: Timestamp) -> String {
        let mut bytes = [0; TOKEN_BYTES];
        let (text, mac) = bytes.split_at_mut(ID_BYTES + END_BYTES);
        text[..ID_BYTES].copy_from_slice(&delivery.0.to_be_bytes());
        let end = u32::try_from(until.as_secs()).unwrap_or(u32::MAX);
        text[ID_BYTES..].copy_from_slice(&end.to_be_bytes());
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = keys.first() {
            let tag = hmac::sign(key, text);
            mac.copy_from_slice(&tag.as_ref()[..MAC_BYTES]);
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The delivery that a token is for.
    pub(crate) fn delivery(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<DeliveryId, ReceiptTokenRefusal> {
        let mut bytes = [0; TOKEN_BYTES];
        let read =
            (token.len() == TOKEN_LEN).then(|| URL_SAFE_NO_PAD.decode_slice(token, &mut bytes));
        if !matches!(read, Some(Ok(TOKEN_BYTES))) {
            return Err(ReceiptTokenRefusal::Forged);
        }
        let (text, mac) = bytes.split_at(ID_BYTES + END_BYTES);
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let is_ours = |key: &hmac::Key| {
            let tag = hmac::sign(key, text);
            aws_lc_rs::constant_time::verify_slices_are_equal(&tag.as_ref()[..MAC_BYTES], mac)
                .is_ok()
        };
        if !keys.iter().any(is_ours) {
            return Err(ReceiptTokenRefusal::Forged);
        }
        let (id, end) = text.split_at(ID_BYTES);
        let array = |end: &[u8]| end.try_into().map(u32::from_be_bytes).unwrap_or_default();
        if now.as_secs() >= i64::from(array(end)) {
            return Err(ReceiptTokenRefusal::Expired);
        }
        let id = id.try_into().map(u128::from_be_bytes).map_err(|_| ReceiptTokenRefusal::Forged)?;
        Ok(DeliveryId(id))
    }
}

fn derived(hash_keys: &[Vec<u8>]) -> Vec<hmac::Key> {
    let derive = |key: &Vec<u8>| {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), PURPOSE);
        hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())
    };
    hash_keys.iter().map(derive).collect()
}

/// The URLs for receipts, for a server that knows its public URL.
pub(crate) struct PublicReceiptLinks {
    tokens: Arc<ReceiptTokens>,
    /// Without a slash at its end.
    public_url: String,
    /// How long a token works after the end of its delivery.
    valid: Duration,
}

impl PublicReceiptLinks {
    pub(crate) fn new(tokens: Arc<ReceiptTokens>, public_url: &str, valid: Duration) -> Self {
        let public_url = public_url.trim_end_matches('/').to_owned();
        Self { tokens, public_url, valid }
    }
}

impl ReceiptLinks for PublicReceiptLinks {
    fn link(&self, delivery: DeliveryId, expires_at: Timestamp) -> String {
        let token = self.tokens.token(delivery, expires_at + self.valid);
        format!("{}{RECEIPT_PATH}{token}", self.public_url)
    }

    fn link_len(&self) -> usize {
        self.public_url.len() + RECEIPT_PATH.len() + TOKEN_LEN
    }

    fn callback(&self, account: &str, delivery: DeliveryId, expires_at: Timestamp) -> String {
        let token = self.tokens.token(delivery, expires_at + self.valid);
        format!("{}{CALLBACK_PATH}{account}/{token}", self.public_url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);
    const DELIVERY: DeliveryId = DeliveryId(0x0199_0000_0000_7000_8000_0000_0000_0007);

    fn after(seconds: u64) -> Timestamp {
        NOW + Duration::from_secs(seconds)
    }

    #[test]
    fn a_token_names_its_delivery_until_its_end() {
        let tokens = ReceiptTokens::new(&[vec![7; 32]]);
        let token = tokens.token(DELIVERY, after(60));
        assert_eq!(tokens.delivery(&token, NOW), Ok(DELIVERY));
        assert_eq!(tokens.delivery(&token, after(59)), Ok(DELIVERY));
        assert_eq!(tokens.delivery(&token, after(60)), Err(ReceiptTokenRefusal::Expired));
    }

    #[test]
    fn a_token_with_any_other_bit_is_forged() {
        let tokens = ReceiptTokens::new(&[vec![7; 32]]);
        let token = tokens.token(DELIVERY, after(60));
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let other = URL_SAFE_NO_PAD.encode(&other);
            assert_eq!(tokens.delivery(&other, NOW), Err(ReceiptTokenRefusal::Forged), "bit {bit}");
        }
        let wrong = ["", "x", "…", &token[1..], &format!("{token}A"), &"=".repeat(TOKEN_LEN)];
        for wrong in wrong {
            assert_eq!(tokens.delivery(wrong, NOW), Err(ReceiptTokenRefusal::Forged), "{wrong}");
        }
        let others = ReceiptTokens::new(&[vec![8; 32]]);
        assert_eq!(others.delivery(&token, NOW), Err(ReceiptTokenRefusal::Forged));
    }

    #[test]
    fn tokens_of_replaced_keys_still_work() {
        let tokens = ReceiptTokens::new(&[vec![7; 32]]);
        let before = tokens.token(DELIVERY, after(60));
        tokens.use_keys(&[vec![8; 32], vec![7; 32]]);
        let token = tokens.token(DELIVERY, after(60));
        assert_ne!(token, before);
        assert_eq!([&before, &token].map(|t| tokens.delivery(t, NOW)), [Ok(DELIVERY); 2]);
        tokens.use_keys(&[vec![8; 32]]);
        assert_eq!(tokens.delivery(&before, NOW), Err(ReceiptTokenRefusal::Forged));
    }

    #[test]
    fn every_link_has_the_same_length() {
        let tokens = Arc::new(ReceiptTokens::new(&[vec![7; 32]]));
        for url in ["https://push.example", "https://push.example/postrider/"] {
            let links = PublicReceiptLinks::new(tokens.clone(), url, Duration::from_secs(5));
            for id in [DeliveryId(0), DELIVERY, DeliveryId(u128::MAX)] {
                let link = links.link(id, NOW);
                assert_eq!(link.len(), links.link_len(), "{link}");
                let token = link.rsplit('/').next().unwrap_or_default();
                assert_eq!(tokens.delivery(token, after(4)), Ok(id));
            }
        }
    }
}
