//! How long the ledger remembers, per tenant.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{TenantId, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// For tenants without their own.
    pub default: RetentionTimes,
    pub tenants: BTreeMap<TenantId, RetentionTimes>,
}

/// How long deliveries are kept after their last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionTimes {
    /// Final deliveries and their messages.
    pub deliveries: Duration,
    /// The address and body of dead letters, which can be replayed so long; `None` for ever.
    pub dead_letters: Option<Duration>,
}

/// What a call of [`prune`](super::Ledger::prune) did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PruneProgress {
    /// Deliveries that are forgotten now.
    pub deleted: u64,
    /// The call ended by its bound, and the next one finds more. What becomes old during a call does not count.
    pub has_more: bool,
}

impl Retention {
    /// The same for all tenants. Dead letters stay until they are discarded.
    pub fn of(deliveries: Duration) -> Self {
        let default = RetentionTimes { deliveries, dead_letters: None };
        Self { default, tenants: BTreeMap::new() }
    }

    pub fn times(&self, tenant: &TenantId) -> RetentionTimes {
        self.tenants.get(tenant).copied().unwrap_or(self.default)
    }

    fn all(&self) -> impl Iterator<Item = RetentionTimes> {
        self.tenants.values().copied().chain([self.default])
    }

    /// No delivery that changed later is forgotten.
    pub fn latest_forgotten(&self, now: Timestamp) -> Timestamp {
        let shortest = self.all().map(|times| times.deliveries).min();
        now - shortest.unwrap_or(self.default.deliveries)
    }

    /// No dead letter that changed later is discarded; `None` if none ever is.
    pub fn latest_discarded(&self, now: Timestamp) -> Option<Timestamp> {
        self.all().filter_map(|times| times.dead_letters).min().map(|shortest| now - shortest)
    }
}
