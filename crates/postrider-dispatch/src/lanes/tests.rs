//! What the checks of a lane let through.

use std::time::Duration;

use postrider_core::policy::breaker::{BreakerCause, BreakerState};
use postrider_core::policy::fairness::{Fairness, Weights};
use postrider_core::policy::limiter::Rate;
use postrider_core::{ChannelTraits, Gate, Signal};

use super::*;

const WEBHOOK: ChannelKind = ChannelKind::new("webhook");

fn lane(tenant: &str) -> Arc<LaneKey> {
    Arc::new(LaneKey {
        tenant: TenantId::new(tenant),
        channel: WEBHOOK,
        provider: "https://a.example".into(),
        class: "otp".into(),
    })
}

fn order() -> OperatorOrder {
    OperatorOrder::new("first", StillClock.now())
}

struct StillClock;

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_800_000_000_000)
    }
}

fn lanes(limit: usize) -> Arc<Lanes> {
    let limits = DispatchLimits {
        per_origin: [(WEBHOOK, limit)].into(),
        settle_linger: Duration::ZERO,
        ..DispatchLimits::default()
    };
    Lanes::new(Policies::new(Policy::new([], limits)), Arc::new(StillClock), 1)
}

fn admit(
    lanes: &Arc<Lanes>,
    lane: &Arc<LaneKey>,
    priority: Priority,
    want: usize,
) -> Result<LanePermit, LaneRefusal> {
    lanes.admit(lane, &lanes.route(lane), priority, want, WeightPart::WHOLE)
}

#[test]
fn a_new_part_of_the_work_wakes_what_waits_for_limits_of_the_old_one() {
    let lanes = lanes(8);
    lanes.wakeups.take();
    lanes.set_part(0.25);
    assert!(matches!(*lanes.wakeups.take(), [Wakeup::All]));
    assert_eq!(lanes.work_share().part(), 0.25);
    lanes.set_part(0.25);
    assert!(lanes.wakeups.take().is_empty(), "nothing changed");
}

#[test]
fn a_large_push_service_is_shared_by_all_workers_and_a_host_is_not() {
    let lanes = lanes(8);
    lanes.set_part(0.25);
    lanes.channels.set_traits(WEBHOOK, &PUSH);
    let ceiling =
        |origin: &str| lanes.ceiling(&lanes.policies.now().limits, &(WEBHOOK, origin.into()));
    assert_eq!((ceiling("https://eu.push.example"), ceiling("https://a.example")), (2, 8));
}

/// The part of one of two tenants of the same weight.
fn half_part() -> WeightPart {
    let mut waiting = Fairness::default();
    for tenant in ["a", "b"] {
        waiting.join(tenant, &TenantId::new(tenant), Priority::High);
    }
    let turn = waiting.next(&Weights::new(), StillClock.now(), |_| true);
    turn.map(|(_, turn)| turn.part()).unwrap()
}

static PUSH: ChannelTraits =
    ChannelTraits { wide_hosts: &["push.example"], ..ChannelTraits::PLAIN };

fn result(signal: Signal) -> CallResult {
    CallResult {
        signal,
        gone: false,
        wait: None,
        latency_ms: 5,
        is_retry: false,
        unopened: false,
        target: 0,
        tenant_credential: false,
        counts_for_breaker: true,
    }
}

/// The provider answers once, so that it is known to work.
fn prove(lanes: &Arc<Lanes>) {
    let mut calls = admit(lanes, &lane("a"), Priority::Normal, 1).unwrap().begin([0].into_iter());
    let call = calls.pop().unwrap();
    call.end(result(Signal::Well));
}

#[tokio::test]
async fn a_free_place_is_told_also_after_a_call_that_ended_without_a_result() {
    let lanes = lanes(8);
    prove(&lanes);
    let mut calls = admit(&lanes, &lane("a"), Priority::High, 9).unwrap().begin(0..8);
    assert!(admit(&lanes, &lane("b"), Priority::High, 1).is_err());
    drop(calls.pop());
    calls.extend(admit(&lanes, &lane("b"), Priority::High, 9).unwrap().begin(8..9));
    lanes.wakeups.take();
    calls.pop().unwrap().end(result(Signal::Well));
    let told = tokio::time::timeout(Duration::from_secs(1), lanes.wakeups.gathered());
    assert!(told.await.is_ok());
    assert!(matches!(*lanes.wakeups.take(), [Wakeup::SlotsFree(_)]));
}

/// A tenant whose breaker lets probes through since then.
fn probing(lanes: &Arc<Lanes>, since: Timestamp) -> Arc<LaneProvider> {
    let provider = lanes.provider(&provider_key(&lane("a")), StillClock.now());
    let mut gates = provider.gates();
    let own = gates.trouble(&TenantId::new("a"), since);
    own.breaker.open(BreakerCause::Failures, since - Duration::from_secs(10), 0.0);
    own.breaker.admit(1, since).unwrap();
    drop(gates);
    provider
}

#[test]
fn a_probe_that_is_not_answered_is_known_as_tried() {
    let lanes = lanes(8);
    probing(&lanes, StillClock.now());
    let probes = admit(&lanes, &lane("a"), Priority::High, 1).unwrap();
    assert!(probes.probes());
    let _hanging = probes.begin([7].into_iter());
    let next = admit(&lanes, &lane("a"), Priority::High, 1).unwrap();
    assert_eq!(next.probed().1, [7]);
}

#[test]
fn a_breaker_that_opens_because_no_probe_was_answered_in_time_is_an_event() {
    let lanes = lanes(8);
    probing(&lanes, StillClock.now() - Duration::from_secs(12));
    assert!(admit(&lanes, &lane("a"), Priority::High, 1).is_err());
    let [(_, LaneEvent::BreakerOpened { scope, until })] = *lanes.take_events() else {
        panic!("one event");
    };
    assert_eq!(scope, BreakerScope::Tenant);
    assert!(until > StillClock.now());
    assert_eq!(lanes.take_events(), []);
}

#[test]
fn providers_that_are_in_use_are_not_looked_at_again_for_every_newcomer() {
    let lanes = lanes(8);
    let (now, tenant) = (StillClock.now(), TenantId::new("a"));
    for n in 0..=PROVIDERS_MAX {
        let key = (WEBHOOK, format!("https://{n}.example").into());
        lanes.provider(&key, now).gates().tenant(&tenant, now);
    }
    assert_eq!(lanes.providers_max.load(Ordering::Relaxed), 2 * PROVIDERS_MAX);
    assert_eq!(lanes.providers().len(), PROVIDERS_MAX + 1);
}

#[test]
fn an_origin_never_gives_more_than_its_limit_and_lanes_of_one_origin_share_it() {
    let lanes = lanes(4);
    let first = admit(&lanes, &lane("a"), Priority::Normal, 3).unwrap();
    assert_eq!(first.calls(), 3);
    let mut calls = first.begin([1, 2, 3].into_iter());
    let second = admit(&lanes, &lane("b"), Priority::Normal, 9).unwrap();
    assert_eq!(second.calls(), 1);
    let _other = second.begin([4].into_iter());
    let full = LaneState::Blocked { on: Gate::Concurrency };
    assert_eq!(admit(&lanes, &lane("a"), Priority::Normal, 1).err().map(|r| r.state), Some(full));
    assert_eq!(lanes.report(&lane("b")).state, full);
    calls.pop();
    assert_eq!(admit(&lanes, &lane("a"), Priority::Normal, 9).unwrap().calls(), 1);
}

#[test]
fn a_tenant_gets_its_part_of_the_places_while_others_wait_and_all_of_them_otherwise() {
    let lanes = lanes(16);
    prove(&lanes);
    let (route, half) = (lanes.route(&lane("a")), half_part());
    let admit = |tenant, part| lanes.admit(&lane(tenant), &route, Priority::High, 64, part);
    let first = admit("a", half).unwrap();
    assert_eq!(first.calls(), 8);
    let _calls = first.begin(0..8);
    let refusal = admit("a", half).err().unwrap();
    assert!(refusal.holds_part && refusal.of_provider);
    assert_eq!(admit("b", half).unwrap().calls(), 8);
    assert_eq!(admit("a", WeightPart::WHOLE).unwrap().calls(), 8);
}

#[test]
fn a_paused_lane_gets_nothing_and_its_neighbour_everything() {
    let lanes = lanes(4);
    lanes.pause(lane("a"), order());
    let paused = LaneState::Blocked { on: Gate::Paused };
    assert_eq!(admit(&lanes, &lane("a"), Priority::Normal, 1).err().map(|r| r.state), Some(paused));
    assert_eq!(lanes.report(&lane("a")).state, paused);
    assert!(admit(&lanes, &lane("b"), Priority::Normal, 1).is_ok());
    assert!(lanes.resume(&lane("a")));
    assert!(!lanes.resume(&lane("a")), "it was not paused any more");
    assert!(admit(&lanes, &lane("a"), Priority::Normal, 1).is_ok());
}

#[test]
fn a_paused_tenant_gets_nothing_in_any_lane_and_the_first_order_stands() {
    let lanes = lanes(4);
    lanes.pause_tenant(TenantId::new("a"), order());
    let second = OperatorOrder::new("second", StillClock.now());
    assert_eq!(lanes.pause_tenant(TenantId::new("a"), second), order());
    let paused = LaneState::Blocked { on: Gate::TenantPaused };
    assert_eq!(admit(&lanes, &lane("a"), Priority::High, 1).err().map(|r| r.state), Some(paused));
    let held = lanes.report(&lane("a"));
    assert_eq!(held.held_by().unwrap().detail, format!("paused by first at {}", StillClock.now()));
    assert!(admit(&lanes, &lane("b"), Priority::Normal, 1).is_ok());
    assert!(lanes.resume_tenant(&TenantId::new("a")));
    assert!(admit(&lanes, &lane("a"), Priority::Normal, 1).is_ok());
}

#[test]
fn a_breaker_that_was_forced_before_its_provider_was_met_holds() {
    let lanes = lanes(4);
    let lane = lane("a");
    let force = |forced: Option<BreakerOverride>| {
        lanes.force_breaker(&lane, forced.map(|f| (f, order())));
    };
    force(Some(BreakerOverride::Open));
    let forced = LaneState::Blocked { on: Gate::Breaker };
    assert_eq!(admit(&lanes, &lane, Priority::High, 1).err().map(|r| r.state), Some(forced));
    assert_eq!(lanes.report(&lane).breaker, BreakerState::ForcedOpen);
    force(None);
    assert!(admit(&lanes, &lane, Priority::High, 1).is_ok());
}

#[test]
fn slots_are_kept_for_urgent_work_when_the_rest_is_taken() {
    let lanes = lanes(10);
    prove(&lanes);
    let many = admit(&lanes, &lane("a"), Priority::Low, 64).unwrap();
    assert_eq!(many.calls(), 9);
    let _calls = many.begin(0..9);
    assert!(admit(&lanes, &lane("b"), Priority::Normal, 1).is_err());
    assert_eq!(admit(&lanes, &lane("b"), Priority::High, 5).unwrap().calls(), 1);
}

#[test]
fn a_smaller_limit_holds_at_once_and_calls_under_way_end_as_they_would_have() {
    let lanes = lanes(4);
    let mut calls = admit(&lanes, &lane("a"), Priority::Normal, 4).unwrap().begin(0..4);
    let smaller = DispatchLimits { per_origin: [(WEBHOOK, 2)].into(), ..DispatchLimits::default() };
    lanes.adopt(Policy::new([], smaller));
    calls.truncate(2);
    assert!(admit(&lanes, &lane("a"), Priority::Normal, 1).is_err(), "two are under way still");
    calls.truncate(1);
    assert_eq!(admit(&lanes, &lane("a"), Priority::Normal, 9).unwrap().calls(), 1);
}

#[test]
fn a_rate_that_is_set_later_holds_from_then_on_and_one_that_is_lifted_no_longer() {
    let lanes = lanes(64);
    let refused = |lanes: &Arc<Lanes>| {
        admit(lanes, &lane("a"), Priority::High, 9).map(|p| p.begin(0..2)).err().map(|r| r.state)
    };
    assert_eq!(refused(&lanes), None);
    let rate = Rate { per_s: 1.0, burst: 2, ramp_s: 0 };
    let slow = DispatchLimits {
        tenant_rates: [(TenantId::new("a"), rate)].into(),
        ..DispatchLimits::default()
    };
    lanes.adopt(Policy::new([], slow));
    assert_eq!(refused(&lanes), None);
    assert!(matches!(refused(&lanes), Some(LaneState::Waiting { on: Gate::TenantRateLimit, .. })));
    lanes.adopt(Policy::new([], DispatchLimits::default()));
    assert_eq!(refused(&lanes), None);
}
