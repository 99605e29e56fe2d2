//! Pace and concurrency together against providers as they are: what each can take is found, and not
//! exceeded by much. A model in steps of one millisecond, with no chance in it.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider_core::policy::call_limit::{CallLimit, CallToken};
use postrider_core::policy::pace::Pace;
use postrider_core::policy::throttle::ThrottleSpread;
use postrider_core::{Signal, Timestamp};

const START_MS: i64 = 1_800_000_000_000;
/// What a refusal asks for.
const SECOND: Duration = Duration::from_secs(1);

enum Provider {
    /// So many per calendar second; 429 beyond.
    PerSecond(u32),
    /// So many at once, each taking so long; refused beyond.
    Slots(usize, u64, Signal),
    /// Works off so many per second, in order, and lets the rest wait.
    Queue(u64),
}

struct Run {
    accepted: u32,
    refused: u32,
    in_flight_ms: u64,
    ms: u64,
}

impl Run {
    fn per_s(&self) -> f64 {
        f64::from(self.accepted) * 1_000.0 / self.ms as f64
    }

    fn refused_share(&self) -> f64 {
        f64::from(self.refused) / f64::from(self.accepted + self.refused)
    }

    fn mean_in_flight(&self) -> f64 {
        self.in_flight_ms as f64 / self.ms as f64
    }
}

/// Sends whatever is allowed for `ms`; counts from `from_ms` on.
fn run(provider: &Provider, ceiling: usize, from_ms: u64, ms: u64) -> Run {
    let (mut limit, mut pace) = (CallLimit::new(ceiling), Pace::default());
    let (mut spread, mut paused_until) = (ThrottleSpread::default(), 0);
    let mut ends: BTreeMap<u64, Vec<(Signal, u64, CallToken)>> = BTreeMap::new();
    let (mut in_flight, mut accepted_now, mut address) = (0_usize, 0_usize, 0_u64);
    let (mut second, mut used, mut free_at_us) = (0, 0, 0_u64);
    let mut run = Run { accepted: 0, refused: 0, in_flight_ms: 0, ms: ms - from_ms };
    for t in 0..ms {
        let now = Timestamp(START_MS + t as i64);
        for (signal, began, token) in ends.remove(&t).unwrap_or_default() {
            limit.end(token, signal, (t - began) as u32, in_flight, now);
            pace.report(signal, false, now);
            spread.count(signal, now);
            if signal == Signal::Busy && spread.note(t, SECOND, now).is_some() {
                paused_until = t + 1_000;
            }
            in_flight -= 1;
            accepted_now -= usize::from(signal == Signal::Well);
            let counted = u32::from(t >= from_ms);
            *(if signal == Signal::Well { &mut run.accepted } else { &mut run.refused }) += counted;
        }
        while t >= paused_until && in_flight < limit.limit(now) && pace.available(1, now).is_ok() {
            pace.take(1, now);
            in_flight += 1;
            address += 1;
            let token = limit.start(address, 1, false, (in_flight, in_flight), now);
            let (signal, latency) = match provider {
                Provider::PerSecond(most) => {
                    (second, used) =
                        if second == t / 1_000 { (second, used + 1) } else { (t / 1_000, 1) };
                    if used <= *most { (Signal::Well, 20) } else { (Signal::Busy, 2) }
                }
                Provider::Slots(slots, latency, refusal) => match accepted_now < *slots {
                    true => (Signal::Well, *latency),
                    false => (*refusal, 2),
                },
                Provider::Queue(per_s) => {
                    free_at_us = free_at_us.max(t * 1_000) + 1_000_000 / per_s;
                    (Signal::Well, (free_at_us / 1_000).saturating_sub(t) + 20)
                }
            };
            accepted_now += usize::from(signal == Signal::Well);
            ends.entry(t + latency.max(1)).or_default().push((signal, t, token));
        }
        run.in_flight_ms += accepted_now as u64 * u64::from(t >= from_ms);
    }
    run
}

#[test]
fn a_provider_that_allows_so_many_per_second_gets_nearly_all_of_them_with_few_refusals() {
    for (limit, at_least) in [(10, 0.95), (100, 0.95), (500, 0.95), (2_000, 0.9)] {
        let run = run(&Provider::PerSecond(limit), 100, 30_000, 150_000);
        let (per_s, refused) = (run.per_s(), run.refused_share());
        assert!(per_s >= at_least * f64::from(limit), "{per_s:.1} of {limit} per second");
        assert!(refused < 0.05, "{:.1} % refused at {limit} per second", refused * 100.0);
    }
}

#[test]
fn a_provider_with_so_many_slots_has_them_nearly_all_in_use() {
    for (slots, latency) in [(1, 50), (5, 50), (5, 200), (20, 100), (60, 40)] {
        for refusal in [Signal::Busy, Signal::Overloaded] {
            let run = run(&Provider::Slots(slots, latency, refusal), 100, 30_000, 120_000);
            let (used, refused) = (run.mean_in_flight(), run.refused_share());
            assert!(
                used >= 0.9 * slots as f64,
                "{used:.2} of {slots} at {latency} ms, {refusal:?}"
            );
            assert!(refused < 0.1, "{:.1} % refused of {slots}, {refusal:?}", refused * 100.0);
        }
    }
}

#[test]
fn a_provider_that_lets_calls_wait_is_kept_busy_and_not_buried() {
    for per_s in [50, 500] {
        let run = run(&Provider::Queue(per_s), 500, 30_000, 90_000);
        assert!(run.per_s() >= 0.9 * per_s as f64, "{} of {per_s}", run.per_s());
        let waiting_s = run.mean_in_flight() / per_s as f64;
        assert!(waiting_s < 0.5, "calls wait for {waiting_s:.2} s at {per_s} per second");
    }
}

#[test]
fn a_provider_that_takes_more_than_before_gets_more_before_long() {
    let mut pace = Pace::default();
    let limit_from = |pace: &mut Pace, from_ms: i64, to_ms: i64, limit: u32| {
        let (mut used, mut accepted) = (0, 0);
        for t in from_ms..to_ms {
            let now = Timestamp(START_MS + t);
            used = if t % 1_000 == 0 { 0 } else { used };
            while pace.available(1, now).is_ok() && used < 3 * limit {
                pace.take(1, now);
                used += 1;
                let well = used <= limit;
                accepted += u32::from(well);
                pace.report(if well { Signal::Well } else { Signal::Busy }, false, now);
            }
        }
        accepted
    };
    limit_from(&mut pace, 0, 20_000, 100);
    assert!(pace.per_s().unwrap_or(0.0) < 110.0);
    let later = Duration::from_secs(120).as_millis() as i64;
    limit_from(&mut pace, 20_000, later, 1_000);
    let then = limit_from(&mut pace, later, later + 10_000, 1_000);
    assert!(then >= 9_000, "{then} in ten seconds");
}
