//! What must be true of a delivery's end, and of the store's own numbers.

use std::collections::BTreeMap;

use postrider_core::model::class::{OnAmbiguous, WhenOpen};
use postrider_core::ports::store::{Counts, LaneDepth, Load};
use postrider_core::{DeadReason, Delivery, MessageId, State};

use super::{Judged, Known, Oracle, promise};

const ACCOUNTED: &str = "every accepted delivery is accounted for";
const HONEST_END: &str = "every end has its cause";

impl Oracle {
    /// Compares the book with the ledger's page about one delivery.
    pub(crate) fn compare(&self, index: usize, ledger: Option<&Delivery>) -> Judged {
        let known = &self.deliveries[index];
        promise(ledger.is_some(), ACCOUNTED, || format!("delivery {index} is not in the store"))?;
        let Some(ledger) = ledger else { return Ok(()) };
        let state = if ledger.state == State::Sending { known.state } else { ledger.state };
        let told = (state, ledger.reason, ledger.attempts);
        let book = (known.state, known.reason, known.attempts);
        promise(told == book, "the ledger says what was settled", || {
            format!("delivery {index}: settled was {book:?}, the ledger says {told:?}")
        })
    }

    pub(crate) fn cancel_asked(&mut self, message: MessageId) {
        let of = self.deliveries.iter_mut().filter(|known| known.message == message);
        of.for_each(|known| known.cancel_asked = true);
    }

    /// A person replayed or cancelled it, or tried to: takes over what the ledger says.
    pub(crate) fn acted_upon(
        &mut self,
        index: usize,
        ledger: Option<&Delivery>,
        cancelled: bool,
    ) -> Judged {
        promise(ledger.is_some(), ACCOUNTED, || format!("delivery {index} is not in the store"))?;
        let (Some(ledger), known) = (ledger, &mut self.deliveries[index]) else { return Ok(()) };
        if ledger.state == known.state || ledger.state == State::Sending {
            known.cancelled |= cancelled && known.state.is_pending();
            return Ok(());
        }
        let (from, next) = (known.state, ledger.state);
        let may = match next {
            State::Cancelled => known.cancel_asked && from.is_pending(),
            State::Queued => from == State::Failed,
            _ => false,
        };
        promise(may, "a final state stays", || format!("{from} became {next} by a person's act"))?;
        known.state = next;
        known.reason = ledger.reason;
        known.held = None;
        known.cancelled = false;
        if next == State::Queued {
            known.replays += 1;
            // Whoever replays it takes the risk.
            known.in_doubt = false;
            known.attempts = ledger.attempts;
            known.expires = ledger.expires_at;
            known.due = ledger.due_at.unwrap_or(known.due);
        }
        Ok(())
    }

    /// After the calm nothing waits any more, and every end has its cause.
    pub(crate) fn judge_end(&self, index: usize) -> Judged {
        let known = &self.deliveries[index];
        promise(known.state.is_final(), "what can be sent is sent in the end", || {
            format!("delivery {index} is still {}, due at {}", known.state, known.due)
        })?;
        let class = &self.classes[known.class];
        let holds = match known.state {
            State::Sent => known.taken > 0,
            State::Gone => self.gone.contains_key(&(known.tenant, known.provider, known.address)),
            State::Cancelled => known.cancel_asked,
            State::Failed => self.died_honestly(known),
            State::Expired => true,
            State::Suppressed => known.in_doubt && class.on_ambiguous == OnAmbiguous::Drop,
            _ => false,
        };
        promise(holds, HONEST_END, || {
            let why = known.reason.map_or("", DeadReason::name);
            format!("delivery {index} ended as {} {why}", known.state)
        })
    }

    fn died_honestly(&self, known: &Known) -> bool {
        let class = &self.classes[known.class];
        match known.reason {
            Some(DeadReason::RetriesExhausted) => known.attempts > class.retry.retries,
            Some(DeadReason::Ambiguous) => known.in_doubt,
            Some(DeadReason::Permanent) => known.reached > 0,
            Some(DeadReason::Ttl) => true,
            // Judged when it was written.
            Some(DeadReason::Poison) => true,
            Some(DeadReason::Refused) => class.when_open == WhenOpen::Reject,
            None => false,
        }
    }

    /// Compares what the store counts with a count of the book.
    pub(crate) fn recount(&self, counts: &Counts, lanes: &[LaneDepth], load: Load) -> Judged {
        let mut states: BTreeMap<State, u64> = BTreeMap::new();
        let mut depths: BTreeMap<(usize, usize, usize), u64> = BTreeMap::new();
        for known in &self.deliveries {
            *states.entry(known.state).or_default() += 1;
            if known.state.is_pending() {
                let lane = (known.tenant, known.provider, known.class);
                *depths.entry(lane).or_default() += 1;
            }
        }
        const COUNTS: &str = "what the store counts is what there is";
        let messages = self.messages.len() as u64;
        promise(counts.messages == messages, COUNTS, || {
            format!("{messages} messages, the store counts {}", counts.messages)
        })?;
        let pending = |states: &BTreeMap<State, u64>| -> u64 {
            states.iter().filter(|(state, _)| state.is_pending()).map(|(_, n)| n).sum()
        };
        // What is being sent right now is told as such; in the book it is what it was.
        let ended = |states: &BTreeMap<State, u64>| -> BTreeMap<State, u64> {
            states.iter().filter(|(s, n)| s.is_final() && **n > 0).map(|(s, n)| (*s, *n)).collect()
        };
        let (told, book) = (&counts.states, &states);
        promise(pending(told) == pending(book) && ended(told) == ended(book), COUNTS, || {
            format!("{book:?}, the store counts {told:?}")
        })?;
        let told: u64 = lanes.iter().map(|lane| lane.pending + lane.in_flight).sum();
        let waits = pending(&states);
        promise(load.deliveries == waits, COUNTS, || {
            format!("{waits} deliveries wait, the load is said to be {}", load.deliveries)
        })?;
        let waiting = lanes.iter().filter(|lane| lane.pending + lane.in_flight > 0).count();
        let book: u64 = depths.values().sum();
        promise(told == book && waiting == depths.len(), COUNTS, || {
            format!("{book} in {} lanes, the store counts {told} in {waiting}", depths.len())
        })
    }
}
