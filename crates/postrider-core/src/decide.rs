//! Turns an outcome into what happens next. The one place where that is decided.

use std::time::Duration;

use crate::backoff::RetryPolicy;
use crate::class::{OnAmbiguous, OnExpiry};
use crate::delivery::DeadReason;
use crate::outcome::Outcome;
use crate::time::Timestamp;

/// The rules that hold for one delivery.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    pub retry: &'a RetryPolicy,
    pub on_ambiguous: OnAmbiguous,
    pub on_expiry: OnExpiry,
    pub ttl_s: u32,
    pub expires_at: Timestamp,
}

/// How far one delivery has come.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    /// Attempts that count, this one included.
    pub attempts: u32,
    /// The wait before this attempt.
    pub last_delay: Duration,
    /// Whether this attempt was already made with a new token.
    pub resigned: bool,
    /// Free replays already made within this attempt.
    pub replays: u32,
    /// How long the address has been registered, where that is known.
    pub address_age: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The provider has it.
    Done,
    /// Another attempt, later. `counted` says whether this one used up one of the policy's.
    Retry {
        after: Duration,
        counted: bool,
    },
    /// Again at once, free of charge, `resign`ing if so asked.
    Again {
        resign: bool,
    },
    /// Wait for a person or a new credential; no attempt is burned.
    Park {
        after: Duration,
    },
    /// Too late, without anyone's fault.
    Expire,
    DeadLetter(DeadReason),
    /// The address is gone.
    MarkGone,
}

impl Decision {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry { .. } => "retry",
            Self::Again { .. } => "again",
            Self::Park { .. } => "park",
            Self::Expire => "expire",
            Self::DeadLetter(_) => "dead_letter",
            Self::MarkGone => "mark_gone",
        }
    }
}

/// `roll` is a random number in `0.0..1.0`.
pub fn decide(
    outcome: &Outcome,
    progress: &Progress,
    rules: &Rules<'_>,
    now: Timestamp,
    roll: f64,
) -> Decision {
    let _ = (progress, rules, now, roll);
    match outcome {
        Outcome::Accepted => Decision::Done,
        _ => Decision::DeadLetter(DeadReason::Permanent),
    }
}
