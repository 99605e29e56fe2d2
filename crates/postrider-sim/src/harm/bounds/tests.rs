//! Each bound can break.

use postrider_testkit::sick_level::SickLevel;

use super::*;
use crate::harm::network::WireCall;
use crate::harm::sick::SickTime;
use crate::harm::traffic::WorldSize;

/// A world of one minute and a half: every 100 ms a healthy message and a sick one, at two origins.
fn plan(kind: SickKind, when: SickTime) -> HarmPlan {
    let part = SickPart { level: SickLevel::Origin(1), kind, chance: 1.0, when };
    let arrival = |id: u32| Arrival {
        at_ms: i64::from(id / 2) * 100,
        id,
        key: id.into(),
        tenant: 0,
        origin: id % 2,
        address: id,
        class: 0,
        parts: (id % 2) as u8,
        sick: id % 2 == 1,
    };
    HarmPlan {
        seed: 1,
        size: WorldSize {
            tenants: 1,
            origins: 2,
            accounts: 0,
            addresses: 2_000,
            messages: 1_800,
            length_ms: 90_000,
            median_ms: (1.0, 100.0),
            per_origin: None,
            quick: None,
        },
        arrivals: (0..1_800).map(arrival).collect(),
        sick: vec![part],
        connections_max: 96,
        naming: 0,
        chance: 0,
    }
}

/// Everything is written at once, accepted after 10 ms and ended.
fn run(plan: &HarmPlan) -> HarmRun {
    let fate = |arrival: &Arrival| DeliveryFate {
        written: Some(arrival.at_ms),
        opening_ms: 0,
        accepted: Some(arrival.at_ms + 10),
        counted: 1,
        dead: false,
        ended: true,
    };
    let fates = plan.arrivals.iter().map(fate).collect();
    HarmRun { fates, calls: vec![], broken: vec![], held_by: vec![] }
}

/// The bounds that break if the run with sickness is the one in health, changed like this.
fn broken_by(plan: &HarmPlan, change: impl Fn(&Arrival, &mut DeliveryFate)) -> Vec<&'static str> {
    let mut sick = run(plan);
    plan.arrivals.iter().for_each(|arrival| change(arrival, &mut sick.fates[arrival.id as usize]));
    broken(plan, sick)
}

fn broken(plan: &HarmPlan, sick: HarmRun) -> Vec<&'static str> {
    let runs = HarmRuns { plan, alone: run(plan), well: run(plan), sick };
    let measured = runs.check_measured().into_iter().map(|breach| breach.broken);
    let broken = measured.chain(runs.check_always());
    broken.map(|broken| broken.bound).collect()
}

fn healthy(change: impl Fn(&mut DeliveryFate)) -> Vec<&'static str> {
    let change = |arrival: &Arrival, fate: &mut DeliveryFate| {
        if !arrival.sick {
            change(fate);
        }
    };
    broken_by(&plan(SickKind::Reset, SickTime::Always), change)
}

/// Calls to the sick origin: `at_once` of them, each of 100 ms, again and again.
fn calls(plan: &HarmPlan, at_once: i64, refused_by: Option<usize>) -> HarmRun {
    let call = |n: i64| {
        let written = n / at_once * 100;
        let refused = refused_by.is_some();
        let (ended, accepted, is_first) = (written + 100, !refused, true);
        WireCall {
            arrival: 1,
            written,
            ended,
            opening_ms: 0,
            refused,
            failed: false,
            refused_by,
            accepted,
            is_first,
        }
    };
    HarmRun { calls: (0..at_once * 900).map(call).collect(), ..run(plan) }
}

#[test]
fn a_run_like_the_reference_breaks_no_bound() {
    assert!(healthy(|_| {}).is_empty());
}

#[test]
fn healthy_work_that_waits_longer_breaks_every_bound_on_waiting() {
    let broken = healthy(|fate| fate.written = fate.written.map(|at| at + 1_000));
    assert_eq!(broken, ["p50 of the wait", "p99 of the wait", "p99 of the wait, urgent"]);
}

#[test]
fn healthy_work_that_arrives_later_breaks_the_bound_on_lag() {
    let broken = healthy(|fate| fate.accepted = fate.accepted.map(|at| at + 6_000));
    assert_eq!(broken, ["lag of the delivered"]);
}

#[test]
fn that_single_deliveries_arrive_later_is_no_lag() {
    let late = |few: i64| {
        healthy(move |fate| {
            fate.accepted = fate.accepted.map(|at| if at > few { at } else { at + 6_000 });
        })
    };
    assert!(late(499).is_empty(), "five");
    assert_eq!(late(9_999), ["lag of the delivered"], "a hundred");
}

#[test]
fn a_single_healthy_delivery_that_never_arrives_is_noticed() {
    let plan = plan(SickKind::Reset, SickTime::Always);
    let lost = |arrival: &Arrival, fate: &mut DeliveryFate| {
        if arrival.id == 800 {
            fate.accepted = None;
        }
    };
    assert_eq!(broken_by(&plan, lost), ["all healthy work arrives"]);
}

#[test]
fn what_is_far_beyond_a_bound_needs_no_second_run() {
    let near = |is: i64| {
        let plan = plan(SickKind::Reset, SickTime::Always);
        let mut sick = run(&plan);
        sick.fates.iter_mut().for_each(|fate| fate.written = fate.written.map(|at| at + is));
        let runs = HarmRuns { plan: &plan, alone: run(&plan), well: run(&plan), sick };
        runs.check_measured().iter().map(MeasuredBreach::is_near).collect::<Vec<_>>()
    };
    assert_eq!((near(25), near(60), near(20)), (vec![true], vec![false, true], vec![]));
}

#[test]
fn a_backlog_of_the_reference_allows_a_lag_of_its_least_speed() {
    let plan = plan(SickKind::Reset, SickTime::Always);
    let runs = HarmRuns { plan: &plan, alone: run(&plan), well: run(&plan), sick: run(&plan) };
    let due = || (0..900).map(|n| n * 100);
    let backlog: Vec<_> = due().map(|at| at.max(10_000)).collect();
    let slower = runs.slower_backlog(&backlog);
    assert_eq!((slower[0], slower[300], slower[899]), (1_764, 1_764, 0));
}

#[test]
fn healthy_work_that_goes_on_at_a_lower_speed_breaks_the_bound_on_throughput() {
    let broken = healthy(|fate| {
        let slower = |at: i64| at + 1_000 + at / 2;
        (fate.written, fate.accepted) = (fate.written.map(slower), fate.accepted.map(slower));
    });
    assert!(broken.contains(&"throughput in 30 s"), "{broken:?}");
}

#[test]
fn a_lower_speed_is_no_fault_where_nothing_waits() {
    let broken = healthy(|fate| fate.accepted = fate.accepted.map(|at| at + 1_000 + at / 2));
    assert_eq!(broken, ["lag of the delivered"]);
}

#[test]
fn one_more_attempt_and_a_dead_letter_of_healthy_work_break_their_bounds() {
    assert_eq!(healthy(|fate| fate.counted += 1), ["counted attempts"]);
    assert_eq!(healthy(|fate| fate.dead = true), ["dead letters"]);
}

#[test]
fn what_healed_and_is_not_served_a_minute_later_breaks_the_bound_on_healing() {
    let is_lost = |arrival: &Arrival, fate: &mut DeliveryFate| {
        if arrival.sick {
            fate.accepted = None;
        }
    };
    let healed = plan(SickKind::Reset, SickTime::Between(5_000, 15_000));
    assert_eq!(broken_by(&healed, is_lost), ["what healed is served"]);
    let never = plan(SickKind::Reset, SickTime::From(5_000));
    assert!(broken_by(&never, is_lost).is_empty());
}

#[test]
fn what_asked_for_a_wait_is_served_a_minute_after_that() {
    let is_lost = |arrival: &Arrival, fate: &mut DeliveryFate| {
        if arrival.sick {
            fate.accepted = None;
        }
    };
    let asked = |s| {
        let kind = SickKind::TooMany { retry_after_s: Some(s) };
        plan(kind, SickTime::Between(5_000, 15_000))
    };
    assert_eq!(broken_by(&asked(1), is_lost), ["what healed is served"]);
    assert!(broken_by(&asked(60), is_lost).is_empty());
}

#[test]
fn an_overload_that_was_just_met_breaks_nothing() {
    let kind = SickKind::Slots { slots: 4, work_ms: 10, status: 503 };
    let plan = plan(kind, SickTime::Always);
    let mut run = calls(&plan, 41, Some(0));
    run.calls.retain(|call| call.written >= 76_000);
    assert!(broken(&plan, run).is_empty());
}

#[test]
fn more_calls_than_a_queue_takes_break_the_bound_on_standing_calls() {
    let plan = plan(SickKind::Queue { slots: 4, work_ms: 10 }, SickTime::Always);
    assert!(broken(&plan, calls(&plan, 40, None)).is_empty());
    assert_eq!(broken(&plan, calls(&plan, 41, None)), ["calls standing at an overloaded origin"]);
}

#[test]
fn refusals_that_go_on_break_the_bound_on_refused_calls() {
    let kind = SickKind::Slots { slots: 4, work_ms: 10, status: 503 };
    let plan = plan(kind, SickTime::Always);
    let bound = "calls refused by an overloaded origin";
    assert_eq!(broken(&plan, calls(&plan, 4, Some(0))), [bound]);
    assert!(broken(&plan, calls(&plan, 4, None)).is_empty());
}

#[test]
fn refusals_per_second_that_go_on_break_the_bound_on_refused_calls() {
    let plan = plan(SickKind::Rate { per_s: 5, status: 429 }, SickTime::Always);
    let bound = "calls refused by an overloaded origin";
    assert_eq!(broken(&plan, calls(&plan, 1, Some(0))), [bound]);
}

#[test]
fn refused_calls_to_sick_addresses_have_a_bound_of_their_own() {
    let plan = plan(SickKind::Rate { per_s: 5, status: 503 }, SickTime::Always);
    let to_sick = |at_once| {
        let mut run = calls(&plan, at_once, Some(0));
        run.calls.iter_mut().for_each(|call| call.failed = true);
        broken(&plan, run)
    };
    assert!(to_sick(1).is_empty());
    assert_eq!(to_sick(4), ["calls refused by an overloaded origin"]);
}

#[test]
fn an_attempt_counted_for_our_own_limits_breaks_its_bound() {
    let plan = plan(SickKind::Local, SickTime::Between(5_000, 15_000));
    let is_counted = |arrival: &Arrival, fate: &mut DeliveryFate| {
        fate.counted += u32::from(arrival.sick);
    };
    assert_eq!(broken_by(&plan, is_counted), ["our own limits cost no attempt"]);
}

#[test]
fn an_invariant_that_broke_during_the_run_is_reported() {
    let plan = plan(SickKind::Reset, SickTime::Always);
    let known = BrokenBound { bound: "an invariant", detail: String::new() };
    assert_eq!(broken(&plan, HarmRun { broken: vec![known], ..run(&plan) }), ["an invariant"]);
}
