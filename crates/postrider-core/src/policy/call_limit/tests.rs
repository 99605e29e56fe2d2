//! The promises of a limit that need no model of an origin.

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn at(ms: u64) -> Timestamp {
    NOW + Duration::from_millis(ms)
}

/// As many calls as allowed, to one address each, which all end after `latency_ms`.
fn batch(limit: &mut CallLimit, signal: Signal, latency_ms: u32, began_ms: u64) {
    let in_flight = limit.limit(at(began_ms));
    let tokens: Vec<_> = (1..=in_flight)
        .map(|n| limit.start(began_ms * 1_000 + n as u64, 1, false, (n, n), at(began_ms)))
        .collect();
    let ended = at(began_ms + u64::from(latency_ms));
    tokens.into_iter().for_each(|token| limit.end(token, signal, latency_ms, in_flight, ended));
}

fn batches(limit: &mut CallLimit, signal: Signal, latency_ms: u32, seconds: std::ops::Range<u64>) {
    let step = u64::from(latency_ms) + 1;
    (seconds.start * 1_000..seconds.end * 1_000)
        .step_by(step as usize)
        .for_each(|ms| batch(limit, signal, latency_ms, ms));
}

#[test]
fn an_origin_gets_four_calls_until_it_answers_and_again_after_a_silent_minute() {
    let mut limit = CallLimit::new(100);
    assert_eq!((limit.limit(NOW), limit.reason(NOW)), (4, LimitReason::Unproven));
    batch(&mut limit, Signal::Well, 20, 0);
    assert_eq!((limit.limit(at(20)), limit.reason(at(20))), (16, LimitReason::Searching));
    assert_eq!(limit.limit(at(60_020)), 4);
    assert_eq!(CallLimit::new(0).limit(NOW), 1);
}

#[test]
fn batches_that_end_together_take_it_to_the_ceiling() {
    let mut limit = CallLimit::new(100);
    batches(&mut limit, Signal::Well, 20, 0..5);
    assert_eq!((limit.limit(at(5_000)), limit.reason(at(5_000))), (100, LimitReason::AtCeiling));
    limit.adopt(40);
    assert_eq!(limit.limit(at(5_000)), 40);
}

#[test]
fn calls_apart_and_plain_errors_teach_nothing() {
    let mut limit = CallLimit::new(100);
    batch(&mut limit, Signal::Well, 20, 0);
    for n in 0..10_000 {
        let now = at(1_000 + n);
        let token = limit.start(n, n, true, (16, 16), now);
        limit.end(token, Signal::Overloaded, 20, 16, now);
        let token = limit.start(n, n, false, (16, 16), now);
        limit.end(token, Signal::Failing, 20, 16, now);
    }
    assert_eq!(limit.limit(at(11_000)), 16);
}

#[test]
fn a_limit_that_is_not_used_does_not_grow() {
    let mut limit = CallLimit::new(100);
    for n in 0..10_000 {
        let token = limit.start(n, 1, false, (2, 2), at(n * 20));
        limit.end(token, Signal::Well, 20, 2, at(n * 20 + 20));
    }
    assert_eq!(limit.limit(at(200_000)), 16);
}

#[test]
fn timeouts_that_come_together_cut_once() {
    let mut limit = CallLimit::new(64);
    batches(&mut limit, Signal::Well, 20, 0..5);
    let tokens: Vec<_> = (0..64).map(|n| limit.start(n, 1, false, (64, 64), at(5_000))).collect();
    for (n, token) in tokens.into_iter().enumerate() {
        limit.end(token, Signal::Overloaded, 10_000, 64, at(15_000 + n as u64 * 30));
    }
    assert!((32..64).contains(&limit.limit(at(17_000))), "{}", limit.limit(at(17_000)));
}

#[test]
fn an_origin_that_was_down_gets_more_step_by_step() {
    let mut limit = CallLimit::new(100);
    batches(&mut limit, Signal::Well, 20, 0..5);
    limit.recover(at(5_000));
    assert_eq!((limit.limit(at(5_000)), limit.reason(at(5_000))), (4, LimitReason::Recovering));
    limit.recover(at(5_001));
    let mut limits = vec![4];
    for n in 0..200 {
        batch(&mut limit, Signal::Well, 20, 5_100 + n * 21);
        let now = limit.limit(at(5_100 + n * 21 + 20));
        if limits.last() != Some(&now) {
            limits.push(now);
        }
    }
    assert_eq!(limits[..6], [4, 8, 16, 32, 50, 51], "half, then one more in each round");
    assert_eq!(limits.last(), Some(&100));
}

#[test]
fn one_call_a_minute_changes_nothing() {
    let mut limit = CallLimit::new(100);
    for n in 0..1_000 {
        let token = limit.start(n, 1, false, (1, 1), at(n * 60_000));
        let signal = if n % 2 == 0 { Signal::Overloaded } else { Signal::Well };
        limit.end(token, signal, 900, 1, at(n * 60_000 + 900));
    }
    assert_eq!(limit.limit(at(999 * 60_000 + 900)), 16);
}

#[test]
fn a_clock_that_jumps_does_not_stop_it() {
    let mut limit = CallLimit::new(100);
    batches(&mut limit, Signal::Well, 20, 1_000_000..1_000_001);
    let token = limit.start(1, 1, false, (1, 1), at(1_000_001_000));
    limit.end(token, Signal::Well, u32::MAX, 1, Timestamp(i64::MIN));
    limit.end(token, Signal::Overloaded, 0, 0, Timestamp::MAX);
    batches(&mut limit, Signal::Well, 20, 0..10);
    assert_eq!(limit.limit(at(10_000)), 100);
}

#[test]
fn a_call_is_long_after_four_times_the_usual_within_bounds() {
    let mut limit = CallLimit::new(100);
    assert_eq!(limit.long_after(), Duration::from_millis(250));
    batches(&mut limit, Signal::Well, 100, 0..10);
    let ms = limit.long_after().as_millis();
    assert!((390..=420).contains(&ms), "{ms}");
    batches(&mut limit, Signal::Well, 5_000, 10..120);
    assert_eq!(limit.long_after(), Duration::from_secs(2));
}

#[test]
fn the_reason_is_a_sentence() {
    let cut = LimitReason::Slowed { from_ms: 20, to_ms: 90 };
    assert_eq!(cut.to_string(), "cut because answers slowed from 20 to 90 ms");
    let refused = LimitReason::Refused { addresses: 7, of: 40 };
    assert_eq!(refused.to_string(), "cut because 7 of 40 addresses refused");
}

#[test]
fn refusals_without_any_success_hardly_cut_it() {
    let mut limit = CallLimit::new(100);
    batches(&mut limit, Signal::Well, 20, 0..5);
    batches(&mut limit, Signal::Overloaded, 20, 5..20);
    // The first of them look like a few calls too many beside those that went well just before.
    assert!(limit.limit(at(20_000)) >= 90, "that is for the breaker");
}

#[test]
fn an_origin_that_nobody_got_an_answer_from_keeps_room_for_calls_of_others() {
    let mut limit = CallLimit::new(100);
    (0..12).for_each(|n| limit.expect_end(n, 1, NOW));
    assert_eq!((limit.is_behind(at(2_000)), limit.long_max(at(2_000))), (false, 28));
    assert_eq!(limit.long_max(NOW), usize::MAX, "it does not stand still yet");
}
