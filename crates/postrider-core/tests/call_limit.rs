//! The limit of an origin against origins as they are: those that queue or refuse beyond a number of
//! calls, and those whose latency and errors have nothing to do with our calls. A seeded event model in
//! virtual time; a failure prints its seed.
//!
//! Each rule was taken away once. These tests fail without it:
//!
//! | rule | test that fails without it |
//! |---|---|
//! | p10, not p50 or p90 | `an_origin_that_does_not_mind_our_calls_keeps_its_limit` |
//! | two cohorts in a row | `one_slow_moment_of_an_origin_costs_nothing` |
//! | 50 ms of waiting are noise | `small_delays_of_a_fast_origin_are_noise` |
//! | base from several cohorts | `an_origin_that_queues_is_kept_busy_and_not_buried` (1 054, 1 092) |
//! | doubling waits for a good cohort | `an_origin_that_loses_workers_is_not_buried` |
//! | no growth while a cohort queues | `an_origin_that_does_not_mind_our_calls_keeps_its_limit` (5 034) |
//! | floor of 8 | `a_queue_with_one_worker_gets_eight_calls_at_once_and_not_many_more` |
//! | new base at the floor | `a_longer_way_to_an_origin_with_few_slots_does_not_cost_its_limit` |
//! | undo of latency cuts | `an_origin_that_does_not_mind_our_calls_keeps_its_limit` |
//! | highest p10 as the measure | `an_origin_that_loses_workers_is_not_buried` |
//! | undo of refusal cuts | `refusals_that_do_not_depend_on_our_calls_do_not_keep_the_limit_down` |
//! | sign ignored for 60 s | `refusals_that_do_not_depend_on_our_calls_do_not_keep_the_limit_down` |
//! | 3 refusing addresses | `two_addresses_that_refuse_do_not_cost_the_limit_of_twenty` |
//! | 4 refused calls of 64 | `an_origin_that_does_not_mind_our_calls_keeps_its_limit` |
//! | 2 calls per address | `one_hot_address_neither_hides_a_queue_nor_speaks_for_all` |
//! | more where addresses are few | `an_origin_with_so_many_slots_has_them_in_use_and_refuses_few` |
//! | two tenants | `the_refusals_of_one_tenant_do_not_cost_the_limit_of_another` |
//! | half used | `a_limit_that_is_not_in_use_is_not_cut` |
//! | a round trip of rest after a change | `an_origin_that_does_not_mind_our_calls_keeps_its_limit` (1 002) |
//! | more patience after each refusal | `five_slots_are_in_use_and_less_than_one_call_in_a_hundred_is_refused` |

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use postrider_core::policy::call_limit::{CallLimit, CallToken, LimitReason};
use postrider_core::{Signal, Timestamp};

const START_MS: i64 = 1_800_000_000_000;
const S: u64 = 1_000_000;
const MS: u64 = 1_000;

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn log_uniform(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.unit())
    }

    /// Roughly normal, with mean 0 and deviation 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// How long a path takes. Times in microseconds.
#[derive(Debug, Clone, Copy)]
enum Latency {
    Constant(f64),
    Lognormal(f64, f64),
    /// The second with the given probability.
    Bimodal(f64, f64, f64),
    /// Up to this factor and back, in a wave of so many seconds.
    Drifting(f64, f64, f64),
}

impl Latency {
    fn draw(self, dice: &mut Dice, now_us: u64) -> u64 {
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

    fn random(dice: &mut Dice, from: f64, to: f64) -> Self {
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
struct Indifferent {
    fast: Latency,
    slow: Latency,
    /// Share of the addresses that are slow.
    slow_share: f64,
    /// Share of the calls that are refused.
    refused_share: f64,
    /// Share of the addresses that refuse every call.
    refusing_share: f64,
    /// Every address of this tenant refuses.
    refusing_tenant: Option<u64>,
    /// This address refuses.
    refusing_target: Option<u64>,
}

impl Indifferent {
    fn new(fast: Latency) -> Self {
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
enum Origin {
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
    fn queue(workers: usize, work: Latency) -> Self {
        Self::Queue { free_at: (0..workers).map(|_| Reverse(0)).collect(), work }
    }

    fn places(&self) -> usize {
        match self {
            Self::Indifferent(_) => usize::MAX,
            Self::Queue { free_at, .. } => free_at.len(),
            Self::Slots { slots, .. } => *slots,
        }
    }

    fn answer(&mut self, call: &Call, taken: usize, dice: &mut Dice) -> (Signal, u64) {
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
struct Traffic {
    tenants: u64,
    addresses: u64,
    /// Share of the calls that go to one address.
    hot_share: f64,
    ceiling: usize,
    /// At most so many calls at once, whatever the limit.
    demand: usize,
}

impl Traffic {
    fn of(addresses: u64) -> Self {
        Self { tenants: 1, addresses, hot_share: 0.0, ceiling: 256, demand: usize::MAX }
    }
}

#[derive(Debug, Clone, Copy)]
struct Call {
    target: u64,
    tenant: u64,
    began_us: u64,
    signal: Signal,
    token: CallToken,
}

/// What was seen since the last look.
#[derive(Debug, Clone, Copy)]
struct Seen {
    well: u64,
    refused: u64,
    us: u64,
    in_flight_us: u64,
    taken_us: u64,
    working_us: u64,
    limit_min: usize,
    limit_max: usize,
}

impl Seen {
    fn nothing() -> Self {
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
    fn mean_working(&self) -> f64 {
        self.working_us as f64 / self.us as f64
    }

    fn refused_share(&self) -> f64 {
        self.refused as f64 / (self.well + self.refused).max(1) as f64
    }

    fn mean_in_flight(&self) -> f64 {
        self.in_flight_us as f64 / self.us as f64
    }

    /// Calls that the origin did not refuse.
    fn mean_taken(&self) -> f64 {
        self.taken_us as f64 / self.us as f64
    }
}

/// As many calls as the limit allows, all the time.
struct Model {
    limit: CallLimit,
    origin: Origin,
    traffic: Traffic,
    dice: Dice,
    now_us: u64,
    ends: BinaryHeap<Reverse<(u64, u64, usize)>>,
    calls: Vec<Call>,
    free: Vec<usize>,
    sequence: u64,
    in_flight: usize,
    taken: usize,
}

impl Model {
    fn new(seed: u64, origin: Origin, traffic: Traffic) -> Self {
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

    fn now(&self) -> Timestamp {
        Timestamp(START_MS + (self.now_us / MS) as i64)
    }

    fn limit(&self) -> usize {
        self.limit.limit(self.now())
    }

    /// The time until the first answer does not count: the limit is low until then.
    fn run(&mut self, us: u64) -> Seen {
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

    fn start(&mut self) {
        let Traffic { tenants, addresses, hot_share, .. } = self.traffic;
        let hot = self.dice.unit() < hot_share;
        let number = if hot { 0 } else { self.dice.below(addresses) };
        let (target, tenant) = (Dice(number).next(), number % tenants);
        self.in_flight += 1;
        let token = self.limit.start(target, tenant, false, self.in_flight, self.now());
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

    fn end(&mut self) -> Signal {
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

fn random_world(seed: u64) -> (Indifferent, Traffic) {
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

#[test]
fn an_origin_that_does_not_mind_our_calls_keeps_its_limit() {
    let mut wrong = Vec::new();
    for seed in (0..60).chain([1_002, 1_027, 1_076, 5_034, 5_053]) {
        let (origin, traffic) = random_world(seed);
        let mut model = Model::new(seed, Origin::Indifferent(origin), traffic);
        let before = model.run(60 * S);
        let seen = model.run(30 * S);
        let refuses = origin.refused_share + origin.refusing_share > 0.0;
        let too_low = !refuses && before.limit_min < 8 || seen.limit_min < traffic.ceiling / 4;
        if too_low {
            let reason = model.limit.reason(model.now());
            wrong.push(format!(
                "seed {seed}: {} to {}, {reason}; {origin:?}, {traffic:?}",
                seen.limit_min, seen.limit_max
            ));
        }
    }
    assert!(wrong.is_empty(), "{} worlds:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_origin_that_queues_is_kept_busy_and_not_buried() {
    let mut wrong = Vec::new();
    for seed in (0..10).chain([1_054, 1_092]) {
        let mut dice = Dice(seed);
        let workers = dice.log_uniform(1.0, 128.0).round();
        let work_ms = dice.log_uniform(5.0, 500.0);
        let sigma = 0.5 * dice.unit();
        let addresses = [1, 20, 5_000][dice.below(3) as usize];
        let origin = Origin::queue(workers as usize, Latency::Lognormal(work_ms * 1e3, sigma));
        let traffic = Traffic { tenants: 1 + dice.below(3), ..Traffic::of(addresses) };
        let mut model = Model::new(seed, origin, traffic);
        model.run(15 * S);
        let seen = model.run(45 * S);
        let used = seen.mean_working() / workers;
        // Fifty milliseconds of waiting are not told from noise.
        let bound = workers * (1.0 + 50.0 / work_ms).max(2.0) + 32.0;
        if used < 0.98 || seen.mean_in_flight() > bound {
            wrong.push(format!(
                "seed {seed}: {workers} workers, {work_ms:.0} ms, deviation {sigma:.1}, {addresses} addresses: \
                 {used:.3} used, {:.0} standing, limit {} to {}",
                seen.mean_in_flight(),
                seen.limit_min,
                seen.limit_max
            ));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_origin_with_so_many_slots_has_them_in_use_and_refuses_few() {
    let mut wrong = Vec::new();
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let slots = dice.log_uniform(1.0, 64.0).round() as usize;
        let work_ms = dice.log_uniform(10.0, 300.0);
        let refusal_us = dice.log_uniform(1e3, work_ms * 1e3) as u64;
        let addresses = [1, 2, 6, 5_000][dice.below(4) as usize];
        let work = Latency::Lognormal(work_ms * 1e3, 0.5 * dice.unit());
        let origin = Origin::Slots { slots, work, refusal_us };
        let traffic = Traffic { tenants: 1 + dice.below(3), ..Traffic::of(addresses) };
        let mut model = Model::new(seed, origin, traffic);
        model.run(15 * S);
        let first = model.run(15 * S);
        let then = model.run(60 * S);
        let used = first.mean_taken().min(then.mean_taken()) / slots as f64;
        let refused = then.refused_share();
        if used < 0.8 || refused >= 0.05 {
            wrong.push(format!(
                "seed {seed}: {slots} slots, {work_ms:.0} ms, refusal in {refusal_us} us, {traffic:?}: \
                 {used:.2} used, {:.1} % refused, limit {} to {}",
                refused * 100.0,
                then.limit_min,
                then.limit_max
            ));
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn slow_paths_among_fast_ones_do_not_cost_the_limit() {
    for addresses in [50, 5_000] {
        let mut origin = Indifferent::new(Latency::Constant(800.0));
        (origin.slow, origin.slow_share) = (Latency::Constant(2e6), 0.12);
        let mut model = Model::new(1, Origin::Indifferent(origin), Traffic::of(addresses));
        model.run(S);
        let seen = model.run(59 * S);
        assert!(seen.limit_min >= 8, "{addresses}: {}", seen.limit_min);
        assert!(model.limit() >= 64, "{addresses}: {}", model.limit());
    }
}

#[test]
fn a_queue_that_lasts_does_not_become_normal() {
    let mut model = Model::new(1, Origin::queue(8, Latency::Constant(100e3)), Traffic::of(5_000));
    model.run(1_800 * S);
    let seen = model.run(10 * S);
    assert!(seen.mean_in_flight() <= 48.0, "{}", seen.mean_in_flight());
}

#[test]
fn a_queue_with_one_worker_gets_eight_calls_at_once_and_not_many_more() {
    let mut model = Model::new(1, Origin::queue(1, Latency::Constant(30e3)), Traffic::of(5_000));
    model.traffic.demand = 1;
    model.run(5 * S);
    model.traffic.demand = usize::MAX;
    let seen = model.run(60 * S);
    assert!(seen.limit_min >= 8, "{}", seen.limit_min);
    assert!(model.limit() <= 34, "{}", model.limit());
}

#[test]
fn five_slots_are_in_use_and_less_than_one_call_in_a_hundred_is_refused() {
    let origin = Origin::Slots { slots: 5, work: Latency::Constant(50e3), refusal_us: 2 * MS };
    let mut model = Model::new(1, origin, Traffic::of(5_000));
    model.run(30 * S);
    let seen = model.run(60 * S);
    assert!(seen.mean_taken() > 4.0, "{}", seen.mean_taken());
    assert!(seen.refused_share() < 0.01, "{}", seen.refused_share());
    // It grows back once the origin takes more.
    model.origin = Origin::Slots { slots: 40, work: Latency::Constant(50e3), refusal_us: 2 * MS };
    model.run(300 * S);
    let seen = model.run(10 * S);
    assert!(seen.mean_taken() > 32.0, "{}", seen.mean_taken());
}

#[test]
fn refusals_that_do_not_depend_on_our_calls_do_not_keep_the_limit_down() {
    for (seed, share) in [0.06, 0.15, 0.3, 0.6].into_iter().enumerate() {
        let mut origin = Indifferent::new(Latency::Lognormal(60e3, 0.3));
        origin.refused_share = share;
        let mut model = Model::new(seed as u64, Origin::Indifferent(origin), Traffic::of(5_000));
        model.run(60 * S);
        let limits: Vec<_> = (0..120).map(|_| model.run(S).limit_min).collect();
        let low = limits.iter().filter(|limit| **limit < 64).count();
        assert!(low <= 12, "{share}: low for {low} of 120 s: {limits:?}");
    }
}

#[test]
fn two_addresses_that_refuse_do_not_cost_the_limit_of_twenty() {
    let mut origin = Indifferent::new(Latency::Lognormal(60e3, 0.3));
    let mut positions: Vec<_> = (0..20).map(|n| Dice(Dice(n).next()).unit()).collect();
    positions.sort_by(f64::total_cmp);
    origin.refusing_share = 1.0 - positions[17] - 1e-9;
    let mut model = Model::new(1, Origin::Indifferent(origin), Traffic::of(20));
    model.run(10 * S);
    let seen = model.run(60 * S);
    assert!((0.05..0.2).contains(&seen.refused_share()), "{}", seen.refused_share());
    assert_eq!(seen.limit_min, 256);
}

#[test]
fn the_refusals_of_one_tenant_do_not_cost_the_limit_of_another() {
    let mut origin = Indifferent::new(Latency::Lognormal(60e3, 0.3));
    origin.refusing_tenant = Some(1);
    let traffic = Traffic { tenants: 2, ..Traffic::of(5_000) };
    let mut model = Model::new(1, Origin::Indifferent(origin), traffic);
    model.run(10 * S);
    assert_eq!(model.run(60 * S).limit_min, 256);
}

#[test]
fn a_limit_that_is_not_in_use_is_not_cut() {
    let origin = Indifferent::new(Latency::Constant(20e3));
    let mut model = Model::new(1, Origin::Indifferent(origin), Traffic::of(5_000));
    model.run(10 * S);
    assert_eq!(model.limit(), 256);
    model.traffic.demand = 30;
    model.run(5 * S);
    model.origin = Origin::Indifferent(Indifferent::new(Latency::Constant(400e3)));
    assert_eq!(model.run(60 * S).limit_min, 256);
}

#[test]
fn one_slow_moment_of_an_origin_costs_nothing() {
    let origin = Indifferent::new(Latency::Constant(50e3));
    let mut model = Model::new(1, Origin::Indifferent(origin), Traffic::of(5_000));
    model.run(10 * S);
    for _ in 0..10 {
        model.origin = Origin::Indifferent(Indifferent::new(Latency::Constant(150e3)));
        model.run(20 * MS);
        model.origin = Origin::Indifferent(Indifferent::new(Latency::Constant(50e3)));
        assert_eq!(model.run(5 * S).limit_min, 256);
    }
}

#[test]
fn one_hot_address_neither_hides_a_queue_nor_speaks_for_all() {
    let traffic = Traffic { hot_share: 0.9, ..Traffic::of(5_000) };
    let mut model = Model::new(1, Origin::queue(10, Latency::Constant(60e3)), traffic);
    model.run(15 * S);
    let seen = model.run(30 * S);
    assert!(seen.mean_in_flight() < 52.0, "{}", seen.mean_in_flight());
    let mut origin = Indifferent::new(Latency::Constant(60e3));
    origin.refusing_target = Some(Dice(0).next());
    let mut model = Model::new(1, Origin::Indifferent(origin), traffic);
    model.run(20 * S);
    assert_eq!(model.run(60 * S).limit_min, 256);
}

#[test]
fn an_origin_that_loses_workers_is_not_buried() {
    for seed in 0..5 {
        let work = Latency::Lognormal(60e3, 0.1 * seed as f64);
        let mut model = Model::new(seed, Origin::queue(40, work), Traffic::of(5_000));
        model.run(60 * S);
        let free_at = (0..10).map(|_| Reverse(model.now_us)).collect();
        model.origin = Origin::Queue { free_at, work };
        model.run(30 * S);
        let seen = model.run(30 * S);
        assert!(seen.mean_in_flight() <= 52.0, "seed {seed}: {}", seen.mean_in_flight());
    }
}

#[test]
fn a_longer_way_to_an_origin_with_few_slots_does_not_cost_its_limit() {
    let slots = |ms| Origin::Slots { slots: 12, work: Latency::Constant(ms), refusal_us: 2 * MS };
    let mut model = Model::new(1, slots(50e3), Traffic::of(5_000));
    model.run(60 * S);
    model.origin = slots(200e3);
    model.run(30 * S);
    let seen = model.run(60 * S);
    assert!(seen.mean_taken() >= 10.5, "{}", seen.mean_taken());
}

#[test]
fn small_delays_of_a_fast_origin_are_noise() {
    let steady = Indifferent::new(Latency::Constant(4e3));
    let traffic = Traffic { ceiling: 64, ..Traffic::of(5_000) };
    let mut model = Model::new(1, Origin::Indifferent(steady), traffic);
    model.run(2 * S);
    model.origin = Origin::Indifferent(Indifferent::new(Latency::Constant(30e3)));
    assert_eq!(model.run(20 * S).limit_min, 64);
}
