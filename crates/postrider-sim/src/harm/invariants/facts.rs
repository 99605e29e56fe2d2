//! What the invariants need to know about a plan.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::limit_cuts::SteadyOrigin;
use super::probes::{self, HealingArrivals};
use super::recovery;
use postrider_testkit::sick_level::SickLevel;

use crate::harm::plan::HarmPlan;
use crate::harm::sick::{SickKind, SickPart};
use crate::harm::traffic::Arrival;

/// So many origins are looked at for what their limit does: those with the most messages.
const STEADY_MAX: usize = 4;
/// Where a larger share of the addresses is sick, all answers may be late.
const SOME_MAX: f64 = 0.4;

#[derive(Default)]
pub(super) struct PlanFacts {
    /// By origin: the tenants that send to it.
    tenants: HashMap<u32, HashSet<u32>>,
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
    /// The same by name, with the time from which on they would succeed.
    pub healing: HealingArrivals,
    /// How long ago the probes were sent at the most when they are known to have failed.
    pub probe_ms: i64,
    /// Origins where nothing depends on our load.
    pub steady: Vec<SteadyOrigin>,
}

impl PlanFacts {
    pub(super) fn of(plan: &HarmPlan) -> Self {
        let mut facts = Self::default();
        let mut lanes = HashSet::new();
        for arrival in &plan.arrivals {
            let Arrival { tenant, origin, class, .. } = *arrival;
            let parts = || (0..plan.sick.len()).filter(|nth| arrival.is_in_part(*nth));
            facts.tenants.entry(origin).or_default().insert(tenant);
            if arrival.parts != 0 {
                facts.sick_tenants.entry(origin).or_default().insert(tenant);
            }
            if parts().any(|nth| plan.sick[nth].kind.prevents_connections()) {
                facts.unreachable.insert(origin);
            }
            if !arrival.sick && lanes.insert((tenant, origin, class)) {
                facts.healthy_lanes.push(arrival.id);
            }
            if let Some((well_at, by)) = recovered_by(plan, arrival) {
                facts.recoveries.push((by, arrival.id));
                let of_origin = facts.healing.entry(plan.origin_name(origin).1).or_default();
                of_origin.push((plan.tenant_name(tenant), well_at, arrival.id));
            }
        }
        facts.steady = steady_origins(plan);
        let are_quick = plan.sick.iter().all(|part| part.kind.fails_at_once());
        facts.probe_ms = if are_quick { probes::QUICK_MS } else { probes::HANGING_MS };
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

    /// The same, where others send to the origin as well.
    pub(super) fn is_shared_and_apart(&self, arrival: &Arrival) -> bool {
        self.tenants_at(arrival.origin).len() > 1 && self.is_apart_from_sick(arrival)
    }

    pub(super) fn tenants_at(&self, origin: u32) -> &HashSet<u32> {
        static NOBODY: LazyLock<HashSet<u32>> = LazyLock::new(HashSet::new);
        self.tenants.get(&origin).unwrap_or(&NOBODY)
    }

    pub(super) fn is_of_one_tenant(&self, origin: &str) -> bool {
        self.of_one_tenant.contains(origin)
    }
}

/// The origins with the most messages where nothing depends on our load.
fn steady_origins(plan: &HarmPlan) -> Vec<SteadyOrigin> {
    let mut origins: HashMap<u32, OriginFacts> = HashMap::new();
    for arrival in &plan.arrivals {
        let own = origins.entry(arrival.origin).or_default();
        own.messages += 1;
        own.parts |= arrival.parts;
        own.arrival = arrival.id;
        let is_sick = own.addresses.entry((arrival.tenant, arrival.address)).or_default();
        *is_sick |= arrival.parts != 0;
    }
    let part = |own: &OriginFacts, is_so: fn(&SickPart) -> bool| {
        let parts = plan.sick.iter().enumerate();
        parts.filter(|(nth, _)| own.parts & (1 << nth) != 0).any(|(_, part)| is_so(part))
    };
    let mut steady: Vec<_> = origins
        .into_iter()
        .filter(|(_, own)| !part(own, |part| part.kind.depends_on_load()))
        .collect();
    steady.sort_unstable_by_key(|(origin, own)| (std::cmp::Reverse(own.messages), *origin));
    steady.truncate(STEADY_MAX);
    let of = |(origin, own): (u32, OriginFacts)| {
        let sick = own.addresses.values().filter(|is_sick| **is_sick).count();
        let only_some = (sick as f64) < SOME_MAX * own.addresses.len() as f64
            && !part(&own, |part| part.kind.refuses() || part.kind.prevents_connections())
            && !part(&own, |part| !matches!(part.level, SickLevel::Addresses { .. }));
        SteadyOrigin { origin, arrival: own.arrival, only_some }
    };
    steady.into_iter().map(of).collect()
}

#[derive(Default)]
struct OriginFacts {
    messages: usize,
    /// The sick parts that any of them belongs to, one bit each.
    parts: u8,
    /// One of them.
    arrival: u32,
    /// By tenant and address: whether it is sick.
    addresses: HashMap<(u32, u32), bool>,
}

/// From when on an arrival would succeed that was due before its origin became well, and by when it must find
/// it open.
fn recovered_by(plan: &HarmPlan, arrival: &Arrival) -> Option<(i64, i64)> {
    if arrival.parts == 0 {
        return None;
    }
    let (mut well, mut by) = (0, 0);
    for part in (0..plan.sick.len()).filter(|nth| arrival.is_in_part(*nth)) {
        let part = &plan.sick[part];
        let well_at = part.healed_at()?;
        let last_call = match part.kind {
            SickKind::Hang | SickKind::Slow(_) | SickKind::NoConnection { .. } => {
                recovery::PROBE_MS
            }
            _ => 0,
        };
        well = well.max(well_at);
        by = by.max(well_at + last_call + recovery::WITHIN_MS);
        if arrival.at_ms > well_at {
            return None;
        }
    }
    Some((well, by))
}
