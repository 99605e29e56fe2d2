//! Capacity: how much is pending, and how much may be.

use postrider_core::TenantId;
use postrider_core::policy::backpressure::Capacity;
use postrider_core::ports::store::Load;
use serde::Serialize;
use utoipa::ToSchema;

use super::SharedState;

/// How much is pending, and how much may be.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CapacityBody {
    pub deliveries: u64,
    /// Absent if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliveries_max: Option<u64>,
    /// Of messages and addresses.
    pub bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// The used share of deliveries or bytes, whichever is higher. At 1, new messages get 429.
    pub fill: f64,
}

/// The load and the capacity of one tenant, or of the whole server.
pub(crate) fn measure(app: &SharedState, tenant: Option<&TenantId>) -> (Load, Capacity) {
    let policy = app.lanes.policies().now();
    let capacities = &policy.capacities;
    let capacity = tenant.map_or(capacities.server, |tenant| capacities.of(tenant));
    (app.store.load(tenant), capacity)
}

pub(crate) fn body(app: &SharedState, tenant: Option<&TenantId>) -> CapacityBody {
    let (load, capacity) = measure(app, tenant);
    let bound = |max: u64| Some(max).filter(|max| *max > 0);
    CapacityBody {
        deliveries: load.deliveries,
        deliveries_max: bound(capacity.deliveries_max),
        bytes: load.bytes,
        bytes_max: bound(capacity.bytes_max),
        fill: (capacity.fill(load) * 1e4).round() / 1e4,
    }
}
