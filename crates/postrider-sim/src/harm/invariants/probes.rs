//! Probes can succeed: where a delivery is due that would, the probes are no worse choice than that one. Which
//! addresses broke during the outage nobody can know: a round of probes may meet these alone. But a round tries three
//! addresses, those that worked before come first, and those of the last two rounds come last.

use std::collections::{HashMap, HashSet};

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

/// Addresses that a round tries.
pub(super) const PROBES: usize = 3;
/// Whose addresses are not tried again.
const ROUNDS: usize = 2;

/// Tenants and their addresses.
pub(super) type ProbedAddresses = HashSet<(u32, u32)>;

/// The breakers that are open, of origins and of tenants there, and which addresses the last probes tried.
#[derive(Default)]
pub(super) struct OpenBreakers(HashMap<(String, Option<String>), ProbedBreaker>);

#[derive(Default)]
struct ProbedBreaker {
    opened_at: i64,
    rounds: Vec<ProbedAddresses>,
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

    /// A round of probes to these addresses failed. Returns the addresses of the rounds before.
    pub(super) fn probed(
        &mut self,
        lane: &LaneKey,
        scope: BreakerScope,
        addresses: ProbedAddresses,
    ) -> ProbedAddresses {
        let open = self.0.entry(key(lane, scope)).or_default();
        let tried = open.rounds.iter().flatten().copied().collect();
        open.rounds.insert(0, addresses);
        open.rounds.truncate(ROUNDS);
        tried
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
