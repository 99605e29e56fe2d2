//! Counts refused calls: the first of its kind in a minute is an entry of its own, the others are one entry at the end
//! of the minute. So a flood of wrong keys costs a bounded number of entries.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::entry::NewAuditEntry;

/// Refused calls are counted for this long.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Kinds that are told apart in one window. The others are counted together.
const KINDS_MAX: usize = 16;
/// The action of the entry for all others.
const OTHERS: &str = "call.refused";

/// Calls that count as one kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RefusedCallKind {
    key: Option<String>,
    address: Option<String>,
    action: String,
    outcome: String,
}

#[derive(Debug)]
pub(crate) struct RefusalCounts {
    began: Instant,
    /// How often each was refused after its first entry, and the last of them.
    kinds: HashMap<RefusedCallKind, Option<NewAuditEntry>>,
    others: Option<NewAuditEntry>,
}

impl RefusalCounts {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, kinds: HashMap::new(), others: None }
    }

    /// Counts a refused call. Returns it if it is to be written at once.
    pub(crate) fn add(&mut self, new: NewAuditEntry) -> Option<NewAuditEntry> {
        let kind = RefusedCallKind {
            key: new.key.clone(),
            address: new.address.clone(),
            action: new.action.clone(),
            outcome: new.outcome.clone(),
        };
        let room = self.kinds.len() < KINDS_MAX;
        match self.kinds.get_mut(&kind) {
            Some(counted) => {
                let count = counted.as_ref().map_or(0, |known| known.count) + new.count;
                *counted = Some(NewAuditEntry { count, ..new });
                None
            }
            None if room => {
                self.kinds.insert(kind, None);
                Some(new)
            }
            None => {
                let count = self.others.as_ref().map_or(0, |known| known.count) + new.count;
                let (at, action) = (new.at, OTHERS.to_owned());
                let subject = Some("calls of many kinds or from many addresses".to_owned());
                let outcome = "refused".to_owned();
                self.others = Some(NewAuditEntry {
                    at,
                    action,
                    subject,
                    count,
                    outcome,
                    ..NewAuditEntry::default()
                });
                None
            }
        }
    }

    /// The entries of a window that is over.
    pub(crate) fn take_if_over(&mut self, now: Instant) -> Vec<NewAuditEntry> {
        if now.saturating_duration_since(self.began) < WINDOW {
            return Vec::new();
        }
        self.take(now)
    }

    /// All that is counted and not written.
    pub(crate) fn take(&mut self, now: Instant) -> Vec<NewAuditEntry> {
        let old = std::mem::replace(self, Self::new(now));
        old.kinds.into_values().flatten().chain(old.others).collect()
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Timestamp;

    use super::*;

    fn refused(address: usize) -> NewAuditEntry {
        NewAuditEntry {
            at: Timestamp(5),
            address: Some(format!("192.0.2.{address}")),
            action: "sign_in".to_owned(),
            outcome: "refused 401".to_owned(),
            count: 1,
            ..NewAuditEntry::default()
        }
    }

    #[test]
    fn a_flood_is_counted_and_costs_a_bounded_number_of_entries() {
        let start = Instant::now();
        let mut counts = RefusalCounts::new(start);
        let mut at_once = 0;
        for n in 0..100_000 {
            at_once += usize::from(counts.add(refused(n % 200)).is_some());
        }
        assert_eq!(at_once, KINDS_MAX);
        assert!(counts.take_if_over(start + WINDOW / 2).is_empty());
        let later = counts.take_if_over(start + WINDOW);
        assert_eq!(later.len(), KINDS_MAX + 1);
        let counted: u64 = later.iter().map(|entry| entry.count).sum();
        assert_eq!(counted + at_once as u64, 100_000, "none is forgotten");
        assert!(counts.take(start + WINDOW).is_empty());
        assert!(counts.add(refused(7)).is_some(), "the next window begins anew");
    }
}
