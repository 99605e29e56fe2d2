//! Worlds in which one origin gets nearly all the calls that it takes, and something goes wrong there: messages of
//! all kinds come to it at once, so that what one rule lets through is another one's trouble.

use postrider_testkit::sick_level::SickLevel;

use super::draw::draw;
use super::plan::HarmPlan;
use super::sick::{SickKind, SickPart, SickTime, SlowShape};
use super::traffic::{Arrival, ArrivalPattern, TrafficStream, WorldSize, number};
use crate::rng::SimRng;

/// Fewer addresses than this share are sick: more, and nobody can tell the others from them.
const SHARE_MAX: f64 = 0.38;
/// The first calls to slow addresses hold ordinary places for a moment: in a burst, more of them take most.
const SLOW_SHARE_MAX: f64 = 0.2;

pub(super) fn draw_busy(seed: u64) -> HarmPlan {
    let mut rng = draw(seed, "busy world", 0);
    let size = WorldSize::draw_busy(&mut rng);
    let mut plan = HarmPlan::new(seed, size, draw_streams(seed, size), 4_096);
    let near = plan.arrivals[rng.index(plan.arrivals.len())].clone();
    for part in draw_trouble(&mut rng, &near, size.length_ms) {
        plan.add_sick_part(part);
    }
    if rng.chance(0.3) {
        let near = plan.arrivals[rng.index(plan.arrivals.len())].clone();
        plan.add_sick_part(SickPart::draw(&mut rng, &near, size.length_ms));
    }
    plan
}

/// The same with addresses that break while all others do, too, and stay broken: nobody can tell them from the others
/// until these are well again.
pub(super) fn draw_hidden(seed: u64) -> HarmPlan {
    let mut rng = draw(seed, "hidden world", 0);
    let size = WorldSize::draw_busy(&mut rng);
    let mut plan = HarmPlan::new(seed, size, draw_streams(seed, size), 4_096);
    let near = plan.arrivals[rng.index(plan.arrivals.len())].clone();
    let outage = SickPart::draw_outage(&mut rng, &near, size.length_ms);
    let mut bad =
        some_addresses(&mut rng, &near, size.length_ms, SHARE_MAX, SickKind::draw_failure);
    if let SickTime::Between(from, to) = outage.when {
        bad.when = SickTime::From(rng.within(from as u64, to as u64) as i64);
    }
    plan.add_sick_part(outage);
    plan.add_sick_part(bad);
    plan
}

/// Most messages go to the first origin: all the time, in bursts, and urgent ones beside them.
fn draw_streams(seed: u64, size: WorldSize) -> Vec<Arrival> {
    let mut rng = draw(seed, "busy streams", 0);
    let (length, all) = (size.length_ms as u64, size.messages);
    let period_ms = rng.within(4_000, 12_000) as i64;
    let burst = match rng.below(4) {
        0 => ArrivalPattern::Backlog { at_ms: rng.below(length / 2) as i64 },
        1 => ArrivalPattern::Early { within_ms: rng.within(100, 5_000) as i64 },
        _ => ArrivalPattern::OnOff { period_ms, on_ms: rng.within(50, 400) as i64 },
    };
    let urgent = all / rng.within(8, 20);
    let others = if size.origins > 1 { all / rng.within(4, 5) } else { 0 };
    let bursts = all / rng.within(2, 4);
    let steady = all - urgent - others - bursts;
    let address_zipf = rng.unit();
    let to_first = |class, pattern| TrafficStream {
        tenants: (0, size.tenants),
        origins: (0, 1),
        origin_zipf: 0.0,
        addresses: size.addresses,
        address_zipf,
        class,
        pattern,
    };
    let to_others = TrafficStream {
        origins: (1, size.origins.saturating_sub(1).max(1)),
        ..to_first(1, ArrivalPattern::Poisson)
    };
    let streams = [
        (to_first(1, ArrivalPattern::Poisson), steady),
        (to_first(rng.within(1, 2) as usize, burst), bursts),
        (to_first(0, ArrivalPattern::Poisson), urgent),
        (to_others, others),
    ];
    let mut arrivals = Vec::new();
    for (n, (stream, messages)) in (0..).zip(streams) {
        let arrival = |k| stream.arrival(seed, (n << 32) | k, size.length_ms);
        arrivals.extend((0..messages).map(arrival));
    }
    number(&mut arrivals);
    arrivals
}

/// What goes wrong at the origin of an arrival.
fn draw_trouble(rng: &mut SimRng, near: &Arrival, length_ms: i64) -> Vec<SickPart> {
    match rng.below(6) {
        0 => vec![some_addresses(rng, near, length_ms, SHARE_MAX, SickKind::draw_failure)],
        1 => vec![some_addresses(rng, near, length_ms, SLOW_SHARE_MAX, draw_slow_path)],
        2 => vec![whole_origin(rng, near, length_ms)],
        3 | 4 => {
            let bad = some_addresses(rng, near, length_ms, SHARE_MAX, SickKind::draw_failure);
            vec![bad, SickPart::draw_outage(rng, near, length_ms)]
        }
        _ => (0..2).map(|_| SickPart::draw(rng, near, length_ms)).collect(),
    }
}

fn some_addresses(
    rng: &mut SimRng,
    near: &Arrival,
    length_ms: i64,
    share_max: f64,
    kind: fn(&mut SimRng) -> SickKind,
) -> SickPart {
    let (origin, salt) = (near.origin, rng.next());
    let share = rng.log_uniform(0.05, share_max);
    let when = match rng.chance(0.5) {
        true => SickTime::Always,
        false => SickTime::From(rng.below(length_ms as u64 / 3) as i64),
    };
    let level = SickLevel::Addresses { origin, share, salt };
    SickPart { level, kind: kind(rng), chance: 1.0, when }
}

/// Slower by more than four times what is usual anywhere: less is nothing that anybody can tell from the usual.
fn draw_slow_path(rng: &mut SimRng) -> SickKind {
    match rng.chance(0.3) {
        true => SickKind::Hang,
        false => SickKind::Slow(SlowShape::Constant(rng.log_uniform(500.0, 5_000.0) as u64)),
    }
}

/// All answers take longer, or some are refusals, and fewer calls do not change that.
fn whole_origin(rng: &mut SimRng, near: &Arrival, length_ms: i64) -> SickPart {
    let (kind, chance) = match rng.chance(0.6) {
        true => (SickKind::Slow(SlowShape::Constant(rng.log_uniform(150.0, 1_000.0) as u64)), 1.0),
        false => (SickKind::Status(503), rng.log_uniform(0.1, 0.4)),
    };
    let when = SickTime::From(rng.within(5_000, length_ms as u64 / 3) as i64);
    SickPart { level: SickLevel::Origin(near.origin), kind, chance, when }
}
