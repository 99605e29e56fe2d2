//! The end of all leases of a holder, when another one takes over.

use super::suspects::CrashSuspects;
use super::{LeasePhase, MemoryIndex, TrackedLease};
use crate::holder::HolderNonce;
use crate::settled_before::SettledBefore;

impl MemoryIndex {
    /// Every delivery that is leased and not settled, each with `now`.
    pub(crate) fn all_leased(&self, now: i64) -> Vec<(u64, i64)> {
        let leased = self.leases.iter().filter(|(_, lease)| !lease.held_back);
        leased.map(|(seq, _)| (*seq, now)).collect()
    }

    /// The deliveries that are leased, or were until their time was over, and are not settled.
    pub(crate) fn unsettled(&self) -> Vec<u64> {
        let leases = self.leases.iter().filter(|(_, lease)| lease.is_open() && !lease.held_back);
        leases.map(|(seq, _)| *seq).collect()
    }

    /// Ends all leases and suspensions: what was leased is due as before. Only the new holder may lease then.
    pub(crate) fn hand_over(&mut self, holder: HolderNonce, now: i64) {
        let open = self.leases.iter().filter(|(_, lease)| lease.is_open());
        let open: Vec<_> = open.map(|(seq, _)| *seq).collect();
        for seq in open {
            let Some(lease) = self.leases.remove(&seq) else { continue };
            match lease.phase {
                LeasePhase::Ended => self.lanes.recall(lease.lane, (lease.until, seq)),
                _ => {
                    self.ends.remove(&(lease.until, seq));
                    if let Some(delivery) = &lease.delivery {
                        self.count_in_flight(lease.lane, delivery, -1);
                    }
                }
            }
            if let Some(delivery) = lease.delivery {
                self.expiry.returned(seq, delivery.expires);
                self.cache.put(delivery, now);
            }
            self.lanes.give_back(lease.lane, (lease.due, seq));
        }
        self.suspects = CrashSuspects::default();
        self.settled_before = SettledBefore::default();
        self.resume(None, now);
        self.has_new_work = true;
        self.holder = holder;
    }
}

impl TrackedLease {
    /// Whether it can still be settled, or its delivery leased again.
    fn is_open(&self) -> bool {
        matches!(self.phase, LeasePhase::Held | LeasePhase::Ended)
    }
}
