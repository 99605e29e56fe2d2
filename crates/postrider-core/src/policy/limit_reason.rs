//! Why the limit of an origin is as it is, in words for `explain`.

use std::fmt;

/// Why the limit is as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitReason {
    /// The origin did not answer within the last minute.
    Unproven,
    /// Nothing was too much yet.
    Searching,
    AtCeiling,
    /// Cut because the fastest tenth of the answers slowed.
    Slowed {
        from_ms: u32,
        to_ms: u32,
    },
    /// Cut because this many of the addresses refused.
    Refused {
        addresses: usize,
        of: usize,
    },
    /// Fewer calls did not help.
    Restored,
    /// The origin was down and gets more calls step by step.
    Recovering,
}

/// The sentence that `explain` shows.
impl fmt::Display for LimitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unproven => f.write_str("few calls, because nothing answered in the last minute"),
            Self::Searching => f.write_str("still searching"),
            Self::AtCeiling => f.write_str("at the ceiling"),
            Self::Slowed { from_ms, to_ms } => {
                write!(f, "cut because answers slowed from {from_ms} to {to_ms} ms")
            }
            Self::Refused { addresses, of } => {
                write!(f, "cut because {addresses} of {of} addresses refused")
            }
            Self::Restored => f.write_str("restored: fewer calls did not help"),
            Self::Recovering => f.write_str("growing again after the origin was down"),
        }
    }
}
