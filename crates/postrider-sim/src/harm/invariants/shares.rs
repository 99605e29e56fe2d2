//! No healthy tenant that has less than its part of an origin's places waits there while another one gets more than
//! its own part. Looks at calls that began while the first one waited, and that are surely no long ones.

use std::collections::{HashMap, HashSet};

use postrider_core::Gate;
use postrider_dispatch::lanes::LaneReport;

use crate::harm::bounds::BrokenBound;
use crate::harm::network::WireCall;
use crate::harm::plan::HarmPlan;
use crate::harm::traffic::Arrival;

/// A call that takes less is no long one.
pub(crate) const BRISK_MS: i64 = 250;
/// Calls that may be too many: probes are not counted by the rule.
const TOLERANCE: usize = 3;

/// Since when each delivery was found waiting without its part, and the largest limit of its origin since then.
#[derive(Default)]
pub(super) struct PlaceShares(HashMap<u32, (i64, usize)>);

/// One origin at one moment.
pub(super) struct OriginShare<'a> {
    pub plan: &'a HarmPlan,
    /// Tenants with healthy messages that wait there.
    pub waiting: &'a HashSet<u32>,
    /// Tenants that send to it at any time.
    pub tenants: &'a HashSet<u32>,
    /// Requests under way, and whether their address never had a long one.
    pub standing: &'a [(WireCall, bool)],
    pub now: i64,
}

impl OriginShare<'_> {
    fn weight(&self, tenants: impl Iterator<Item = u32>) -> f64 {
        tenants.map(|tenant| self.plan.weight(tenant)).sum()
    }

    fn arrival(&self, call: &WireCall) -> &Arrival {
        &self.plan.arrivals[call.arrival as usize]
    }

    /// Whether a tenant has less than its part, however many wait.
    fn lacks_part(&self, tenant: u32, limit: usize) -> bool {
        let calls = self.standing.iter().filter(|(call, _)| self.arrival(call).tenant == tenant);
        let all = self.weight(self.tenants.iter().copied());
        let part = limit as f64 * self.plan.weight(tenant) / all;
        calls.count() < (part as usize).max(1)
    }

    /// Brisk calls of one class by tenant, of those that began since then.
    fn brisk(&self, class: usize, since: i64) -> HashMap<u32, usize> {
        let mut brisk: HashMap<u32, usize> = HashMap::new();
        for (call, is_quick) in self.standing {
            let arrival = self.arrival(call);
            let is_brisk = *is_quick && self.now - call.written < BRISK_MS;
            if arrival.class == class && is_brisk && call.written > since {
                *brisk.entry(arrival.tenant).or_default() += 1;
            }
        }
        brisk
    }
}

impl PlaceShares {
    /// Looks at a healthy delivery that waits; `has_room` if there are places of ours and a connection.
    pub(super) fn waits(
        &mut self,
        arrival: &Arrival,
        has_room: bool,
        report: &LaneReport,
        origin: &OriginShare<'_>,
    ) -> Option<BrokenBound> {
        let held_by = report.held_by().map(|verdict| verdict.gate);
        let may_go = has_room && matches!(held_by, None | Some(Gate::Concurrency));
        if !may_go || !origin.lacks_part(arrival.tenant, report.provider_limit) {
            self.0.remove(&arrival.id);
            return None;
        }
        let (since, limit) = self.0.entry(arrival.id).or_insert((origin.now, 0));
        *limit = (*limit).max(report.provider_limit);
        let has_much = |(tenant, calls): &(u32, usize)| {
            let others = origin.waiting.iter().copied().filter(|other| other != tenant);
            let own = origin.plan.weight(*tenant);
            let part = *limit as f64 * own / (own + origin.weight(others));
            *tenant != arrival.tenant && *calls > part.ceil() as usize + TOLERANCE
        };
        let brisk = origin.brisk(arrival.class, *since);
        let (other, calls) = brisk.into_iter().filter(has_much).max()?;
        let Arrival { tenant, origin: at, at_ms, .. } = arrival;
        let detail = format!(
            "t{tenant} waits at o{at} from {at_ms} to {} ms; t{other} has {calls} of {limit} calls",
            origin.now
        );
        Some(BrokenBound { bound: "no tenant waits beside one with more than its part", detail })
    }
}
