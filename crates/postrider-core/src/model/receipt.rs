//! Receipts: what the far end says about a delivery after its provider accepted it. Knows no token and no store.

use serde::{Deserialize, Serialize};

use crate::model::delivery::{State, names};
use crate::model::time::Timestamp;

names! {
    /// What a receipt reports. New kinds go to the end.
    ReceiptKind {
        Delivered = "delivered",
        Displayed = "displayed",
        Clicked = "clicked",
        Dismissed = "dismissed",
        Late = "late",
        Bounced = "bounced",
        Undelivered = "undelivered",
    }
}

impl ReceiptKind {
    /// The state that it leads to, if it leads to one. A late message reached the device and was not displayed as it
    /// was meant. What was not delivered this time may be the next time.
    pub fn state(self) -> Option<State> {
        Some(match self {
            Self::Delivered | Self::Late => State::Delivered,
            Self::Displayed => State::Seen,
            Self::Clicked => State::Clicked,
            Self::Dismissed => State::Dismissed,
            Self::Bounced => State::Gone,
            Self::Undelivered => return None,
        })
    }
}

/// A receipt in the history of its delivery. There is at most one of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptRecord {
    #[serde(rename = "receipt")]
    pub kind: ReceiptKind,
    /// When it happened, as the far end says.
    pub at: Timestamp,
    /// When the store recorded it.
    pub recorded_at: Timestamp,
}

/// What a receipt changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiptStep {
    /// The state afterwards; the same as before if the receipt tells nothing newer.
    pub state: State,
    /// Whether the history gets it: only the first one of a kind.
    pub is_new: bool,
}

impl ReceiptStep {
    /// What a receipt changes of a final delivery; `None` if it repeats what is known.
    pub fn of(state: State, known: &[ReceiptRecord], kind: ReceiptKind) -> Option<Self> {
        let next = kind.state().filter(|next| state.can_become(*next));
        let state_after = next.unwrap_or(state);
        let is_new = known.iter().all(|receipt| receipt.kind != kind);
        (is_new || state_after != state).then_some(Self { state: state_after, is_new })
    }
}

/// When it happened: what the far end says, if that is between the acceptance of its delivery and now.
pub fn plausible_time(said: Option<Timestamp>, created: Timestamp, now: Timestamp) -> Timestamp {
    said.filter(|said| (created..=now).contains(said)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    fn record(kind: ReceiptKind) -> ReceiptRecord {
        ReceiptRecord { kind, at: NOW, recorded_at: NOW }
    }

    /// The state after these receipts in this order.
    fn after(kinds: &[ReceiptKind]) -> State {
        let (mut state, mut known) = (State::Sent, Vec::new());
        for kind in kinds {
            if let Some(step) = ReceiptStep::of(state, &known, *kind) {
                state = step.state;
                known.extend(step.is_new.then(|| record(*kind)));
            }
        }
        state
    }

    #[test]
    fn the_order_of_receipts_from_a_device_does_not_matter() {
        use ReceiptKind::*;
        let all = [Delivered, Displayed, Clicked, Dismissed, Late];
        for chosen in 1_u32..32 {
            let kinds: Vec<_> = all
                .into_iter()
                .enumerate()
                .filter(|(n, _)| chosen >> n & 1 == 1)
                .map(|(_, k)| k)
                .collect();
            let expected = after(&kinds);
            let mut turned = kinds.clone();
            for _ in 0..kinds.len() {
                turned.rotate_left(1);
                assert_eq!(after(&turned), expected, "{turned:?}");
                let backwards: Vec<_> = turned.iter().rev().copied().collect();
                assert_eq!(after(&backwards), expected, "{backwards:?}");
            }
        }
        assert_eq!(after(&all), State::Clicked);
    }

    #[test]
    fn a_receipt_changes_nothing_of_what_was_not_sent() {
        let never_sent =
            [State::Expired, State::Cancelled, State::Suppressed, State::Failed, State::Gone];
        for state in never_sent {
            for &kind in ReceiptKind::ALL {
                let step = ReceiptStep::of(state, &[], kind).expect("it is new");
                assert_eq!(step, ReceiptStep { state, is_new: true }, "{state} {kind}");
            }
        }
    }

    #[test]
    fn a_repeated_receipt_is_none() {
        for &kind in ReceiptKind::ALL {
            let state = ReceiptStep::of(State::Sent, &[], kind).expect("it is new").state;
            assert_eq!(ReceiptStep::of(state, &[record(kind)], kind), None, "{kind}");
        }
    }

    #[test]
    fn a_mail_that_was_delivered_can_still_bounce() {
        assert_eq!(after(&[ReceiptKind::Delivered, ReceiptKind::Bounced]), State::Gone);
        assert_eq!(after(&[ReceiptKind::Bounced, ReceiptKind::Delivered]), State::Gone);
    }

    #[test]
    fn a_time_that_cannot_be_is_replaced() {
        let created = Timestamp(NOW.0 - 1_000);
        assert_eq!(plausible_time(Some(Timestamp(NOW.0 - 5)), created, NOW).0, NOW.0 - 5);
        for wrong in [Some(Timestamp(NOW.0 + 1)), Some(Timestamp(0)), None] {
            assert_eq!(plausible_time(wrong, created, NOW), NOW);
        }
    }
}
