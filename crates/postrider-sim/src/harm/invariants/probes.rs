//! Probes can succeed: where a delivery is due that would, one of the probes does, and the breaker does not stay
//! open for another time.

use std::collections::HashMap;

use postrider_core::LaneKey;
use postrider_dispatch::lanes::{BreakerScope, LaneEvent};

use super::recovery::PROBE_MS;

/// Probes that fail at once were sent at most so long before that is known.
pub(super) const QUICK_MS: i64 = 2_000;
/// The same where they may hang until they are given up.
pub(super) const HANGING_MS: i64 = PROBE_MS + 1_000;

/// Deliveries that are due, and when all became well for them, by the origin's name and the tenant's.
pub(super) type HealingArrivals = HashMap<String, Vec<(String, i64, u32)>>;

/// The breakers that are open: of origins, and of tenants there.
#[derive(Default)]
pub(super) struct OpenBreakers(HashMap<(String, Option<String>), ()>);

impl OpenBreakers {
    /// Whether a breaker opens once more that was open already. Storms are another matter.
    pub(super) fn opens_again(&mut self, lane: &LaneKey, event: LaneEvent) -> Option<BreakerScope> {
        let key = |scope| {
            let tenant = (scope == BreakerScope::Tenant).then(|| lane.tenant.to_string());
            (lane.provider.to_string(), tenant)
        };
        match event {
            LaneEvent::BreakerOpened { scope, .. } => self.0.insert(key(scope), ()).map(|()| scope),
            LaneEvent::BreakerClosed { scope } => {
                self.0.remove(&key(scope));
                None
            }
            _ => None,
        }
    }
}

/// The deliveries that were due and would have succeeded when the last probes were sent.
pub(super) fn would_succeed<'a>(
    healing: &'a HealingArrivals,
    lane: &LaneKey,
    scope: BreakerScope,
    sent_at: i64,
) -> impl Iterator<Item = u32> + 'a {
    let tenant = (scope == BreakerScope::Tenant).then(|| lane.tenant.to_string());
    let of_origin = healing.get(&*lane.provider).map_or(&[][..], Vec::as_slice);
    of_origin
        .iter()
        .filter(move |(of, well_at, _)| {
            tenant.as_ref().is_none_or(|tenant| tenant == of) && *well_at <= sent_at
        })
        .map(|(_, _, id)| *id)
}
