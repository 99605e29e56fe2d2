//! When a breaker opens, what it lets through, and how it closes.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::policy::breaker::{
    Breaker, BreakerCause, BreakerChange, BreakerOverride, BreakerPolicy, BreakerRefusal,
    BreakerState,
};
use postrider_core::policy::signal::Signal;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Makes one call and reports its end.
fn call(breaker: &mut Breaker, signal: Signal, now: Timestamp) -> Option<BreakerChange> {
    let permit = breaker.admit(1, now).expect("may be called");
    breaker.report(signal, permit.epoch, now, 0.0)
}

fn opened(now: Timestamp) -> Breaker {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    for _ in 0..20 {
        call(&mut breaker, Signal::Failing, now);
    }
    assert!(matches!(breaker.state(), BreakerState::Open { .. }));
    breaker
}

#[test]
fn a_total_outage_opens_it_within_twenty_calls() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    for _ in 0..19 {
        assert_eq!(call(&mut breaker, Signal::Overloaded, NOW), None);
    }
    let turn = call(&mut breaker, Signal::Overloaded, NOW);
    assert_eq!(turn, Some(BreakerChange::Opened { until: NOW + secs(5) }));
    assert_eq!(
        breaker.admit(10, NOW + Duration::from_millis(4_999)).unwrap_err(),
        BreakerRefusal::Until(NOW + secs(5))
    );
}

#[test]
fn a_fifth_of_the_calls_failing_for_minutes_opens_it() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    let mut at = NOW;
    for n in 0..99 {
        at = at + secs(2);
        let signal = if n % 4 == 0 { Signal::Failing } else { Signal::Well };
        assert_eq!(call(&mut breaker, signal, at), None, "call {n}: too few to judge by");
    }
    call(&mut breaker, Signal::Well, at);
    assert!(matches!(call(&mut breaker, Signal::Failing, at), Some(BreakerChange::Opened { .. })));
}

#[test]
fn what_a_recipient_refuses_never_opens_it_nor_does_being_asked_for_less() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    for signal in [Signal::Well, Signal::Busy, Signal::Credential, Signal::Nothing] {
        for _ in 0..1_000 {
            assert_eq!(call(&mut breaker, signal, NOW), None);
        }
    }
    assert_eq!(breaker.state(), BreakerState::Closed);
}

#[test]
fn after_its_time_one_probe_goes_through_and_no_second_one() {
    let mut breaker = opened(NOW);
    let permit = breaker.admit(64, NOW + secs(5)).unwrap();
    assert_eq!(permit.calls, 1);
    assert_eq!(breaker.admit(64, NOW + secs(5)).unwrap_err(), BreakerRefusal::Probing);
    breaker.hand_back(1, permit.epoch);
    assert_eq!(breaker.admit(64, NOW + secs(5)).unwrap().calls, 1, "an unused probe is not lost");
}

#[test]
fn it_comes_back_exponentially_and_closes() {
    let mut breaker = opened(NOW);
    let at = NOW + secs(5);
    let mut steps = Vec::new();
    while breaker.state() != BreakerState::Closed {
        let permit = breaker.admit(1_000, at).unwrap();
        steps.push(permit.calls);
        for _ in 0..permit.calls {
            breaker.report(Signal::Well, permit.epoch, at, 0.0);
        }
    }
    assert_eq!(steps, [1, 2, 4, 8, 16, 32]);
    assert_eq!(breaker.admit(1_000, at).unwrap().calls, 1_000);
}

#[test]
fn a_failed_probe_opens_it_for_longer_up_to_a_limit_and_with_jitter() {
    let mut breaker = opened(NOW);
    let mut at = NOW + secs(5);
    let mut waits = Vec::new();
    for _ in 0..8 {
        let permit = breaker.admit(1, at).unwrap();
        let Some(BreakerChange::Opened { until }) =
            breaker.report(Signal::Failing, permit.epoch, at, 0.0)
        else {
            panic!("a failed probe opens it")
        };
        waits.push(until.since(at).as_secs());
        at = until;
    }
    assert_eq!(waits, [10, 20, 40, 60, 60, 60, 60, 60]);
    let mut late = opened(NOW);
    assert_eq!(
        late.open(BreakerCause::Failures, NOW, 0.999),
        BreakerChange::Opened { until: NOW + Duration::from_millis(12_497) }
    );
}

#[test]
fn answers_to_calls_from_before_it_opened_do_not_decide_about_the_probe() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    let early = breaker.admit(100, NOW).unwrap();
    for _ in 0..20 {
        breaker.report(Signal::Failing, early.epoch, NOW, 0.0);
    }
    let at = NOW + secs(5);
    let probe = breaker.admit(1, at).unwrap();
    assert_eq!(breaker.report(Signal::Failing, early.epoch, at, 0.0), None);
    assert_eq!(breaker.report(Signal::Well, early.epoch, at, 0.0), None);
    assert_eq!(breaker.report(Signal::Well, probe.epoch, at, 0.0), Some(BreakerChange::Eased));
    assert_eq!(breaker.admit(9, at).unwrap().calls, 2);
}

#[test]
fn an_operator_can_open_and_close_it_and_take_the_word_back() {
    let mut breaker = opened(NOW);
    breaker.force(Some(BreakerOverride::Closed));
    for _ in 0..100 {
        assert_eq!(call(&mut breaker, Signal::Failing, NOW), None);
    }
    assert_eq!(breaker.state(), BreakerState::ForcedClosed);
    breaker.force(Some(BreakerOverride::Open));
    assert_eq!(breaker.admit(1, NOW + secs(9_999)).unwrap_err(), BreakerRefusal::Forced);
    breaker.force(None);
    assert!(breaker.admit(1, NOW + secs(9_999)).is_ok());
}

#[test]
fn failures_of_a_provider_that_is_known_to_be_down_are_nobodys_fault() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    let early = breaker.admit(100, NOW).unwrap();
    for _ in 0..19 {
        breaker.report(Signal::Failing, early.epoch, NOW, 0.0);
        assert!(!breaker.excuses(Signal::Failing), "one by one they may be");
    }
    breaker.report(Signal::Failing, early.epoch, NOW, 0.0);
    assert!(breaker.excuses(Signal::Failing), "the one that opened it");
    breaker.report(Signal::Overloaded, early.epoch, NOW, 0.0);
    assert!(breaker.excuses(Signal::Overloaded), "those that were under way");
    assert!(!breaker.excuses(Signal::Well) && !breaker.excuses(Signal::Busy));
    let probe = breaker.admit(1, NOW + secs(5)).unwrap();
    breaker.report(Signal::Failing, probe.epoch, NOW + secs(5), 0.0);
    assert!(breaker.excuses(Signal::Failing), "probes");
    breaker.force(Some(BreakerOverride::Closed));
    assert!(!breaker.excuses(Signal::Failing), "sent on an operator's word");
}

#[test]
fn after_a_storm_being_asked_for_less_once_more_is_no_recovery() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    breaker.open(BreakerCause::Storm, NOW, 0.0);
    let at = NOW + secs(5);
    let again = call(&mut breaker, Signal::Busy, at);
    assert_eq!(again, Some(BreakerChange::Opened { until: at + secs(10) }));
    assert!(breaker.cause() == BreakerCause::Storm && breaker.excuses(Signal::Busy));
    let mut after_failures = opened(NOW);
    assert_eq!(call(&mut after_failures, Signal::Busy, at), Some(BreakerChange::Eased));
}

#[test]
fn a_provider_that_never_answers_is_seen_before_anybodys_retries_run_out() {
    let mut breaker = Breaker::new(BreakerPolicy::default());
    // Sixteen calls at once, each ending after thirty seconds of silence; then eleven.
    for _ in 0..16 {
        assert_eq!(call(&mut breaker, Signal::Overloaded, NOW + secs(30)), None);
    }
    let opened = (0..11).find(|_| call(&mut breaker, Signal::Overloaded, NOW + secs(60)).is_some());
    assert_eq!(opened, Some(3), "with the twentieth");
}
