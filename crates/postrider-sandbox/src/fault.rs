//! Faults: the ways in which a fake provider can answer, each written as a short word (`429:2`, `reset-after`). When
//! one applies is in [`super::profile`].

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What happens to one valid request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Accepted: `201`, `200`, `ok`.
    Accept,
    /// Refused with this status, and with Retry-After where seconds are given: `429:2`, `503`.
    Status { code: u16, retry_after_s: Option<u32> },
    /// Accepted, but only after a delay: `slow:500` (milliseconds).
    Slow { delay_ms: u32 },
    /// The connection is reset and the request counts as never seen: `reset`.
    ResetBefore,
    /// Accepted, then the connection is reset instead of an answer: `reset-after`.
    ResetAfter,
    /// The peer says that it did not process the request (`REFUSED_STREAM`): `refused`.
    Refused,
    /// Accepted, then the connection is closed in the orderly way: `goaway`.
    GoAway,
    /// 307 to another path of the sandbox: `redirect`.
    Redirect,
    /// 500 with a body of 32 MiB: `huge`.
    HugeBody,
    /// No answer at all for a minute: `hang`.
    Hang,
    /// Accepted with a body that comes byte by byte for a minute: `drip`.
    Drip,
}

/// The words of faults without a number.
const WORDS: [(&str, Fault); 9] = [
    ("ok", Fault::Accept),
    ("reset", Fault::ResetBefore),
    ("reset-after", Fault::ResetAfter),
    ("refused", Fault::Refused),
    ("goaway", Fault::GoAway),
    ("redirect", Fault::Redirect),
    ("huge", Fault::HugeBody),
    ("hang", Fault::Hang),
    ("drip", Fault::Drip),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown fault {0:?}: expected a status with optional seconds (429:2, 503, 201), slow:MS, \
     reset, reset-after, refused, goaway, redirect, huge, hang or drip"
)]
pub struct UnknownFault(String);

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, UnknownFault> {
        let unknown = || UnknownFault(text.to_owned());
        let (word, number) = match text.split_once(':') {
            Some((word, number)) => (word, Some(number.parse::<u32>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let plain = WORDS.iter().find(|(known, _)| *known == word);
        let fault = match (plain, number) {
            (Some((_, fault)), None) => Some(*fault),
            (None, Some(delay_ms)) if word == "slow" => Some(Self::Slow { delay_ms }),
            _ => status(word, number),
        };
        fault.ok_or_else(unknown)
    }
}

fn status(code: &str, retry_after_s: Option<u32>) -> Option<Fault> {
    match code.parse::<u16>().ok()? {
        200..=299 if retry_after_s.is_none() => Some(Fault::Accept),
        code @ 300..=599 => Some(Fault::Status { code, retry_after_s }),
        _ => None,
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { code, retry_after_s: None } => write!(f, "{code}"),
            Self::Status { code, retry_after_s: Some(s) } => write!(f, "{code}:{s}"),
            Self::Slow { delay_ms } => write!(f, "slow:{delay_ms}"),
            plain => {
                let word = WORDS.iter().find(|(_, fault)| fault == plain);
                f.write_str(word.map_or("", |(word, _)| word))
            }
        }
    }
}

impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fault {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back() {
        let words =
            "ok 429:2 503 410 slow:500 reset reset-after refused goaway redirect huge hang drip";
        for word in words.split(' ') {
            assert_eq!(word.parse::<Fault>().map(|f| f.to_string()).as_deref(), Ok(word));
        }
        assert_eq!("201".parse(), Ok(Fault::Accept));
    }

    #[test]
    fn nonsense_is_refused() {
        for word in ["", "slow", "429:", "429:-1", "99", "600", "reset:3", "201:5", "explode"] {
            assert!(word.parse::<Fault>().is_err(), "{word}");
        }
    }
}
