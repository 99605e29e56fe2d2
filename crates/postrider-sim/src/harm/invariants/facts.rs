//! What the invariants need to know about a plan.

use std::collections::{HashMap, HashSet};

use super::recovery;
use crate::harm::plan::HarmPlan;
use crate::harm::sick::SickKind;
use crate::harm::traffic::Arrival;

#[derive(Default)]
pub(super) struct PlanFacts {
    /// By origin: the tenants that something is wrong for there.
    sick_tenants: HashMap<u32, HashSet<u32>>,
    /// Origins that cannot be reached at times.
    unreachable: HashSet<u32>,
    /// Origins by name where something is wrong for one tenant only.
    of_one_tenant: HashSet<String>,
    /// One arrival of each lane of healthy work.
    pub healthy_lanes: Vec<u32>,
    /// Sick arrivals with the time by which their origin must have been found well, in order of time.
    pub recoveries: Vec<(i64, u32)>,
}

impl PlanFacts {
    pub(super) fn of(plan: &HarmPlan) -> Self {
        let mut facts = Self::default();
        let mut lanes = HashSet::new();
        for arrival in &plan.arrivals {
            let Arrival { tenant, origin, class, .. } = *arrival;
            let parts = || (0..plan.sick.len()).filter(|nth| arrival.is_in_part(*nth));
            if arrival.parts != 0 {
                facts.sick_tenants.entry(origin).or_default().insert(tenant);
            }
            if parts().any(|nth| plan.sick[nth].kind.prevents_connections()) {
                facts.unreachable.insert(origin);
            }
            if !arrival.sick && lanes.insert((tenant, origin, class)) {
                facts.healthy_lanes.push(arrival.id);
            }
            if let Some(at) = recovered_by(plan, arrival) {
                facts.recoveries.push((at, arrival.id));
            }
        }
        facts.recoveries.sort_unstable();
        let one = facts.sick_tenants.iter().filter(|(_, tenants)| tenants.len() == 1);
        let reachable = one.filter(|(origin, _)| !facts.unreachable.contains(origin));
        facts.of_one_tenant = reachable.map(|(origin, _)| plan.origin_name(*origin).1).collect();
        facts
    }

    /// Nothing is wrong for its tenant at its origin, and for one other tenant there at most. Where two
    /// are sick, the rules may take it that the origin is.
    pub(super) fn is_apart_from_sick(&self, arrival: &Arrival) -> bool {
        !self.unreachable.contains(&arrival.origin)
            && self
                .sick_tenants
                .get(&arrival.origin)
                .is_none_or(|tenants| tenants.len() == 1 && !tenants.contains(&arrival.tenant))
    }

    pub(super) fn is_of_one_tenant(&self, origin: &str) -> bool {
        self.of_one_tenant.contains(origin)
    }
}

/// When an arrival that was due before its origin became well must find it open.
fn recovered_by(plan: &HarmPlan, arrival: &Arrival) -> Option<i64> {
    if arrival.parts == 0 {
        return None;
    }
    let mut by = 0;
    for part in (0..plan.sick.len()).filter(|nth| arrival.is_in_part(*nth)) {
        let part = &plan.sick[part];
        let well_at = part.when.healed_at()?;
        let last_call = match part.kind {
            SickKind::Hang | SickKind::Slow(_) | SickKind::NoConnection { .. } => {
                recovery::PROBE_MS
            }
            _ => 0,
        };
        by = by.max(well_at + last_call + recovery::WITHIN_MS);
        if arrival.at_ms > well_at {
            return None;
        }
    }
    Some(by)
}
