//! Checks the final state of each delivery and the counts of the store.

use std::collections::BTreeMap;

use postrider_core::model::class::{OnAmbiguous, WhenOpen};
use postrider_core::ports::store::{Counts, LaneDepth, Load};
use postrider_core::{DeadReason, Delivery, MessageId, State};

use super::{CheckResult, DeliveryRecord, Oracle, check};

const ACCOUNTED: &str = "every accepted delivery is accounted for";
const END_HAS_CAUSE: &str = "every final state has its cause";

impl Oracle {
    /// Compares the record with the ledger's entry of one delivery.
    pub(crate) fn compare(&self, index: usize, ledger: Option<&Delivery>) -> CheckResult {
        let record = &self.deliveries[index];
        check(ledger.is_some(), ACCOUNTED, || format!("delivery {index} is not in the store"))?;
        let Some(ledger) = ledger else { return Ok(()) };
        let state = if ledger.state == State::Sending { record.state } else { ledger.state };
        let found = (state, ledger.reason, ledger.attempts);
        let expected = (record.state, record.reason, record.attempts);
        check(found == expected, "the ledger says what was settled", || {
            format!("delivery {index}: settled was {expected:?}, the ledger says {found:?}")
        })
    }

    pub(crate) fn cancel_asked(&mut self, message: MessageId) {
        let of = self.deliveries.iter_mut().filter(|record| record.message == message);
        of.for_each(|record| record.cancel_asked = true);
    }

    /// An operator replayed or cancelled it, or tried to: copies the state from the ledger.
    pub(crate) fn operator_changed(
        &mut self,
        index: usize,
        ledger: Option<&Delivery>,
        cancelled: bool,
    ) -> CheckResult {
        check(ledger.is_some(), ACCOUNTED, || format!("delivery {index} is not in the store"))?;
        let (Some(ledger), record) = (ledger, &mut self.deliveries[index]) else { return Ok(()) };
        if ledger.state == record.state || ledger.state == State::Sending {
            record.cancelled |= cancelled && record.state.is_pending();
            return Ok(());
        }
        let (from, next) = (record.state, ledger.state);
        let may = match next {
            State::Cancelled => record.cancel_asked && from.is_pending(),
            State::Queued => from == State::Failed,
            _ => false,
        };
        check(may, "a final state stays", || {
            format!("{from} became {next} by an operator's action")
        })?;
        record.state = next;
        record.reason = ledger.reason;
        record.held = None;
        record.cancelled = false;
        if next == State::Queued {
            record.replays += 1;
            // A replay accepts the risk of a second send.
            record.in_doubt = false;
            record.attempts = ledger.attempts;
            record.expires = ledger.expires_at;
            record.due = ledger.due_at.unwrap_or(record.due);
        }
        Ok(())
    }

    /// After the calm phase no delivery waits, and every final state has a cause.
    pub(crate) fn check_end(&self, index: usize) -> CheckResult {
        let record = &self.deliveries[index];
        check(record.state.is_final(), "every delivery ends", || {
            format!("delivery {index} is still {}, due at {}", record.state, record.due)
        })?;
        let class = &self.classes[record.class];
        let holds = match record.state {
            State::Sent => record.taken > 0,
            State::Gone => {
                self.gone.contains_key(&(record.tenant, record.provider, record.address))
            }
            State::Cancelled => record.cancel_asked,
            State::Failed => self.has_cause_to_fail(record),
            State::Expired => true,
            State::Suppressed => record.in_doubt && class.on_ambiguous == OnAmbiguous::Drop,
            _ => false,
        };
        check(holds, END_HAS_CAUSE, || {
            let why = record.reason.map_or("", DeadReason::name);
            format!("delivery {index} ended as {} {why}", record.state)
        })
    }

    fn has_cause_to_fail(&self, record: &DeliveryRecord) -> bool {
        let class = &self.classes[record.class];
        match record.reason {
            Some(DeadReason::RetriesExhausted) => record.attempts > class.retry.retries,
            Some(DeadReason::Ambiguous) => record.in_doubt,
            Some(DeadReason::Permanent) => record.reached > 0,
            Some(DeadReason::Ttl) => true,
            // Checked when it was settled.
            Some(DeadReason::Poison) => true,
            Some(DeadReason::Refused) => class.when_open == WhenOpen::Reject,
            None => false,
        }
    }

    /// Compares the store's counts with a count of the records.
    pub(crate) fn recount(&self, counts: &Counts, lanes: &[LaneDepth], load: Load) -> CheckResult {
        let mut states: BTreeMap<State, u64> = BTreeMap::new();
        let mut depths: BTreeMap<(usize, usize, usize), u64> = BTreeMap::new();
        for record in &self.deliveries {
            *states.entry(record.state).or_default() += 1;
            if record.state.is_pending() {
                let lane = (record.tenant, record.provider, record.class);
                *depths.entry(lane).or_default() += 1;
            }
        }
        const COUNTS: &str = "what the store counts is what there is";
        let messages = self.messages.len() as u64;
        check(counts.messages == messages, COUNTS, || {
            format!("{messages} messages, the store counts {}", counts.messages)
        })?;
        let pending = |states: &BTreeMap<State, u64>| -> u64 {
            states.iter().filter(|(state, _)| state.is_pending()).map(|(_, n)| n).sum()
        };
        // The store reports deliveries in flight as `sending`; the record keeps their last state.
        let ended = |states: &BTreeMap<State, u64>| -> BTreeMap<State, u64> {
            states.iter().filter(|(s, n)| s.is_final() && **n > 0).map(|(s, n)| (*s, *n)).collect()
        };
        let (found, expected) = (&counts.states, &states);
        check(
            pending(found) == pending(expected) && ended(found) == ended(expected),
            COUNTS,
            || format!("{expected:?}, the store counts {found:?}"),
        )?;
        let found: u64 = lanes.iter().map(|lane| lane.pending + lane.in_flight).sum();
        let waits = pending(&states);
        check(load.deliveries == waits, COUNTS, || {
            format!("{waits} deliveries wait, the load is said to be {}", load.deliveries)
        })?;
        let waiting = lanes.iter().filter(|lane| lane.pending + lane.in_flight > 0).count();
        let expected: u64 = depths.values().sum();
        check(found == expected && waiting == depths.len(), COUNTS, || {
            format!("{expected} in {} lanes, the store counts {found} in {waiting}", depths.len())
        })
    }
}
