//! A delivery's history as stores keep it: one JSON list with its attempts and its receipts, in the order in which they
//! came. Knows no store.

use std::fmt::Write;

use postrider_core::model::receipt::{ReceiptStep, plausible_time};
use postrider_core::ports::store::NewReceipt;
use postrider_core::{AttemptRecord, ReceiptRecord, Timestamp};
use serde::Deserialize;

use crate::progress::StoredProgress;

/// A history keeps so many attempts, the newest ones.
pub(crate) const LOG_MAX: usize = 64;
/// Every receipt has this text, and few other entries do.
const RECEIPT_MARK: &str = "\"receipt\":";

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DeliveryHistory {
    pub(crate) attempts: Vec<AttemptRecord>,
    pub(crate) receipts: Vec<ReceiptRecord>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum HistoryEntry {
    Receipt(ReceiptRecord),
    Attempt(Box<AttemptRecord>),
}

impl DeliveryHistory {
    /// Of an absent or empty text, an empty history.
    pub(crate) fn parse(text: Option<&str>) -> serde_json::Result<Self> {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(Self::default()) };
        if !text.contains(RECEIPT_MARK) {
            return Ok(Self { attempts: serde_json::from_str(text)?, receipts: Vec::new() });
        }
        let mut history = Self::default();
        for entry in serde_json::from_str::<Vec<HistoryEntry>>(text)? {
            match entry {
                HistoryEntry::Receipt(receipt) => history.receipts.push(receipt),
                HistoryEntry::Attempt(attempt) => history.attempts.push(*attempt),
            }
        }
        Ok(history)
    }
}

/// A history with more attempts. The oldest entries are dropped if there are too many.
#[cfg(any(test, feature = "postgres", feature = "redis"))]
pub(crate) fn longer(
    known: Option<&str>,
    new: &[AttemptRecord],
) -> serde_json::Result<Option<String>> {
    let known = known.filter(|known| !known.is_empty());
    if new.is_empty() {
        return Ok(known.map(str::to_owned));
    }
    let known: Vec<&serde_json::value::RawValue> =
        known.map_or(Ok(Vec::new()), serde_json::from_str)?;
    let surplus = (known.len() + new.len()).saturating_sub(LOG_MAX);
    let mut text = String::from("[");
    for entry in known.iter().skip(surplus) {
        text.push_str(entry.get());
        text.push(',');
    }
    for attempt in new.iter().skip(surplus.saturating_sub(known.len())) {
        text.push_str(&serde_json::to_string(attempt)?);
        text.push(',');
    }
    text.pop();
    text.push(']');
    Ok(Some(text))
}

/// What a receipt makes of a final delivery.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordedReceipt {
    pub(crate) progress: StoredProgress,
    pub(crate) log: String,
    /// What the history got, if it got something.
    pub(crate) record: Option<ReceiptRecord>,
}

impl RecordedReceipt {
    /// `None` if the receipt repeats what is known.
    pub(crate) fn of(
        progress: &StoredProgress,
        log: Option<&str>,
        receipt: &NewReceipt,
        now: Timestamp,
    ) -> serde_json::Result<Option<Self>> {
        let known = DeliveryHistory::parse(log)?;
        let Some(step) = ReceiptStep::of(progress.state, &known.receipts, receipt.kind) else {
            return Ok(None);
        };
        let mut text = log.filter(|log| !log.is_empty()).unwrap_or("[]").to_owned();
        let record = step.is_new.then(|| receipt_record(receipt, now));
        if let Some(record) = &record {
            text.pop();
            let comma = if text.len() > 1 { "," } else { "" };
            // Writing to a text cannot fail.
            let _ = write!(text, "{comma}{}]", serde_json::to_string(record)?);
        }
        Ok(Some(Self { progress: received(progress, step, now), log: text, record }))
    }
}

pub(crate) fn receipt_record(receipt: &NewReceipt, now: Timestamp) -> ReceiptRecord {
    let at = plausible_time(receipt.at, receipt.delivery.created_at(), now);
    ReceiptRecord { kind: receipt.kind, at, recorded_at: now }
}

/// The progress after a receipt. A receipt that does not change the state does not keep the delivery for longer.
pub(crate) fn received(
    progress: &StoredProgress,
    step: ReceiptStep,
    now: Timestamp,
) -> StoredProgress {
    let changed = if step.state == progress.state { progress.changed } else { now };
    StoredProgress { state: step.state, changed, ..*progress }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider_core::{DeliveryId, ReceiptKind, State};

    use super::*;
    use crate::conformance::success;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    fn sent() -> StoredProgress {
        let new = StoredProgress::new(NOW, NOW);
        StoredProgress { state: State::Sent, tries: 1, last_delay: Duration::ZERO, ..new }
    }

    fn receipt(kind: ReceiptKind) -> NewReceipt {
        NewReceipt { delivery: DeliveryId(1 << 100), kind, at: None }
    }

    #[test]
    fn attempts_and_receipts_are_told_apart() {
        let mut odd = success(1, NOW);
        odd.detail = Some(r#"{"receipt":"no"}"#.to_owned());
        let log = longer(None, &[odd.clone()]).unwrap();
        let recorded =
            RecordedReceipt::of(&sent(), log.as_deref(), &receipt(ReceiptKind::Displayed), NOW);
        let recorded = recorded.unwrap().unwrap();
        assert_eq!(recorded.progress.state, State::Seen);
        let log = longer(Some(&recorded.log), &[success(2, NOW)]).unwrap().unwrap();
        let history = DeliveryHistory::parse(Some(&log)).unwrap();
        assert_eq!(history.attempts, [odd, success(2, NOW)]);
        assert_eq!(history.receipts.len(), 1);
        assert_eq!(history.receipts[0].kind, ReceiptKind::Displayed);
    }

    #[test]
    fn a_history_may_begin_with_a_receipt() {
        for none in [None, Some(""), Some("[]")] {
            let recorded =
                RecordedReceipt::of(&sent(), none, &receipt(ReceiptKind::Delivered), NOW);
            let recorded = recorded.unwrap().unwrap();
            let history = DeliveryHistory::parse(Some(&recorded.log)).unwrap();
            assert_eq!((history.attempts.len(), history.receipts.len()), (0, 1), "{none:?}");
        }
    }

    #[test]
    fn a_history_is_bounded() {
        let mut log = None;
        for number in 1..=200 {
            log = longer(log.as_deref(), &[success(number, NOW)]).unwrap();
        }
        let many: Vec<_> = (201..=300).map(|number| success(number, NOW)).collect();
        let history = DeliveryHistory::parse(log.as_deref()).unwrap();
        assert_eq!(history.attempts.len(), LOG_MAX);
        let log = longer(log.as_deref(), &many).unwrap();
        let history = DeliveryHistory::parse(log.as_deref()).unwrap();
        assert_eq!(history.attempts, many[36..]);
        assert_eq!(longer(log.as_deref(), &[]).unwrap(), log);
    }
}
