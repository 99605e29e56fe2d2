//! The model's held deliveries.

use async_trait::async_trait;
use postrider_core::TenantId;
use postrider_core::ports::store::{DeliveryFilter, HeldDeliveries, Selection, StoreResult};

use super::MemoryStore;
use crate::progress::paced;
use crate::view;

#[async_trait]
impl HeldDeliveries for MemoryStore {
    async fn hold_pending(&self) -> StoreResult<u64> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let waiting = rows.deliveries.iter().filter(|(_, row)| {
            row.progress.state.is_pending() && !row.progress.is_held() && !row.is_leased(now)
        });
        let waiting: Vec<_> = waiting.map(|(id, _)| *id).collect();
        for id in &waiting {
            rows.change(*id, |row| {
                row.lease = None;
                row.held_until = None;
                row.progress = row.progress.held(now);
            });
        }
        Ok(waiting.len() as u64)
    }

    async fn release_held(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        rate_per_s: Option<f64>,
    ) -> StoreResult<u64> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let is_chosen = |view: &postrider_core::Delivery| match &which {
            Selection::Ids(ids) => ids.contains(&view.id),
            Selection::Filter(filter) => {
                let filter = DeliveryFilter { held: true, ..filter.clone() };
                view::matches(&filter, view) && rows.has_marks(view.message, &filter)
            }
        };
        let held = rows.deliveries.iter().filter(|(_, row)| {
            row.progress.is_held() && !row.is_leased(now) && rows.sees(tenant, row)
        });
        let held = held.filter(|(id, row)| is_chosen(&rows.view(**id, row, now)));
        let mut held: Vec<_> = held.map(|(id, row)| (row.lane, row.progress.due, *id)).collect();
        held.sort_unstable();
        for (index, (lane, _, id)) in held.iter().enumerate() {
            let at_least = paced(now, index as u64, rate_per_s);
            let due = rows.change(*id, |row| {
                row.lease = None;
                row.progress = row.progress.released(at_least, now);
                row.progress.due
            });
            rows.has_new_work |= due.is_some_and(|due| rows.is_new_work(*lane, due, now));
        }
        drop(rows);
        self.work.notify();
        Ok(held.len() as u64)
    }
}
