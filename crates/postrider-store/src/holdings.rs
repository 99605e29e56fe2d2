//! Sums of what tenants keep. Knows no store.

use std::collections::BTreeMap;

use postrider_core::TenantId;
use postrider_core::ports::store::{Holdings, TenantHoldings};

/// PostgreSQL and Redis keep the number of every lane for ever. So many of a tenant's lanes, whether something is
/// pending in them or not, count as one with pending deliveries: the limit of these bounds both.
#[cfg(any(feature = "postgres", feature = "redis"))]
const NUMBERED_PER_LANE: u64 = 10;

#[derive(Debug, Default)]
pub(crate) struct HoldingSums(BTreeMap<TenantId, Holdings>);

impl HoldingSums {
    pub(crate) fn of(&mut self, tenant: &TenantId) -> &mut Holdings {
        self.0.entry(tenant.clone()).or_default()
    }

    /// How many lanes of a tenant ever got a number. Comes after the lanes with pending deliveries.
    #[cfg(any(feature = "postgres", feature = "redis"))]
    pub(crate) fn note_numbered_lanes(&mut self, tenant: &TenantId, count: u64) {
        let own = self.of(tenant);
        own.lanes = own.lanes.max(count / NUMBERED_PER_LANE);
    }

    pub(crate) fn into_list(self) -> Vec<TenantHoldings> {
        let each = |(tenant, holdings)| TenantHoldings { tenant, holdings };
        self.0.into_iter().map(each).collect()
    }
}

#[cfg(all(test, any(feature = "postgres", feature = "redis")))]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_are_never_forgotten_count_in_tens() {
        let (acme, mut sums) = (TenantId::new("acme"), HoldingSums::default());
        sums.of(&acme).lanes = 4;
        sums.note_numbered_lanes(&acme, 49);
        assert_eq!(sums.of(&acme).lanes, 4);
        sums.note_numbered_lanes(&acme, 50);
        assert_eq!(sums.of(&acme).lanes, 5);
    }
}
