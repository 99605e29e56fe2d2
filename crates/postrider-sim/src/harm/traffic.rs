//! What is sent in a world: streams of messages, each from some tenants to some origins.

use postrider_testkit::sick_level::MessageEnds;

use super::draw::{draw, zipf};
use crate::rng::SimRng;

/// One message with its only delivery.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// When it is accepted and due.
    pub at_ms: i64,
    /// Its place in the world's list; the same in all runs.
    pub id: u32,
    /// What its random numbers are drawn by.
    pub key: u64,
    pub tenant: u32,
    pub origin: u32,
    pub address: u32,
    /// The place of its class in [`super::plan::CLASSES`].
    pub class: usize,
    /// The sick parts that it belongs to, one bit each.
    pub parts: u8,
    /// Whether it counts as sick.
    pub sick: bool,
}

impl Arrival {
    pub(crate) fn ends(&self) -> MessageEnds {
        MessageEnds { tenant: self.tenant, origin: self.origin, address: self.address }
    }

    pub(crate) fn is_in_part(&self, nth: usize) -> bool {
        self.parts & (1 << nth) != 0
    }
}

/// Messages of one pattern.
pub(super) struct TrafficStream {
    pub tenants: (u64, u64),
    pub origins: (u64, u64),
    pub origin_zipf: f64,
    pub addresses: u64,
    pub address_zipf: f64,
    pub class: usize,
    pub pattern: ArrivalPattern,
}

pub(super) enum ArrivalPattern {
    /// All at once.
    Backlog { at_ms: i64 },
    /// At random times.
    Poisson,
    /// At random times within the first part of each period.
    OnOff { period_ms: i64, on_ms: i64 },
    /// All within the first seconds: whatever is called later is a retry.
    Early { within_ms: i64 },
    /// One now and then.
    Trickle { every_ms: i64 },
}

/// The size of a world.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorldSize {
    pub tenants: u64,
    pub origins: u64,
    /// Accounts of a second channel, such as a relay or an SMS provider. They are numbered after the origins.
    pub accounts: u64,
    pub addresses: u64,
    pub messages: u64,
    pub length_ms: i64,
    /// The usual answers of an origin take between so long and so long.
    pub median_ms: (f64, f64),
    /// Calls at once to one origin, where the operator set fewer than usual.
    pub per_origin: Option<usize>,
    /// An origin that answers at once, whatever is usual.
    pub quick: Option<u32>,
}

const MEDIAN_MS: (f64, f64) = (1.0, 100.0);

impl WorldSize {
    pub(crate) fn draw(rng: &mut SimRng) -> Self {
        Self {
            tenants: rng.log_uniform(1.0, 200.0) as u64,
            origins: rng.log_uniform(1.0, 10_000.0) as u64,
            accounts: if rng.chance(0.4) { rng.log_uniform(1.0, 20.0) as u64 } else { 0 },
            addresses: rng.log_uniform(1.0, 50_000.0) as u64,
            messages: rng.log_uniform(200.0, 4_000.0) as u64,
            length_ms: rng.within(60_000, 120_000) as i64,
            median_ms: MEDIAN_MS,
            per_origin: None,
            quick: None,
        }
    }

    pub(crate) fn draw_busy(rng: &mut SimRng) -> Self {
        Self {
            tenants: rng.log_uniform(1.0, 6.0) as u64,
            origins: rng.within(1, 4),
            accounts: 0,
            addresses: rng.log_uniform(20.0, 5_000.0) as u64,
            messages: rng.log_uniform(2_000.0, 7_000.0) as u64,
            length_ms: rng.within(45_000, 70_000) as i64,
            median_ms: (20.0, 100.0),
            per_origin: rng.chance(0.5).then(|| rng.log_uniform(32.0, 64.0) as usize),
            quick: None,
        }
    }

    pub(crate) fn draw_dense(rng: &mut SimRng) -> Self {
        Self {
            tenants: rng.log_uniform(2.0, 12.0) as u64,
            origins: rng.log_uniform(1.0, 100.0) as u64,
            accounts: 0,
            addresses: rng.log_uniform(8.0, 3_000.0) as u64,
            messages: rng.log_uniform(2_000.0, 8_000.0) as u64,
            length_ms: rng.within(60_000, 90_000) as i64,
            median_ms: MEDIAN_MS,
            per_origin: None,
            quick: None,
        }
    }
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
        for k in 0..share.min(stream.most(size.length_ms)) {
            arrivals.push(stream.arrival(seed, (n << 32) | k, size.length_ms));
        }
    }
    number(&mut arrivals);
    arrivals
}

/// Puts arrivals in order of time and numbers them.
pub(crate) fn number(arrivals: &mut [Arrival]) {
    arrivals.sort_by_key(|arrival| arrival.at_ms);
    (0..).zip(arrivals).for_each(|(id, arrival)| arrival.id = id);
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
        let pattern = match rng.below(8) {
            0 => ArrivalPattern::Backlog { at_ms: rng.below(size.length_ms as u64 / 2) as i64 },
            1 => {
                let period_ms = rng.within(5_000, 30_000) as i64;
                ArrivalPattern::OnOff { period_ms, on_ms: rng.within(500, period_ms as u64) as i64 }
            }
            2 => ArrivalPattern::Early { within_ms: rng.within(100, 5_000) as i64 },
            3 => ArrivalPattern::Trickle { every_ms: rng.log_uniform(200.0, 10_000.0) as i64 },
            _ => ArrivalPattern::Poisson,
        };
        let to_accounts = size.accounts > 0 && rng.chance(0.3);
        let origins = match range(rng, if to_accounts { size.accounts } else { size.origins }) {
            (first, some) if to_accounts => (size.origins + first, some),
            origins => origins,
        };
        Self {
            tenants: range(rng, size.tenants),
            origins,
            origin_zipf: rng.unit() * 1.5,
            addresses: rng.magnitude(size.addresses),
            address_zipf: rng.unit() * 1.5,
            class: *rng.pick(&[0, 1, 1, 1, 2]),
            pattern,
        }
    }

    /// How many messages fit its pattern.
    fn most(&self, length_ms: i64) -> u64 {
        match self.pattern {
            ArrivalPattern::Trickle { every_ms } => (length_ms / every_ms.max(1)) as u64,
            _ => u64::MAX,
        }
    }

    pub(super) fn arrival(&self, seed: u64, key: u64, length_ms: i64) -> Arrival {
        let mut rng = draw(seed, "message", key);
        let at_ms = match self.pattern {
            ArrivalPattern::Backlog { at_ms } => at_ms,
            ArrivalPattern::Poisson => rng.below(length_ms as u64) as i64,
            ArrivalPattern::OnOff { period_ms, on_ms } => {
                let period = rng.below((length_ms / period_ms).max(1) as u64) as i64;
                period * period_ms + rng.below(on_ms as u64) as i64
            }
            ArrivalPattern::Early { within_ms } => rng.below(within_ms as u64) as i64,
            ArrivalPattern::Trickle { every_ms } => {
                (key & u64::from(u32::MAX)) as i64 * every_ms + rng.below(every_ms as u64) as i64
            }
        };
        Arrival {
            at_ms,
            id: 0,
            key,
            tenant: (self.tenants.0 + rng.below(self.tenants.1)) as u32,
            origin: (self.origins.0 + zipf(&mut rng, self.origins.1, self.origin_zipf)) as u32,
            address: zipf(&mut rng, self.addresses, self.address_zipf) as u32,
            class: self.class,
            parts: 0,
            sick: false,
        }
    }
}
