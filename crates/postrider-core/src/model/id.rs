//! Identifiers: UUIDv7 behind a prefix, in lower-case Crockford base32, so that text order is time
//! order. Makes no randomness of its own.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::time::Timestamp;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const TEXT_LEN: usize = 26;

/// Why a text is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected {prefix}_ followed by 26 characters of base32, e.g. {prefix}_06f1w8v0m5qk3t9xz2c4b7d8ea"
)]
pub struct IdError {
    pub prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// When the id was made, to the millisecond.
            pub fn created_at(self) -> Timestamp {
                Timestamp((self.0 >> 80) as i64)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = [0u8; TEXT_LEN];
                encode(self.0, &mut text);
                f.write_str(concat!($prefix, "_"))?;
                f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix(concat!($prefix, "_"))
                    .and_then(decode)
                    .map(Self)
                    .ok_or(IdError { prefix: $prefix })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(/// A message: what a caller handed in once.
    MessageId, "msg");
id!(/// A delivery: one message to one address. The correlation id of all its attempts.
    DeliveryId, "dlv");
id!(/// A registered address.
    AddressId, "adr");
id!(/// An API key, or a key or secret to sign with.
    KeyId, "key");

id!(/// Work in the background.
    JobId, "job");

/// Makes UUIDv7 values that strictly grow: 48 bits of milliseconds, a 15-bit counter within the
/// millisecond (12 bits in `rand_a`, 3 at the top of `rand_b`) and 59 bits of the caller's randomness.
///
/// The first 63 bits ([`order_key`]) are unique per source and grow with time, so that a store can
/// append in their order. The clock may stand still or go back: the source then counts on.
#[derive(Debug, Default)]
pub struct IdSource {
    last: u64,
}

const COUNTER_BITS: u32 = 15;

impl IdSource {
    /// Starts above everything that was made before (an [`order_key`], 0 if nothing).
    pub fn above(last: u64) -> Self {
        Self { last }
    }

    pub fn next(&mut self, now: Timestamp, random: u64) -> u128 {
        let fresh = (now.0.max(0) as u64) << COUNTER_BITS;
        self.last = fresh.max(self.last + 1);
        from_order_key(self.last, random)
    }
}

/// The part of an id that is unique and grows with time; fits a positive `i64`.
pub fn order_key(id: u128) -> u64 {
    let ms = (id >> 80) as u64;
    let rand_a = ((id >> 64) & 0xfff) as u64;
    let top3 = ((id >> 59) & 0x7) as u64;
    (ms << COUNTER_BITS) | (rand_a << 3) | top3
}

/// The random part of an id, which [`order_key`] leaves out.
pub fn random_tail(id: u128) -> u64 {
    (id & ((1 << 59) - 1)) as u64
}

/// The inverse of [`order_key`] and [`random_tail`].
pub fn from_order_key(key: u64, tail: u64) -> u128 {
    let ms = u128::from(key >> COUNTER_BITS) & 0xffff_ffff_ffff;
    let rand_a = u128::from((key >> 3) & 0xfff);
    let top3 = u128::from(key & 0x7);
    let tail = u128::from(tail) & ((1 << 59) - 1);
    (ms << 80) | (0x7 << 76) | (rand_a << 64) | (0b10 << 62) | (top3 << 59) | tail
}

/// The smallest [`order_key`] of a given time: where a range read over time starts.
pub fn order_key_at(at: Timestamp) -> u64 {
    (at.0.max(0) as u64) << COUNTER_BITS
}

fn encode(mut value: u128, text: &mut [u8; TEXT_LEN]) {
    for slot in text.iter_mut().rev() {
        *slot = ALPHABET[(value & 31) as usize];
        value >>= 5;
    }
}

fn decode(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    if bytes.len() != TEXT_LEN || bytes[0] > b'7' {
        return None;
    }
    let mut value = 0u128;
    for byte in bytes {
        let digit = ALPHABET.iter().position(|c| c == byte)?;
        value = (value << 5) | digit as u128;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_sorts_by_time() {
        let mut source = IdSource::default();
        let ids: Vec<_> = (0..100)
            .map(|i| DeliveryId(source.next(Timestamp(1_700_000_000_000 + i / 10), 42)))
            .collect();
        let texts: Vec<_> = ids.iter().map(ToString::to_string).collect();
        assert!(texts.is_sorted());
        for (id, text) in ids.iter().zip(&texts) {
            assert_eq!(text.parse::<DeliveryId>().as_ref(), Ok(id));
            assert_eq!(text.len(), 30);
        }
    }

    #[test]
    fn ids_grow_even_when_the_clock_goes_back() {
        let mut source = IdSource::default();
        let first = source.next(Timestamp(5_000), u64::MAX);
        let second = source.next(Timestamp(1_000), 0);
        assert!(order_key(second) > order_key(first));
        assert!(second > first);
    }

    #[test]
    fn order_key_and_tail_rebuild_the_id() {
        let mut source = IdSource::default();
        for i in 0..40_000 {
            let id = source.next(Timestamp(1_763_000_000_000), i * 7);
            assert_eq!(from_order_key(order_key(id), random_tail(id)), id);
            assert_eq!((id >> 76) & 0xf, 7, "version");
            assert_eq!((id >> 62) & 3, 2, "variant");
        }
    }

    #[test]
    fn another_kind_of_id_is_refused() {
        let id = MessageId(IdSource::default().next(Timestamp(1), 1));
        assert!(id.to_string().parse::<DeliveryId>().is_err());
        assert!("msg_".parse::<MessageId>().is_err());
        assert!("msg_zzzzzzzzzzzzzzzzzzzzzzzzzz".parse::<MessageId>().is_err());
    }
}
