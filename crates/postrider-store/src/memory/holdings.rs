//! What tenants keep, counted by looking at everything.

use std::collections::BTreeSet;

use postrider_core::State;
use postrider_core::ports::store::TenantHoldings;

use super::rows::MemoryTables;
use crate::holdings::HoldingSums;

impl MemoryTables {
    pub(super) fn holdings(&self) -> Vec<TenantHoldings> {
        let mut sums = HoldingSums::default();
        for address in self.addresses.values() {
            sums.of(&address.tenant).addresses += 1;
        }
        for key in self.entries.keys() {
            sums.of(&key.tenant).entries += 1;
        }
        for (tenant, _) in self.gone.keys() {
            sums.of(tenant).gone_marks += 1;
        }
        for (tenant, _) in self.strikes.keys() {
            sums.of(tenant).strikes += 1;
        }
        for (lane, queue) in &self.due {
            sums.of(&self.lane(*lane).tenant).lanes += u64::from(!queue.is_empty());
        }
        let mut bodies = BTreeSet::new();
        for row in self.deliveries.values() {
            if row.progress.state != State::Failed || row.discarded {
                continue;
            }
            let own = sums.of(&self.lane(row.lane).tenant);
            own.dead_letters += 1;
            own.dead_letter_bytes += row.target.as_ref().map_or(0, |t| t.as_json().len()) as u64;
            let body = self.messages.get(&row.message).filter(|_| bodies.insert(row.message));
            own.dead_letter_bytes += body.map_or(0, |m| m.message.content.len()) as u64;
        }
        sums.into_list()
    }
}
