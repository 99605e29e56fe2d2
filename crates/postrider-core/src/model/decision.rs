//! What follows from an outcome: one type from [`decide`](crate::policy::decide) to the store. Decides
//! nothing itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::delivery::{DeadReason, State, names};

/// What happens to a leased delivery next. A store writes it down and ends the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Final: the provider has it.
    Done,
    /// Final: too late, and nobody is at fault.
    Expire,
    /// Final: its message was cancelled.
    Cancel,
    /// Final: perhaps sent, and not repeated because nobody may get it twice.
    Drop,
    /// Final: its recipient does not want it.
    Suppress,
    /// Final: its address was gone before it could be sent.
    AddressGone,
    /// Final: the address is gone, and so is everything else queued for it. Endpoint and keys are
    /// erased, the hash stays.
    MarkGone,
    /// Final: to the dead letters.
    DeadLetter(DeadReason),
    /// Another attempt, later. `counted` says whether this one used up one of the policy's.
    Retry { after: Duration, counted: bool },
    /// Wait for something that is not the message's fault. No attempt is used up.
    Park { after: Duration },
    /// Again at once under the same lease, uncounted; `resign` asks for a new token. A store ends the
    /// lease as with [`Decision::Release`].
    Again { resign: bool },
    /// To the first of its alternatives, which replaces its own address: due at once, with its history
    /// and its attempts reset. Parked for a minute if there is none.
    FallBack,
    /// Give the lease back; nothing happened.
    Release,
}

names! {
    /// A decision without its details, as records name it.
    DecisionKind {
        Done = "done",
        Expire = "expire",
        Cancel = "cancel",
        Drop = "drop",
        AddressGone = "address_gone",
        MarkGone = "mark_gone",
        DeadLetter = "dead_letter",
        Retry = "retry",
        Park = "park",
        Again = "again",
        FallBack = "fall_back",
        Release = "release",
        Suppress = "suppress",
    }
}

impl Decision {
    pub fn kind(&self) -> DecisionKind {
        match self {
            Self::Done => DecisionKind::Done,
            Self::Expire => DecisionKind::Expire,
            Self::Cancel => DecisionKind::Cancel,
            Self::Drop => DecisionKind::Drop,
            Self::AddressGone => DecisionKind::AddressGone,
            Self::MarkGone => DecisionKind::MarkGone,
            Self::DeadLetter(_) => DecisionKind::DeadLetter,
            Self::Retry { .. } => DecisionKind::Retry,
            Self::Park { .. } => DecisionKind::Park,
            Self::Again { .. } => DecisionKind::Again,
            Self::FallBack => DecisionKind::FallBack,
            Self::Release => DecisionKind::Release,
            Self::Suppress => DecisionKind::Suppress,
        }
    }

    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// The state in which the delivery ends, if this ends it.
    pub fn final_state(&self) -> Option<State> {
        match self {
            Self::Done => Some(State::Sent),
            Self::Expire => Some(State::Expired),
            Self::Cancel => Some(State::Cancelled),
            Self::Drop | Self::Suppress => Some(State::Suppressed),
            Self::AddressGone | Self::MarkGone => Some(State::Gone),
            Self::DeadLetter(_) => Some(State::Failed),
            Self::Retry { .. }
            | Self::Park { .. }
            | Self::Again { .. }
            | Self::FallBack
            | Self::Release => None,
        }
    }

    /// The reason that a dead letter carries.
    pub fn dead_reason(&self) -> Option<DeadReason> {
        match self {
            Self::DeadLetter(reason) => Some(*reason),
            _ => None,
        }
    }
}
