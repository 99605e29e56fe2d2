//! The newest settlements of a consumer, by which a repeated one is known: its first answer may have been lost.

use std::collections::VecDeque;

/// How many are known: many times what is settled at once.
const KNOWN_MAX: usize = 16_384;

/// Deliveries, each with the token that settled it, in order.
pub(crate) struct SettledBefore<Id>(VecDeque<(Id, u64)>);

impl<Id> Default for SettledBefore<Id> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<Id: PartialEq> SettledBefore<Id> {
    pub(crate) fn add(&mut self, id: Id, token: u64) {
        if self.0.len() == KNOWN_MAX {
            self.0.pop_front();
        }
        self.0.push_back((id, token));
    }

    pub(crate) fn contains(&self, id: &Id, token: u64) -> bool {
        self.0.iter().rev().any(|(known, by)| *by == token && known == id)
    }
}
