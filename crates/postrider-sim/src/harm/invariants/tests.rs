//! Each invariant can break.

use std::time::Duration;

use postrider_core::policy::breaker::BreakerState;
use postrider_core::{Gate, LaneState, Timestamp};
use postrider_dispatch::lanes::{BreakerScope, GateVerdict, LaneEvent, LaneReport};

use super::limit_cuts::SteadyOrigin;
use super::*;
use crate::harm::network::{FailedOpening, OriginSeen};

const OPEN: BreakerState = BreakerState::Open { until: Timestamp::MAX };

fn report(limit: usize, breaker: BreakerState) -> LaneReport {
    let verdict = GateVerdict {
        gate: Gate::Breaker,
        open: breaker == BreakerState::Closed,
        until: None,
        detail: String::new(),
    };
    LaneReport {
        state: LaneState::Ready,
        gates: vec![verdict],
        breaker,
        provider_in_flight: 0,
        provider_limit: limit,
    }
}

fn seen() -> OriginSeen {
    OriginSeen { has_connection: true, accepted_at: Some(0), ..OriginSeen::default() }
}

fn arrival(address: u32) -> Arrival {
    Arrival {
        at_ms: 0,
        id: address,
        key: 0,
        tenant: 0,
        origin: 0,
        address,
        class: 1,
        parts: 0,
        sick: false,
    }
}

/// A call to an address, from and until these seconds.
fn call(address: u32, from: f64, until: f64, accepted: bool) -> WireCall {
    let ms = |s: f64| Duration::from_secs_f64(s).as_millis() as i64;
    WireCall {
        arrival: address,
        written: ms(from),
        ended: ms(until),
        opening_ms: 0,
        refused: false,
        failed: !accepted,
        refused_by: None,
        accepted,
        is_first: true,
    }
}

/// What these calls break in a world where each arrival goes to the address of its number.
fn broken_by(mut calls: Vec<WireCall>) -> Vec<&'static str> {
    calls.sort_by_key(|call| call.written);
    let plan = HarmPlan { arrivals: (0..20).map(arrival).collect(), ..HarmPlan::draw(1) };
    let mut bounds: Vec<_> =
        sick_calls::check(&plan, &calls).into_iter().map(|broken| broken.bound).collect();
    bounds.dedup();
    bounds
}

/// Nine addresses that work, once a second, and one that fails as these seconds say.
fn beside_healthy(seconds: impl Iterator<Item = f64>, length: f64) -> Vec<WireCall> {
    let well = (0..600).map(|s| call(1 + s % 9, f64::from(s), f64::from(s) + 0.01, true));
    well.chain(seconds.map(|s| call(0, s, s + length, false))).collect()
}

#[test]
fn healthy_work_that_waits_beside_free_places_is_noticed() {
    let mut idle_places = IdlePlaces::default();
    let report = report(64, BreakerState::Closed);
    assert!(idle_places::is_free(&seen(), &report, 0, 4_096));
    let mut look = |is_free, now| idle_places.waits(&arrival(0), is_free, &report, now).is_some();
    assert_eq!(
        [look(true, 0), look(true, 125), look(true, 250), look(true, 375)].last(),
        Some(&true)
    );
    assert_eq!([look(false, 500), look(true, 625), look(true, 750)], [false; 3]);
}

#[test]
fn there_is_no_room_without_a_place_or_a_connection() {
    let report = report(64, BreakerState::Closed);
    assert!(!idle_places::is_free(&OriginSeen { standing: 60, ..seen() }, &report, 0, 4_096));
    assert!(!idle_places::is_free(
        &OriginSeen { has_connection: false, ..seen() },
        &report,
        0,
        4_096
    ));
    assert!(!idle_places::is_free(&seen(), &report, 4_000, 4_096));
}

#[test]
fn a_tenant_that_gets_more_than_its_part_while_another_one_waits_is_noticed() {
    let of_tenant = |id: u32| Arrival { tenant: u32::from(id > 0), ..arrival(id) };
    let plans = (0..).map(|seed| HarmPlan {
        seed,
        arrivals: (0..20).map(of_tenant).collect(),
        ..HarmPlan::draw(1)
    });
    let plan = plans.into_iter().find(|plan| plan.weight(0) == plan.weight(1)).unwrap();
    let is_noticed = |calls: u32, is_quick| {
        let standing: Vec<_> = (1..=calls).map(|n| (call(n, 1.0, 2.0, true), is_quick)).collect();
        let (waiting, tenants) = (HashSet::from([0, 1]), HashSet::from([0, 1]));
        let mut shares = PlaceShares::default();
        let mut look = |standing: &[_], now| {
            let (waiting, tenants) = (&waiting, &tenants);
            let share = OriginShare { plan: &plan, waiting, tenants, standing, now };
            shares.waits(&of_tenant(0), true, &report(16, BreakerState::Closed), &share)
        };
        look(&[], 900).is_some() || look(&standing, 1_100).is_some()
    };
    assert!(is_noticed(12, true));
    assert!(!is_noticed(11, true) && !is_noticed(12, false));
}

#[test]
fn a_breaker_that_stays_open_after_all_is_well_is_noticed() {
    let check = |is_due, breaker| recovery::check(&arrival(0), is_due, &report(64, breaker), 0);
    assert!(check(true, OPEN).is_some());
    assert!(check(false, OPEN).is_none());
    assert!(check(true, BreakerState::Closed).is_none());
}

#[test]
fn a_check_of_a_healthy_tenant_that_closes_is_noticed() {
    assert!(neighbours::check(&arrival(0), &report(64, OPEN), 0).is_some());
    assert!(neighbours::check(&arrival(0), &report(64, BreakerState::Closed), 0).is_none());
}

#[test]
fn an_origin_shut_for_all_by_one_tenant_is_noticed() {
    let shut = |scope| LaneEvent::BreakerOpened { scope, until: Timestamp::MAX };
    assert!(neighbours::event("o", shut(BreakerScope::Provider), |_| true).is_some());
    assert!(neighbours::event("o", shut(BreakerScope::Provider), |_| false).is_none());
    assert!(neighbours::event("o", shut(BreakerScope::Tenant), |_| true).is_none());
}

#[test]
fn a_limit_below_8_at_an_origin_that_never_refused_is_noticed() {
    let check = |seen: OriginSeen, was_down, limit| {
        limit_floor::check(&seen, was_down, &report(limit, BreakerState::Closed), 1_000).is_some()
    };
    assert!(check(seen(), false, 7));
    assert!(!check(seen(), false, 8));
    assert!(!check(seen(), true, 7));
    assert!(!check(OriginSeen { has_refused: true, ..seen() }, false, 7));
    assert!(!check(OriginSeen { accepted_at: None, ..seen() }, false, 7));
}

#[test]
fn a_sick_address_that_is_left_alone_breaks_nothing() {
    let rarely = [20.0, 25.0, 30.0, 36.0, 45.0, 80.0, 160.0].into_iter();
    assert!(broken_by(beside_healthy(rarely, 0.1)).is_empty());
}

#[test]
fn a_sick_address_that_is_called_often_is_noticed() {
    let often = (20..100).map(|n| f64::from(n) * 2.0);
    assert_eq!(broken_by(beside_healthy(often, 0.1)), ["a sick address is called rarely"]);
}

#[test]
fn two_calls_at_once_to_a_sick_address_are_noticed() {
    let at_once = [20.0, 25.0, 30.0, 40.0, 40.1].into_iter();
    assert_eq!(broken_by(beside_healthy(at_once, 0.9)), ["one call at a time to a sick address"]);
}

#[test]
fn where_others_were_unavailable_a_moment_ago_nobody_knows_that_it_is_the_address() {
    let unavailable = (1..20).map(|n| WireCall { refused: true, ..call(n, 21.0, 21.1, false) });
    let again = (1..20).map(|n| call(n, 29.0, 29.1, true));
    let fails = [20.0, 25.0, 30.0, 40.0, 40.1].map(|s| call(0, s, s + 0.9, false));
    let calls = |well_again: u32| {
        let again = again.clone().filter(move |call| call.arrival <= well_again);
        fails.into_iter().chain(unavailable.clone()).chain(again).collect()
    };
    assert!(broken_by(calls(10)).is_empty(), "nine of them may still be");
    assert_eq!(broken_by(calls(19)), ["one call at a time to a sick address"]);
}

#[test]
fn what_is_down_and_is_called_all_the_time_is_noticed() {
    let calls = |every: f64| {
        let call = |n: u32| call(n % 10, f64::from(n) * every, f64::from(n) * every + 0.1, false);
        (0..40).map(call).collect::<Vec<_>>()
    };
    assert_eq!(broken_by(calls(0.5)), ["what is down is called rarely"]);
    assert!(broken_by(calls(4.0)).is_empty());
}

#[test]
fn many_calls_to_sick_addresses_together_are_noticed() {
    // Each of them is called once at the wrong time, all within the same seconds.
    let sick = |address: u32| {
        let times = [20.0, 21.0, 22.0].map(|s| call(address, s, s + 0.1, false));
        times.into_iter().chain([call(address, 30.0, 30.1, false)])
    };
    let plan = HarmPlan { arrivals: (0..1_000).map(arrival).collect(), ..HarmPlan::draw(1) };
    let well = |s: u32| (500..1_000).map(move |n| call(n, f64::from(s), f64::from(s) + 0.01, true));
    let mut calls: Vec<_> =
        (0..200).flat_map(sick).chain([19, 20, 21, 22].into_iter().flat_map(well)).collect();
    calls.sort_by_key(|call| call.written);
    let broken = sick_calls::check(&plan, &calls);
    assert!(broken.iter().any(|b| b.bound == "calls to sick addresses are few"), "{broken:?}");
}

#[test]
fn a_limit_that_slow_addresses_cut_is_noticed() {
    let steady = |only_some| SteadyOrigin { origin: 0, arrival: 0, only_some };
    let look = |only_some, why: &str| {
        LimitCuts::default().look(steady(only_some), &limited(16, why), Some(0), 0).is_some()
    };
    assert!(look(true, "4 of 16 calls under way; cut because answers slowed from 20 to 90 ms"));
    assert!(!look(true, "4 of 16 calls under way to the provider"));
    assert!(!look(false, "4 of 16 calls under way; cut because answers slowed from 20 to 90 ms"));
}

#[test]
fn a_limit_that_stays_cut_in_vain_is_noticed() {
    let steady = SteadyOrigin { origin: 0, arrival: 0, only_some: false };
    let mut cuts = LimitCuts::default();
    let mut look = |limit: usize, in_use: usize, s: i64| {
        let why =
            format!("{in_use} of {limit} calls under way; cut because 4 of 9 addresses refused");
        cuts.look(steady, &limited(limit, &why), Some(s * 1_000), s * 1_000).is_some()
    };
    assert!(!look(32, 32, 0));
    assert!((1..=20).all(|s| !look(8, 1, s)), "nobody needs more");
    assert!(!look(32, 32, 21));
    assert!((22..42).all(|s| !look(8, 8, s)));
    assert!(look(8, 8, 42));
}

fn limited(limit: usize, why: &str) -> LaneReport {
    let mut report = report(limit, BreakerState::Closed);
    let (gate, detail) = (Gate::Concurrency, why.to_owned());
    report.gates.push(GateVerdict { gate, open: true, until: None, detail });
    report
}

#[test]
fn probes_that_fail_while_others_would_succeed_are_noticed() {
    let plan = HarmPlan::draw(1);
    let lane = lane_of(&plan, &arrival(0));
    let shut = LaneEvent::BreakerOpened { scope: BreakerScope::Tenant, until: Timestamp::MAX };
    let found = LaneEvent::BreakerClosed { scope: BreakerScope::Tenant };
    let mut breakers = OpenBreakers::default();
    let again: Vec<_> = [shut, shut, found, shut]
        .map(|event| breakers.opens_again(&lane, event, 0).is_some())
        .into();
    assert_eq!(again, [false, true, false, false]);
    let mut tried = |address| {
        let tried = breakers.probed(&lane, BreakerScope::Tenant, [(0, address)].into());
        tried.into_iter().map(|(_, address)| address).collect::<Vec<_>>()
    };
    assert_eq!([tried(1), tried(2), tried(3)].map(|tried| tried.len()), [0, 1, 2]);
    assert!(!tried(4).contains(&1), "that of the third round before may be tried again");
    let due = vec![(plan.tenant_name(0), 1_000, 7), (plan.tenant_name(1), 1_000, 8)];
    let healing = HashMap::from([(plan.origin_name(0).1, due)]);
    let at = |scope, now| probes::would_succeed(&healing, &lane, scope, now).collect::<Vec<_>>();
    assert!(at(BreakerScope::Tenant, 999).is_empty());
    assert_eq!(at(BreakerScope::Tenant, 1_000), [7]);
    assert_eq!(at(BreakerScope::Provider, 1_000), [7, 8]);
}

#[test]
fn an_attempt_that_counts_while_all_fail_is_noticed() {
    let plan = many_addresses();
    let calls = |last_ok: bool| {
        let mut calls: Vec<_> =
            (0..10).map(|n| call(n, n.into(), f64::from(n) + 0.1, false)).collect();
        calls.push(call(20, 15.0, 15.1, last_ok));
        calls
    };
    let counted = |at: i64| CountedFailures::from([(20, vec![at])]);
    assert!(free_attempts::check(&plan, &calls(false), &counted(15_100)).is_some());
    assert!(free_attempts::check(&plan, &calls(false), &counted(20_000)).is_none());
    assert!(free_attempts::check(&plan, &calls(true), &counted(15_100)).is_none());
    let few: Vec<_> = calls(false).split_off(4);
    assert!(free_attempts::check(&plan, &few, &counted(15_100)).is_none(), "seven are too few");
}

#[test]
fn an_origin_that_cannot_be_reached_and_is_tried_often_is_noticed() {
    let plan = many_addresses();
    let failed = |every_ms: i64| {
        let opening =
            |n: i64| FailedOpening { arrival: 0, began: n * every_ms, ended: n * every_ms + 10 };
        (0..40).map(opening).collect::<Vec<_>>()
    };
    assert!(openings::check(&plan, &[], &failed(500)).is_some());
    assert!(openings::check(&plan, &[], &failed(2_000)).is_none());
    let opened: Vec<_> = (0..20).map(|n| call(0, n.into(), f64::from(n) + 0.1, true)).collect();
    assert!(openings::check(&plan, &opened, &failed(500)).is_none());
}

/// A world whose first arrivals go to addresses of their own.
fn many_addresses() -> HarmPlan {
    let mut plan = HarmPlan::draw(1);
    plan.arrivals = (0..30).map(arrival).collect();
    plan
}
