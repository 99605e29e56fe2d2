//! Worlds in which our own places are few and calls take their time, so that all ordinary places are in use once most
//! origins answer more slowly. Only urgent messages to another origin are healthy: the others wait for each other. The
//! urgent ones are those of another tenant, or of the tenant that uses all the other places, too.

use postrider_testkit::sick_level::SickLevel;

use super::draw::draw;
use super::plan::HarmPlan;
use super::sick::{SickKind, SickPart, SickTime, SlowShape};
use super::traffic::{Arrival, ArrivalPattern, TrafficStream, WorldSize, number};
use crate::rng::SimRng;

/// After so long, each busy origin has answered.
const KNOWN_MS: i64 = 3_000;
/// The share of the places that are in use before anything is slow. Where there are more origins than connections, most
/// calls have to open one first and hold their place for longer.
const USED: f64 = 0.6;
const USED_BY_MANY: f64 = 0.25;
/// Beside the usual time, and less than four times it in all: such a call is no long one.
const SLOWER: (f64, f64) = (2.0, 2.4);
/// Slower by so much per minute: at the end, a call takes less than the two seconds from which on it is a long one.
const DRIFT_MS: (f64, f64) = (1_700.0, 2_000.0);
/// The share of the origins that one cause makes slow. By which hash all of these but one are meant is found by trying.
const SLOW_SHARE: f64 = 0.95;
const SALTS_MAX: usize = 100_000;

pub(super) fn draw_full(seed: u64) -> HarmPlan {
    let mut rng = draw(seed, "full world", 0);
    match draw(seed, "kind of full world", 0).chance(0.5) {
        true => draw_few_origins(seed, &mut rng),
        false => draw_many_origins(seed, &mut rng),
    }
}

/// A few origins become slower at once.
fn draw_few_origins(seed: u64, rng: &mut SimRng) -> HarmPlan {
    let busy = rng.within(5, 6);
    let (mut plan, median_ms) = draw_calm(seed, rng, busy, USED);
    let length_ms = plan.size.length_ms;
    let onset = rng.within(10_000, length_ms as u64 / 3) as i64;
    let slow_ms = (median_ms * rng.log_uniform(SLOWER.0, SLOWER.1)) as u64;
    for origin in 0..busy as u32 {
        plan.add_sick_part(SickPart {
            level: SickLevel::Origin(origin),
            kind: SickKind::Slow(SlowShape::Constant(slow_ms)),
            chance: 1.0,
            when: SickTime::From(onset),
        });
    }
    plan
}

/// More origins than places become slower bit by bit: each may take the last place for its first call.
fn draw_many_origins(seed: u64, rng: &mut SimRng) -> HarmPlan {
    let busy = rng.within(40, 80);
    let (mut plan, _) = draw_calm(seed, rng, busy, USED_BY_MANY);
    let onset = rng.within(8_000, 12_000) as i64;
    let ms_per_min = rng.log_uniform(DRIFT_MS.0, DRIFT_MS.1) as u64;
    let covers_busy_only = |level: &SickLevel| {
        let covers = |a: &Arrival| level.covers(a.ends());
        plan.arrivals.iter().all(|arrival| covers(arrival) == (u64::from(arrival.origin) < busy))
    };
    let levels = (0..).map(|nth| SickLevel::Origins { share: SLOW_SHARE, salt: seed ^ nth });
    if let Some(level) = levels.take(SALTS_MAX).find(covers_busy_only) {
        plan.add_sick_part(SickPart {
            level,
            kind: SickKind::Slow(SlowShape::Drifting { ms_per_min }),
            chance: 1.0,
            when: SickTime::From(onset),
        });
    }
    plan
}

/// The world before anything is slow, and the usual time of a call.
fn draw_calm(seed: u64, rng: &mut SimRng, busy: u64, used: f64) -> (HarmPlan, f64) {
    let connections = rng.within(20, 24);
    let median_ms = rng.log_uniform(350.0, 450.0);
    let length_ms = rng.within(45_000, 60_000) as i64;
    let ordinary = (used * connections as f64 * length_ms as f64 / median_ms) as u64;
    let urgent = ordinary / 4;
    let is_one_tenant = rng.chance(0.5);
    let size = WorldSize {
        tenants: if is_one_tenant { 1 } else { busy + 1 },
        origins: busy + 1,
        accounts: 0,
        addresses: 1,
        messages: ordinary + urgent,
        length_ms,
        median_ms: (median_ms, median_ms * 1.05),
        per_origin: None,
        quick: Some(busy as u32),
    };
    // One address at each origin: the first calls to slow ones, which nobody can know, are few.
    let stream = |number, class| TrafficStream {
        tenants: (if is_one_tenant { 0 } else { number }, 1),
        origins: (number, 1),
        origin_zipf: 0.0,
        addresses: size.addresses,
        address_zipf: 0.0,
        class,
        pattern: ArrivalPattern::Poisson,
    };
    let ordinary = (0..busy).map(|n| (stream(n, 1), ordinary / busy));
    let streams = ordinary.chain([(stream(busy, 0), urgent)]);
    let mut arrivals = Vec::new();
    for (n, (stream, messages)) in (0..).zip(streams) {
        arrivals.extend((0..messages).map(|k| stream.arrival(seed, (n << 32) | k, length_ms)));
    }
    // An origin that was never called before gets few calls, and so do all of these together: that is another matter.
    for arrival in arrivals.iter_mut().filter(|arrival| arrival.class == 0) {
        arrival.at_ms = arrival.at_ms.max(KNOWN_MS + arrival.at_ms / 10);
    }
    number(&mut arrivals);
    (HarmPlan::new(seed, size, arrivals, connections as usize), median_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cause_makes_all_busy_origins_slow_and_spares_urgent_work() {
        for seed in 0..8 {
            let plan = draw_many_origins(seed, &mut draw(seed, "full world", 0));
            assert_eq!(plan.sick.len(), 1, "seed {seed}");
            assert!(plan.arrivals.iter().all(|arrival| arrival.sick == (arrival.class != 0)));
        }
    }
}
