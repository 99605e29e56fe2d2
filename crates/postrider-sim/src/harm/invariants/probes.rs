//! Probes can succeed: where a delivery is due that would, one of the probes does, and the breaker does not stay
//! open for long. Which addresses broke during the outage nobody can know: one round of probes may meet these alone.

use std::collections::HashMap;

use postrider_core::LaneKey;
use postrider_dispatch::lanes::{BreakerScope, LaneEvent};

use super::recovery::PROBE_MS;

/// Probes that fail at once were sent at most so long before that is known.
pub(super) const QUICK_MS: i64 = 2_000;
/// The same where they may hang until they are given up.
pub(super) const HANGING_MS: i64 = PROBE_MS + 1_000;

/// Calls from before a breaker opened may be written so much later.
pub(super) const UNDER_WAY_MS: i64 = 2_000;

/// Deliveries that are due, and when all became well for them, by the origin's name and the tenant's.
pub(super) type HealingArrivals = HashMap<String, Vec<(String, i64, u32)>>;

/// So many rounds in a row may meet bad addresses alone by chance, if they try so many different ones.
const IN_VAIN_MAX: u32 = 1;
const DIFFERENT: usize = 3;

/// The breakers that are open, of origins and of tenants there, and how many rounds of probes in a row failed while
/// others would have succeeded.
#[derive(Default)]
pub(super) struct OpenBreakers(HashMap<(String, Option<String>), ProbedBreaker>);

#[derive(Default)]
struct ProbedBreaker {
    opened_at: i64,
    in_vain: u32,
}

impl OpenBreakers {
    /// If a breaker opens once more that was open already: whose, and since when. Storms are another matter.
    pub(super) fn opens_again(
        &mut self,
        lane: &LaneKey,
        event: LaneEvent,
        now: i64,
    ) -> Option<(BreakerScope, i64)> {
        match event {
            LaneEvent::BreakerOpened { scope, .. } => {
                let key = key(lane, scope);
                let since = self.0.get(&key).map(|open| open.opened_at);
                self.0.entry(key).or_default().opened_at = now;
                since.map(|since| (scope, since))
            }
            LaneEvent::BreakerClosed { scope } => {
                self.0.remove(&key(lane, scope));
                None
            }
            _ => None,
        }
    }

    /// A round of probes to so many addresses failed though others would have succeeded. True if that is no chance.
    pub(super) fn probed_in_vain(
        &mut self,
        lane: &LaneKey,
        scope: BreakerScope,
        addresses: usize,
    ) -> bool {
        let open = self.0.entry(key(lane, scope)).or_default();
        open.in_vain += 1;
        open.in_vain > IN_VAIN_MAX || addresses < DIFFERENT
    }
}

fn key(lane: &LaneKey, scope: BreakerScope) -> (String, Option<String>) {
    let tenant = (scope == BreakerScope::Tenant).then(|| lane.tenant.to_string());
    (lane.provider.to_string(), tenant)
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
