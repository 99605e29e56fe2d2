//! Deliveries that are held: pending, but not sent until an operator releases them. A restored backup holds what was
//! pending in it, because that may have been sent since.

use async_trait::async_trait;

use super::{Selection, StoreResult};
use crate::model::message::TenantId;

#[async_trait]
pub trait HeldDeliveries: Send + Sync {
    /// Holds every pending delivery that is not leased: it is parked without an end, but expires in its time.
    /// Answers how many are held now that were not before.
    async fn hold_pending(&self) -> StoreResult<u64>;

    /// Lets held deliveries go on, at most `rate_per_s` of them per second. What was scheduled for later stays so.
    /// A filter selects among the held ones only. Answers how many.
    async fn release_held(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        rate_per_s: Option<f64>,
    ) -> StoreResult<u64>;
}
