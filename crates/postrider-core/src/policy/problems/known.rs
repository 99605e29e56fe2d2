//! The kinds of failures that were seen before, by channel and outcome.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;

/// Nothing is new in the first day: everything is.
const LEARNS_FOR: Duration = Duration::from_secs(86_400);
/// A kind that was not seen for so long is new again.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30 * 86_400);
/// A kind is new for so long.
const NEW_FOR: Duration = Duration::from_secs(600);
/// Channels have few outcomes, so this is never reached.
const KINDS_MAX: usize = 1_000;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KnownFailures {
    /// When it began to learn.
    since: Option<Timestamp>,
    kinds: BTreeMap<String, SeenFailure>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SeenFailure {
    first: Timestamp,
    last: Timestamp,
}

impl KnownFailures {
    /// True if something should be written.
    pub fn note(&mut self, channel: &str, outcome: &str, now: Timestamp) -> bool {
        let is_begin = self.since.is_none();
        self.since.get_or_insert(now);
        let name = format!("{channel}/{outcome}");
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&name) {
            return is_begin;
        }
        let new = SeenFailure { first: now, last: now };
        let is_first = !self.kinds.contains_key(&name);
        let known = self.kinds.entry(name).or_insert_with(|| new.clone());
        let age = now.since(known.last);
        if age >= FORGOTTEN_AFTER {
            *known = new;
        } else if is_first || age >= Duration::from_secs(3600) {
            known.last = known.last.max(now);
        } else {
            return is_begin;
        }
        true
    }

    pub fn is_new(&self, channel: &str, outcome: &str, now: Timestamp) -> bool {
        let known = self.kinds.get(&format!("{channel}/{outcome}"));
        let has_learned = self.since.is_some_and(|since| now.since(since) >= LEARNS_FOR);
        has_learned && known.is_some_and(|known| now.since(known.first) < NEW_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_new_once_and_again_after_a_long_time() {
        let day = |day: i64| Timestamp::from_secs(day * 86_400);
        let soon = |at: Timestamp| at + Duration::from_secs(60);
        let mut known = KnownFailures::default();
        assert!(known.note("webhook", "gone", day(1)));
        assert!(!known.is_new("webhook", "gone", soon(day(1))), "the first day is for learning");
        assert!(known.note("webhook", "config", day(3)));
        assert!(!known.note("webhook", "config", soon(day(3))), "it is written once");
        assert!(known.is_new("webhook", "config", soon(day(3))));
        assert!(!known.is_new("webhook", "config", day(4)));
        assert!(!known.is_new("webhook", "gone", soon(day(3))));
        assert!(known.note("webhook", "gone", day(40)));
        assert!(known.is_new("webhook", "gone", soon(day(40))));
    }
}
