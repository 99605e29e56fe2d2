//! Worlds in which our own places are few and calls take their time, so that all ordinary places are in use once most
//! origins answer more slowly. Only urgent messages to another origin are healthy: the others wait for each other. The
//! urgent ones are those of another tenant, or of the tenant that uses all the other places, too.

use postrider_testkit::sick_level::SickLevel;

use super::draw::draw;
use super::plan::HarmPlan;
use super::sick::{SickKind, SickPart, SickTime, SlowShape};
use super::traffic::{ArrivalPattern, TrafficStream, WorldSize, number};

/// After so long, each busy origin has answered.
const KNOWN_MS: i64 = 3_000;
/// The share of the places that are in use before anything is slow.
const USED: f64 = 0.6;
/// Beside the usual time, and less than four times it in all: such a call is no long one.
const SLOWER: (f64, f64) = (2.0, 2.4);

pub(super) fn draw_full(seed: u64) -> HarmPlan {
    let mut rng = draw(seed, "full world", 0);
    let connections = rng.within(20, 24);
    let (busy, median_ms) = (rng.within(5, 6), rng.log_uniform(350.0, 450.0));
    let length_ms = rng.within(45_000, 60_000) as i64;
    let ordinary = (USED * connections as f64 * length_ms as f64 / median_ms) as u64;
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
    let mut plan = HarmPlan::new(seed, size, arrivals, connections as usize);
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
