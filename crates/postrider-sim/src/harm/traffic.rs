//! What is sent in a world: streams of messages, each from some tenants to some origins.

use super::draw::{draw, zipf};
use crate::rng::SimRng;

/// One message with its only delivery.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// When it is accepted and due.
    pub at_ms: i64,
    /// Its number in the world; the same in all runs.
    pub id: u32,
    pub tenant: u32,
    pub origin: u32,
    pub address: u32,
    /// The place of its class in [`super::plan::CLASSES`].
    pub class: usize,
    pub sick: bool,
}

/// Messages of one pattern.
struct TrafficStream {
    tenants: (u64, u64),
    origins: (u64, u64),
    origin_zipf: f64,
    addresses: u64,
    address_zipf: f64,
    class: usize,
    pattern: ArrivalPattern,
}

enum ArrivalPattern {
    /// All at once.
    Backlog { at_ms: i64 },
    /// At random times.
    Poisson,
    /// At random times within the first part of each period.
    OnOff { period_ms: i64, on_ms: i64 },
}

/// The size of a world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorldSize {
    pub tenants: u64,
    pub origins: u64,
    pub addresses: u64,
    pub messages: u64,
    pub length_ms: i64,
}

pub(crate) fn draw_arrivals(seed: u64, size: WorldSize) -> Vec<Arrival> {
    let mut rng = draw(seed, "streams", 0);
    let streams = rng.within(2, 8);
    let mut arrivals = Vec::new();
    let mut left = size.messages;
    for n in 0..streams {
        let mut rng = draw(seed, "stream", n);
        let stream = TrafficStream::draw(&mut rng, size);
        let share = if n + 1 == streams { left } else { rng.within(left / 8, left / 2) };
        left -= share;
        for k in 0..share {
            arrivals
                .push(stream.arrival(&mut draw(seed, "message", (n << 32) | k), size.length_ms));
        }
    }
    arrivals.sort_by_key(|arrival| arrival.at_ms);
    (0..).zip(&mut arrivals).for_each(|(id, arrival)| arrival.id = id);
    arrivals
}

/// A part of `0..n`: one, a few or all.
fn range(rng: &mut SimRng, n: u64) -> (u64, u64) {
    let first = rng.below(n);
    match rng.below(3) {
        0 => (first, 1),
        1 => (first, rng.magnitude(n - first)),
        _ => (0, n),
    }
}

impl TrafficStream {
    fn draw(rng: &mut SimRng, size: WorldSize) -> Self {
        let pattern = match rng.below(6) {
            0 => ArrivalPattern::Backlog { at_ms: rng.below(size.length_ms as u64 / 2) as i64 },
            1 => {
                let period_ms = rng.within(5_000, 30_000) as i64;
                ArrivalPattern::OnOff { period_ms, on_ms: rng.within(500, period_ms as u64) as i64 }
            }
            _ => ArrivalPattern::Poisson,
        };
        Self {
            tenants: range(rng, size.tenants),
            origins: range(rng, size.origins),
            origin_zipf: rng.unit() * 1.5,
            addresses: rng.magnitude(size.addresses),
            address_zipf: rng.unit() * 1.5,
            class: *rng.pick(&[0, 1, 1, 1, 2]),
            pattern,
        }
    }

    fn arrival(&self, rng: &mut SimRng, length_ms: i64) -> Arrival {
        let at_ms = match self.pattern {
            ArrivalPattern::Backlog { at_ms } => at_ms,
            ArrivalPattern::Poisson => rng.below(length_ms as u64) as i64,
            ArrivalPattern::OnOff { period_ms, on_ms } => {
                let period = rng.below((length_ms / period_ms).max(1) as u64) as i64;
                period * period_ms + rng.below(on_ms as u64) as i64
            }
        };
        Arrival {
            at_ms,
            id: 0,
            tenant: (self.tenants.0 + rng.below(self.tenants.1)) as u32,
            origin: (self.origins.0 + zipf(rng, self.origins.1, self.origin_zipf)) as u32,
            address: zipf(rng, self.addresses, self.address_zipf) as u32,
            class: self.class,
            sick: false,
        }
    }
}
