//! Sums of what tenants keep. Knows no store.

use std::collections::BTreeMap;

use postrider_core::TenantId;
use postrider_core::ports::store::{Holdings, TenantHoldings};

#[derive(Debug, Default)]
pub(crate) struct HoldingSums(BTreeMap<TenantId, Holdings>);

impl HoldingSums {
    pub(crate) fn of(&mut self, tenant: &TenantId) -> &mut Holdings {
        self.0.entry(tenant.clone()).or_default()
    }

    pub(crate) fn into_list(self) -> Vec<TenantHoldings> {
        let each = |(tenant, holdings)| TenantHoldings { tenant, holdings };
        self.0.into_iter().map(each).collect()
    }
}
