//! A delivery: one message to one address, its states and its history.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::address::AddressHash;
use crate::model::channel::ChannelKind;
use crate::model::decision::DecisionKind;
use crate::model::id::{AddressId, DeliveryId, KeyId, MessageId};
use crate::model::message::TenantId;
use crate::model::outcome::OutcomeKind;
use crate::model::receipt::ReceiptRecord;
use crate::model::time::Timestamp;
use crate::policy::strikes::StrikeKind;

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $(#[serde(rename = $text)] $variant),* }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            pub fn parse(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }

            /// A small stable number for stores.
            pub fn code(self) -> u8 {
                self as u8
            }

            pub fn from_code(code: u8) -> Option<Self> {
                Self::ALL.get(usize::from(code)).copied()
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use names;

names! {
    /// Where a delivery is. New states go to the end: stores keep the numbers.
    State {
        Queued = "queued",
        Sending = "sending",
        Retrying = "retrying",
        Parked = "parked",
        Sent = "sent",
        Delivered = "delivered",
        Seen = "seen",
        Clicked = "clicked",
        Dismissed = "dismissed",
        Gone = "gone",
        Expired = "expired",
        Failed = "failed",
        Cancelled = "cancelled",
        Suppressed = "suppressed",
    }
}

names! {
    /// Why a delivery rests in the dead letters.
    DeadReason {
        Permanent = "permanent",
        RetriesExhausted = "retries_exhausted",
        Ttl = "ttl",
        Poison = "poison",
        Ambiguous = "ambiguous",
        Refused = "refused",
    }
}

impl State {
    /// Still to be worked on.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Queued | Self::Sending | Self::Retrying | Self::Parked)
    }

    /// Nothing but receipts (or a replay from the dead letters) changes it any more.
    pub fn is_final(self) -> bool {
        !self.is_pending()
    }

    /// Whether a delivery may go from here to `next`. Staying is always allowed: transitions are
    /// idempotent. Only a replay leads out of `Failed`.
    pub fn can_become(self, next: Self) -> bool {
        use State::*;
        if self == next {
            return true;
        }
        match self {
            Queued | Sending | Retrying | Parked => {
                !matches!(next, Delivered | Seen | Clicked | Dismissed)
            }
            Sent => matches!(next, Delivered | Seen | Clicked | Dismissed | Gone),
            Delivered => matches!(next, Seen | Clicked | Dismissed | Gone),
            Seen => matches!(next, Clicked | Dismissed),
            // A click says more, whichever of the two is told first.
            Dismissed => matches!(next, Clicked),
            Failed => matches!(next, Queued),
            Clicked | Gone | Expired | Cancelled | Suppressed => false,
        }
    }
}

/// One call to a provider, as remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub number: u32,
    pub at: Timestamp,
    pub latency_ms: u32,
    pub outcome: OutcomeKind,
    pub decision: DecisionKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// The account that it went through, where the channel has accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<Box<str>>,
    /// The key of ours that it was signed with: for logs, not kept.
    #[serde(skip)]
    pub key: Option<KeyId>,
    /// When the next attempt is due, if there is to be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Whether it counts against the policy's attempts (waiting and replays do not).
    pub counted: bool,
    /// What the answer blamed the address for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strike: Option<StrikeKind>,
}

impl AttemptRecord {
    /// What went wrong in the provider's words: its code or, without one, what else it said. Empty if it said nothing.
    pub fn error(&self) -> &str {
        let given = [&self.code, &self.detail].into_iter().flatten();
        given.map(String::as_str).find(|text| !text.is_empty()).unwrap_or_default()
    }
}

/// A delivery as the ledger shows it. Holds no endpoint and no payload.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    pub id: DeliveryId,
    pub message: MessageId,
    pub tenant: TenantId,
    pub channel: ChannelKind,
    /// The lane's provider, e.g. the endpoint's origin.
    pub provider: Arc<str>,
    pub class: Arc<str>,
    pub recipient: Option<Arc<str>>,
    pub address: Option<AddressId>,
    pub address_hash: AddressHash,
    pub state: State,
    /// Set while `state` is `Failed`.
    pub reason: Option<DeadReason>,
    /// Given up for good: no longer among the dead letters, and not to be replayed.
    pub discarded: bool,
    /// Attempts that count against the policy.
    pub attempts: u32,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// Parked until an operator releases it.
    pub held: bool,
    /// When it is due next, while pending; the end of the lease while `Sending`. Absent if it is held.
    pub due_at: Option<Timestamp>,
    /// When it became what it is now.
    pub changed_at: Timestamp,
    pub log: Vec<AttemptRecord>,
    /// In the order in which they came.
    pub receipts: Vec<ReceiptRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for &state in State::ALL {
            assert_eq!(State::parse(state.name()), Some(state));
            assert_eq!(State::from_code(state.code()), Some(state));
        }
        for &reason in DeadReason::ALL {
            assert_eq!(DeadReason::parse(reason.name()), Some(reason));
            assert_eq!(DeadReason::from_code(reason.code()), Some(reason));
        }
    }

    #[test]
    fn a_final_state_never_becomes_pending_again_save_by_replay() {
        for &from in State::ALL.iter().filter(|s| s.is_final()) {
            for &to in State::ALL.iter().filter(|s| s.is_pending()) {
                assert_eq!(
                    from.can_become(to),
                    from == State::Failed && to == State::Queued,
                    "{from} → {to}"
                );
            }
        }
    }

    #[test]
    fn receipts_only_move_forward() {
        assert!(State::Seen.can_become(State::Clicked));
        assert!(!State::Clicked.can_become(State::Seen));
        assert!(!State::Delivered.can_become(State::Sent));
        assert!(!State::Gone.can_become(State::Delivered));
    }
}
