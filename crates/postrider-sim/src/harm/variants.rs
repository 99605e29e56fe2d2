//! The same world, changed in a way that changes nothing about what it must hold: other names, the sick
//! tenant split in two, twice as much sick traffic, all slower, arrivals in another order.

use std::collections::HashMap;

use super::draw::draw;
use super::plan::HarmPlan;
use super::traffic::{Arrival, number};

/// How a world is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlanVariant {
    Renamed,
    TenantSplit,
    SickDoubled,
    Stretched,
    Permuted,
}

/// By how much all times are stretched.
const STRETCH: f64 = 1.5;
/// Sets the random numbers of a copy apart from those of its original.
const COPY: u64 = 1 << 40;

impl PlanVariant {
    pub(crate) const ALL: [Self; 5] =
        [Self::Renamed, Self::TenantSplit, Self::SickDoubled, Self::Stretched, Self::Permuted];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Renamed => "with other names",
            Self::TenantSplit => "with its sick tenant split in two",
            Self::SickDoubled => "with twice the sick traffic",
            Self::Stretched => "with all times stretched",
            Self::Permuted => "with its arrivals in another order",
        }
    }

    pub(crate) fn of(self, plan: &HarmPlan) -> HarmPlan {
        let mut plan = plan.clone();
        match self {
            Self::Renamed => plan.naming = plan.seed.wrapping_add(1),
            Self::TenantSplit => split_sick_tenant(&mut plan),
            Self::SickDoubled => {
                let sick = plan.arrivals.iter().filter(|arrival| arrival.sick).cloned();
                let copies: Vec<_> = sick.map(|a| Arrival { key: a.key ^ COPY, ..a }).collect();
                plan.arrivals.extend(copies);
            }
            Self::Stretched => {
                let times = |ms: i64| (ms as f64 * STRETCH) as i64;
                plan.size.length_ms = times(plan.size.length_ms);
                plan.arrivals.iter_mut().for_each(|arrival| arrival.at_ms = times(arrival.at_ms));
                plan.sick.iter_mut().for_each(|part| part.when = part.when.stretched(STRETCH));
            }
            Self::Permuted => [false, true].into_iter().for_each(|sick| permute(&mut plan, sick)),
        }
        number(&mut plan.arrivals);
        plan
    }
}

/// Half of the addresses of the tenant with the most sick messages belong to a new tenant.
fn split_sick_tenant(plan: &mut HarmPlan) {
    let mut sick: HashMap<u32, usize> = HashMap::new();
    plan.arrivals.iter().filter(|a| a.sick).for_each(|a| *sick.entry(a.tenant).or_default() += 1);
    let Some((_, tenant)) = sick.into_iter().map(|(tenant, n)| (n, tenant)).max() else { return };
    let new_tenant = plan.size.tenants as u32;
    plan.size.tenants += 1;
    for arrival in plan.arrivals.iter_mut().filter(|a| a.tenant == tenant && a.sick) {
        if draw(plan.seed, "split", arrival.address.into()).chance(0.5) {
            arrival.tenant = new_tenant;
        }
    }
}

/// Exchanges the times of the healthy arrivals among each other, or those of the sick.
fn permute(plan: &mut HarmPlan, sick: bool) {
    let seed = plan.seed;
    let mut some: Vec<_> = plan.arrivals.iter_mut().filter(|a| a.sick == sick).collect();
    let times: Vec<_> = some.iter().map(|arrival| arrival.at_ms).collect();
    some.sort_by_cached_key(|arrival| draw(seed, "order", arrival.key).next());
    some.into_iter().zip(times).for_each(|(arrival, at)| arrival.at_ms = at);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_keeps_the_healthy_messages_and_their_random_numbers() {
        let plan = HarmPlan::draw(7);
        let healthy = |plan: &HarmPlan| {
            let mut keys: Vec<_> =
                plan.arrivals.iter().filter(|a| !a.sick).map(|a| (a.key, a.address)).collect();
            keys.sort_unstable();
            keys
        };
        for variant in PlanVariant::ALL {
            assert_eq!(healthy(&variant.of(&plan)), healthy(&plan), "{variant:?}");
        }
    }

    #[test]
    fn each_variant_differs_from_its_world() {
        let plan = HarmPlan::draw(7);
        for variant in PlanVariant::ALL {
            assert_ne!(format!("{:?}", variant.of(&plan)), format!("{plan:?}"), "{variant:?}");
        }
    }
}
