//! Origins that queue, refuse or do not mind, and the traffic to them, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use postrider_core::policy::call_limit::{CallLimit, CallToken, LimitReason};
use postrider_core::{Signal, Timestamp};

pub(super) const START_MS: i64 = 1_800_000_000_000;
pub(super) const S: u64 = 1_000_000;
pub(super) const MS: u64 = 1_000;

/// SplitMix64.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) fn log_uniform(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.unit())
    }

    /// Roughly normal, with mean 0 and deviation 1.
    pub(super) fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// How long a path takes. Times in microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) enum Latency {
    Constant(f64),
    Lognormal(f64, f64),
    /// The second with the given probability.
    Bimodal(f64, f64, f64),
    /// Up to this factor and back, in a wave of so many seconds.
    Drifting(f64, f64, f64),
}

impl Latency {
    pub(super) fn draw(self, dice: &mut Dice, now_us: u64) -> u64 {
        let us = match self {
            Self::Constant(us) => us,
            Self::Lognormal(median, sigma) => median * (sigma * dice.normal()).exp(),
            Self::Bimodal(a, b, share) => {
                if dice.unit() < share {
                    b
                } else {
                    a
                }
            }
            Self::Drifting(us, factor, period_s) => {
                let phase = now_us as f64 / S as f64 / period_s * std::f64::consts::TAU;
                us * factor.powf((1.0 - phase.cos()) / 2.0)
            }
        };
        us as u64
    }

    pub(super) fn random(dice: &mut Dice, from: f64, to: f64) -> Self {
        let us = dice.log_uniform(from, to);
        match dice.below(4) {
            0 => Self::Constant(us),
            1 => Self::Lognormal(us, 0.2 + dice.unit()),
            2 => Self::Bimodal(us, us * dice.log_uniform(2.0, 20.0), dice.unit()),
            _ => Self::Drifting(us, dice.log_uniform(2.0, 20.0), dice.log_uniform(10.0, 300.0)),
        }
    }
}

/// An origin whose answers do not depend on how many calls it gets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Indifferent {
    pub(super) fast: Latency,
    pub(super) slow: Latency,
    /// Share of the addresses that are slow.
    pub(super) slow_share: f64,
    /// Share of the calls that are refused.
    pub(super) refused_share: f64,
    /// Share of the addresses that refuse every call.
    pub(super) refusing_share: f64,
    /// Every address of this tenant refuses.
    pub(super) refusing_tenant: Option<u64>,
    /// This address refuses.
    pub(super) refusing_target: Option<u64>,
}

impl Indifferent {
    pub(super) fn new(fast: Latency) -> Self {
        Self {
            fast,
            slow: fast,
            slow_share: 0.0,
            refused_share: 0.0,
            refusing_share: 0.0,
            refusing_tenant: None,
            refusing_target: None,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Origin {
    Indifferent(Indifferent),
    /// Works off calls in order with so many workers; the others wait.
    Queue {
        free_at: BinaryHeap<Reverse<u64>>,
        work: Latency,
    },
    /// Takes so many at once and refuses the others within the given time.
    Slots {
        slots: usize,
        work: Latency,
        refusal_us: u64,
    },
}

impl Origin {
    pub(super) fn queue(workers: usize, work: Latency) -> Self {
        Self::Queue { free_at: (0..workers).map(|_| Reverse(0)).collect(), work }
    }

    pub(super) fn places(&self) -> usize {
        match self {
            Self::Indifferent(_) => usize::MAX,
            Self::Queue { free_at, .. } => free_at.len(),
            Self::Slots { slots, .. } => *slots,
        }
    }

    pub(super) fn answer(&mut self, call: &Call, taken: usize, dice: &mut Dice) -> (Signal, u64) {
        let began = call.began_us;
        match self {
            Self::Indifferent(origin) => {
                let position = Dice(call.target).unit();
                let path = if position < origin.slow_share { origin.slow } else { origin.fast };
                let refused = dice.unit() < origin.refused_share
                    || 1.0 - position < origin.refusing_share
                    || origin.refusing_tenant == Some(call.tenant)
                    || origin.refusing_target == Some(call.target);
                let latency_us = path.draw(dice, began);
                match refused {
                    true => (Signal::Overloaded, latency_us.min(20 * MS)),
                    false => (Signal::Well, latency_us),
                }
            }
            Self::Queue { free_at, work } => {
                let Reverse(free) = free_at.pop().expect("a worker");
                let ends = free.max(began) + work.draw(dice, began);
                free_at.push(Reverse(ends));
                (Signal::Well, ends - began)
            }
            Self::Slots { slots, work, refusal_us } => match taken < *slots {
                true => (Signal::Well, work.draw(dice, began)),
                false => (Signal::Overloaded, *refusal_us),
            },
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Traffic {
    pub(super) tenants: u64,
    pub(super) addresses: u64,
    /// Share of the calls that go to one address.
    pub(super) hot_share: f64,
    pub(super) ceiling: usize,
    /// At most so many calls at once, whatever the limit.
    pub(super) demand: usize,
}

impl Traffic {
    pub(super) fn of(addresses: u64) -> Self {
        Self { tenants: 1, addresses, hot_share: 0.0, ceiling: 256, demand: usize::MAX }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) target: u64,
    pub(super) tenant: u64,
    pub(super) began_us: u64,
    pub(super) signal: Signal,
    pub(super) token: CallToken,
}

/// What was seen since the last look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) well: u64,
    pub(super) refused: u64,
    pub(super) us: u64,
    pub(super) in_flight_us: u64,
    pub(super) taken_us: u64,
    pub(super) working_us: u64,
    pub(super) limit_min: usize,
    pub(super) limit_max: usize,
}

impl Seen {
    pub(super) fn nothing() -> Self {
        Self {
            well: 0,
            refused: 0,
            us: 0,
            in_flight_us: 0,
            taken_us: 0,
            working_us: 0,
            limit_min: usize::MAX,
            limit_max: 0,
        }
    }

    /// Workers of a queue that have a call.
    pub(super) fn mean_working(&self) -> f64 {
        self.working_us as f64 / self.us as f64
    }

    pub(super) fn refused_share(&self) -> f64 {
        self.refused as f64 / (self.well + self.refused).max(1) as f64
    }

    pub(super) fn mean_in_flight(&self) -> f64 {
        self.in_flight_us as f64 / self.us as f64
    }

    /// Calls that the origin did not refuse.
    pub(super) fn mean_taken(&self) -> f64 {
        self.taken_us as f64 / self.us as f64
    }
}

/// As many calls as the limit allows, all the time.
pub(super) struct Model {
    pub(super) limit: CallLimit,
    pub(super) origin: Origin,
    pub(super) traffic: Traffic,
    pub(super) dice: Dice,
    pub(super) now_us: u64,
    pub(super) ends: BinaryHeap<Reverse<(u64, u64, usize)>>,
    pub(super) calls: Vec<Call>,
    pub(super) free: Vec<usize>,
    pub(super) sequence: u64,
    pub(super) in_flight: usize,
    pub(super) taken: usize,
}

impl Model {
    pub(super) fn new(seed: u64, origin: Origin, traffic: Traffic) -> Self {
        Self {
            limit: CallLimit::new(traffic.ceiling),
            origin,
            traffic,
            dice: Dice(seed),
            now_us: 0,
            ends: BinaryHeap::new(),
            calls: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            in_flight: 0,
            taken: 0,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp(START_MS + (self.now_us / MS) as i64)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.limit(self.now())
    }

    /// The time until the first answer does not count: the limit is low until then.
    pub(super) fn run(&mut self, us: u64) -> Seen {
        let until = self.now_us + us;
        let mut seen = Seen::nothing();
        loop {
            while self.in_flight < self.limit().min(self.traffic.demand) {
                self.start();
            }
            let unproven = self.limit.reason(self.now()) == LimitReason::Unproven;
            let limit = if unproven { self.traffic.ceiling } else { self.limit() };
            seen.limit_min = seen.limit_min.min(limit);
            seen.limit_max = seen.limit_max.max(limit);
            let next = self.ends.peek().expect("a call under way").0.0;
            let passed = next.min(until) - self.now_us;
            seen.us += passed;
            seen.in_flight_us += passed * self.in_flight as u64;
            seen.taken_us += passed * self.taken as u64;
            seen.working_us += passed * self.taken.min(self.origin.places()) as u64;
            self.now_us += passed;
            if next > until {
                return seen;
            }
            match self.end() {
                Signal::Well => seen.well += 1,
                _ => seen.refused += 1,
            }
        }
    }

    pub(super) fn start(&mut self) {
        let Traffic { tenants, addresses, hot_share, .. } = self.traffic;
        let hot = self.dice.unit() < hot_share;
        let number = if hot { 0 } else { self.dice.below(addresses) };
        let (target, tenant) = (Dice(number).next(), number % tenants);
        self.in_flight += 1;
        let under_way = (self.in_flight, self.in_flight);
        let token = self.limit.start(target, tenant, false, under_way, self.now());
        let mut call =
            Call { target, tenant, began_us: self.now_us, signal: Signal::Nothing, token };
        let (signal, latency_us) = self.origin.answer(&call, self.taken, &mut self.dice);
        call.signal = signal;
        self.taken += usize::from(signal == Signal::Well);
        let at = self.free.pop().unwrap_or(self.calls.len());
        if at == self.calls.len() {
            self.calls.push(call);
        } else {
            self.calls[at] = call;
        }
        self.sequence += 1;
        self.ends.push(Reverse((self.now_us + latency_us.max(100), self.sequence, at)));
    }

    pub(super) fn end(&mut self) -> Signal {
        let Reverse((_, _, at)) = self.ends.pop().expect("a call under way");
        let Call { began_us, signal, token, .. } = self.calls[at];
        self.free.push(at);
        let latency_ms = ((self.now_us - began_us) / MS) as u32;
        self.limit.end(token, signal, latency_ms, self.in_flight, self.now());
        self.in_flight -= 1;
        self.taken -= usize::from(signal == Signal::Well);
        signal
    }
}

pub(super) fn random_world(seed: u64) -> (Indifferent, Traffic) {
    let mut dice = Dice(seed);
    let mut origin = Indifferent::new(Latency::random(&mut dice, 20e3, 200e3));
    origin.slow = Latency::random(&mut dice, 50e3, 5e6);
    origin.slow_share = dice.log_uniform(0.001, 0.95);
    let mut traffic = Traffic::of(dice.log_uniform(1.0, 20_000.0) as u64);
    match dice.below(3) {
        0 => origin.refused_share = 0.05 * dice.unit(),
        1 if traffic.addresses > 100 => origin.refusing_share = 0.03 * dice.unit(),
        _ => {}
    }
    traffic.tenants = dice.log_uniform(1.0, 20.0) as u64;
    traffic.hot_share = if dice.below(4) == 0 { 0.9 } else { 0.0 };
    traffic.ceiling = 128;
    (origin, traffic)
}
