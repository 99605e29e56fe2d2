//! The id that tells the sandbox which requests are attempts of one delivery, and the repeatable hash from which
//! faults are drawn.

use std::fmt;

use postrider_core::model::id::DeliveryId;
use serde::Deserialize;

const TEXT_MAX: usize = 200;

/// The id that all attempts of one delivery share. It is small, because a million of them are kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum CorrelationId {
    /// One of our own delivery ids; unique over all targets.
    Delivery([u8; 16]),
    /// Any other id that the request named; unique per target.
    Text(Box<str>),
    /// No id at all: the digest of the content.
    Digest(u64),
}

impl CorrelationId {
    pub(crate) fn from_text(text: &str) -> Self {
        match text.parse::<DeliveryId>() {
            Ok(id) => Self::Delivery(id.0.to_be_bytes()),
            Err(_) => Self::Text(text.chars().take(TEXT_MAX).collect()),
        }
    }

    /// The `id` of a JSON object, else a digest of the bytes.
    pub(crate) fn from_content(content: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct WithId<'a> {
            #[serde(borrow)]
            id: std::borrow::Cow<'a, str>,
        }
        match serde_json::from_slice::<WithId<'_>>(content) {
            Ok(found) => Self::from_text(&found.id),
            Err(_) => Self::Digest(hash(0, content)),
        }
    }

    /// For a provider that takes no id: the digest of the receiver and the text.
    pub(crate) fn of_text(receiver: &str, text: &str) -> Self {
        Self::Digest(hash(0, format!("{receiver}\n{text}").as_bytes()))
    }

    /// The same for the same id in every run and on every machine.
    pub(crate) fn stable_hash(&self, seed: u64) -> u64 {
        match self {
            Self::Delivery(bytes) => hash(seed, bytes),
            Self::Text(text) => hash(seed, text.as_bytes()),
            Self::Digest(digest) => hash(seed, &digest.to_be_bytes()),
        }
    }
}

impl fmt::Display for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivery(bytes) => DeliveryId(u128::from_be_bytes(*bytes)).fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Digest(digest) => write!(f, "digest_{digest:016x}"),
        }
    }
}

/// A seeded hash that never changes between versions, unlike the standard library's. Not secret.
pub(super) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mut state = mix(seed ^ bytes.len() as u64);
    for chunk in bytes.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = mix(state ^ u64::from_le_bytes(word));
    }
    state
}

/// The finaliser of SplitMix64.
pub(super) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A hash as a number in `[0, 1)`.
pub(super) fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_id_survives_the_round_trip() {
        let text = DeliveryId(0x0190_7fff_1234_7abc_8def_0123_4567_89ab).to_string();
        let found =
            CorrelationId::from_content(format!(r#"{{"title":"x","id":"{text}"}}"#).as_bytes());
        assert!(matches!(found, CorrelationId::Delivery(_)));
        assert_eq!(found.to_string(), text);
    }

    #[test]
    fn content_without_an_id_is_known_by_its_digest() {
        let a = CorrelationId::from_content(b"When I grow up");
        assert_eq!(a, CorrelationId::from_content(b"When I grow up"));
        assert_ne!(a, CorrelationId::from_content(b"When I grow up!"));
        assert!(matches!(CorrelationId::from_content(br#"{"id":7}"#), CorrelationId::Digest(_)));
    }

    #[test]
    fn shares_drawn_from_the_hash_are_even() {
        let below = (0..20_000u64).filter(|i| unit(hash(7, &i.to_be_bytes())) < 0.1).count();
        assert!((1_800..2_200).contains(&below), "{below}");
    }
}
