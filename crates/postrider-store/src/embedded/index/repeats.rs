//! Settlements that come again, because their answer was lost.

use postrider_core::ports::store::SettleResult;

use super::{AfterSettle, LeasePhase, MemoryIndex};

impl MemoryIndex {
    /// The settlement was committed under the token of the lease.
    pub(crate) fn settled_by_holder(&mut self, seq: u64, after: AfterSettle, now: i64) {
        if let Some(lease) = self.leases.get(&seq) {
            self.settled_before.add(lease.token);
        }
        self.settled(seq, after, now);
    }

    /// The answer to a settlement whose token is not valid now: it may be a repeat, also within one transaction.
    pub(crate) fn answer_to_repeat(&self, seq: u64, token: u64) -> SettleResult {
        let lease = self.leases.get(&seq);
        let is_settling =
            lease.is_some_and(|l| l.token == token && l.phase == LeasePhase::Settling);
        match is_settling || self.settled_before.contains(token) {
            true => SettleResult::Done,
            false => SettleResult::Fenced,
        }
    }
}
