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

mod model;

use std::cmp::Reverse;

use model::*;

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
