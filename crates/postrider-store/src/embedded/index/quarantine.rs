//! Deliveries that are set aside, because they cannot be read or settled.

use super::{LeasePhase, MemoryIndex};

impl MemoryIndex {
    /// Sets a delivery aside: it is in flight no more, and is not leased again in this run.
    pub(crate) fn quarantine(&mut self, seq: u64, token: u64) {
        let Some(lease) = self.leases.get_mut(&seq) else { return };
        if lease.token != token || lease.phase == LeasePhase::Quarantined {
            return;
        }
        let (lane, until, was) = (lease.lane, lease.until, lease.phase);
        let delivery = lease.delivery.take();
        lease.phase = LeasePhase::Quarantined;
        lease.until = i64::MAX;
        self.ends.remove(&(until, seq));
        if was == LeasePhase::Ended {
            self.lanes.withdraw(lane, (until, seq), Some(until));
        } else {
            delivery.inspect(|delivery| self.count_in_flight(lane, delivery, -1));
            self.lanes.end_flight(lane);
        }
        self.quarantined.insert(seq);
    }

    pub(super) fn end_quarantine(&mut self, seq: u64) {
        if !self.quarantined.is_empty() {
            self.quarantined.remove(&seq);
        }
    }

    pub(crate) fn quarantined(&self) -> usize {
        self.quarantined.len()
    }
}
