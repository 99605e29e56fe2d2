//! What holds for every policy, every outcome and every roll of the dice.

use std::time::Duration;

use postrider_core::model::class::{OnAmbiguous, OnExpiry};
use postrider_core::model::decision::Decision;
use postrider_core::policy::backoff::{BackoffKind, Jitter, RetryPolicy};
use postrider_core::policy::decide::{AttemptProgress, DeliveryRules, decide};
use postrider_core::{Outcome, Scope, State, Timestamp, policy::retry_after, policy::ttl};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp(1_794_722_400_000);

fn jitter() -> impl Strategy<Value = Jitter> {
    prop::sample::select(vec![
        Jitter::None,
        Jitter::Additive,
        Jitter::Proportional,
        Jitter::Full,
        Jitter::Doubling,
        Jitter::Equal,
        Jitter::Decorrelated,
    ])
}

fn kind() -> impl Strategy<Value = BackoffKind> {
    prop::sample::select(vec![
        BackoffKind::Exponential,
        BackoffKind::Linear,
        BackoffKind::Fixed,
        BackoffKind::Schedule,
    ])
}

/// Valid policies, and with them a good many odd ones.
fn policy() -> impl Strategy<Value = RetryPolicy> {
    let numbers = (0u32..12, 1u64..200_000, 1.0f64..20.0, 0u64..2_000_000);
    (numbers, kind(), jitter(), prop::collection::vec(0u64..4_000_000, 0..6)).prop_map(
        |((retries, base_ms, factor, above), kind, jitter, schedule_ms)| RetryPolicy {
            retries,
            base_ms,
            factor,
            cap_ms: base_ms + above,
            kind,
            jitter,
            schedule_ms: if kind == BackoffKind::Schedule { schedule_ms } else { Vec::new() },
            ..RetryPolicy::default()
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let wait = (0u64..4_000_000).prop_map(Duration::from_millis);
    let scope = prop::sample::select(vec![Scope::Target, Scope::Credential, Scope::Host]);
    prop_oneof![
        wait.clone().prop_map(|at_least| Outcome::RetryBackoff { at_least }),
        (wait, scope).prop_map(|(after, scope)| Outcome::RetryAfter { after, scope }),
        prop::sample::select(vec![
            Outcome::Accepted,
            Outcome::Gone,
            Outcome::DropMessage,
            Outcome::Config,
            Outcome::ResignOnce,
            Outcome::Reconnect,
            Outcome::SwitchAccount,
            Outcome::Ambiguous,
            Outcome::Expired,
        ]),
    ]
}

fn progress() -> impl Strategy<Value = AttemptProgress> {
    let age = prop::option::of((0u64..200_000).prop_map(Duration::from_millis));
    let most = prop::option::of(0u32..8);
    (1u32..15, 0u64..200_000, any::<[bool; 3]>(), 0u32..6, age, most).prop_map(
        |(attempts, last_ms, [resigned, excused, doubted], replays, address_age, retries_max)| {
            AttemptProgress {
                attempts,
                last_delay: Duration::from_millis(last_ms),
                resigned,
                replays,
                address_age,
                excused,
                doubted,
                retries_max,
            }
        },
    )
}

fn rules<'a>(retry: &'a RetryPolicy, ttl_s: u32, park: bool, expire: bool) -> DeliveryRules<'a> {
    DeliveryRules {
        retry,
        on_ambiguous: if park { OnAmbiguous::Park } else { OnAmbiguous::Resend },
        shows_repeats: false,
        on_expiry: if expire { OnExpiry::Expire } else { OnExpiry::DeadLetter },
        is_one_shot: ttl_s == 0,
        expires_at: ttl::expires_at(NOW, None, ttl_s, ttl::DISPATCH_WINDOW),
        times: Default::default(),
    }
}

/// The least and the most that a policy's wait may be, in milliseconds.
fn bounds(p: &RetryPolicy, retry: u32, previous_ms: f64) -> (f64, f64) {
    let base = p.base_ms as f64;
    let grown = match p.kind {
        BackoffKind::Exponential => base * p.factor.powf(f64::from(retry - 1)),
        BackoffKind::Linear => base * f64::from(retry),
        BackoffKind::Fixed => base,
        BackoffKind::Schedule => {
            let nth = (retry as usize - 1).min(p.schedule_ms.len().saturating_sub(1));
            p.schedule_ms.get(nth).map_or(base, |&ms| ms as f64)
        }
    };
    let cap = if p.kind == BackoffKind::Schedule { f64::INFINITY } else { p.cap_ms as f64 };
    let d = grown.min(cap);
    match p.jitter {
        Jitter::None => (d, d),
        Jitter::Additive => (d, (d + 1000.0).min(cap)),
        Jitter::Proportional => (d, d * 1.3),
        Jitter::Full => (0.0, d),
        Jitter::Doubling => (d, d * 2.0),
        Jitter::Equal => (d, d + base),
        Jitter::Decorrelated => (base.min(cap), (3.0 * previous_ms).max(base).min(cap)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn a_delay_is_within_the_bounds_of_its_jitter(
        p in policy(), retry in 1u32..200, previous_ms in 0u64..1_000_000, random in 0.0f64..1.0,
    ) {
        let found = p.delay(retry, Duration::from_millis(previous_ms), random).as_millis() as f64;
        let (low, high) = bounds(&p, retry, previous_ms as f64);
        prop_assert!(low - 1.0 <= found && found <= high + 1.0, "{low} ≤ {found} ≤ {high}");
    }

    #[test]
    fn no_policy_and_no_roll_breaks_the_arithmetic(
        retry in any::<u32>(), numbers in any::<(u64, f64, u64)>(), kind in kind(),
        jitter in jitter(), schedule_ms in prop::collection::vec(any::<u64>(), 0..3),
        previous_ms in any::<u64>(), random in any::<f64>(),
    ) {
        let (base_ms, factor, cap_ms) = numbers;
        let usual = RetryPolicy::default();
        let p = RetryPolicy { retries: retry, base_ms, factor, cap_ms, kind, jitter, schedule_ms, ..usual };
        let _ = p.delay(retry, Duration::from_millis(previous_ms), random);
        let _ = p.validate();
    }

    #[test]
    fn no_decision_crosses_the_ttl(
        o in outcome(), prog in progress(), p in policy(), ttl_s in 0u32..7200,
        park in any::<bool>(), expire in any::<bool>(), elapsed_ms in 0u64..7_300_000, random in 0.0f64..1.0,
    ) {
        let rules = rules(&p, ttl_s, park, expire);
        let now = NOW + Duration::from_millis(elapsed_ms);
        match decide(&o, &prog, &rules, now, random) {
            Decision::Retry { after, .. } | Decision::Park { after } => {
                prop_assert!(now + after < rules.expires_at);
                prop_assert!(ttl_s > 0, "now or never is never retried");
            }
            Decision::Again { .. } => prop_assert!(now < rules.expires_at),
            _ => {}
        }
    }

    #[test]
    fn no_more_calls_are_counted_than_the_policy_allows(
        outcomes in prop::collection::vec(outcome(), 40), p in policy(), random in 0.0f64..1.0,
    ) {
        let rules = rules(&p, ttl::MAX_S, false, false);
        let (mut counted, mut now, mut last_delay) = (0, NOW, Duration::ZERO);
        for o in outcomes {
            let prog = AttemptProgress { attempts: counted + 1, last_delay, ..AttemptProgress::default() };
            match decide(&o, &prog, &rules, now, random) {
                Decision::Retry { after, counted: c } => {
                    counted += u32::from(c);
                    now = now + after;
                    last_delay = after;
                }
                Decision::Park { after } => now = now + after,
                Decision::Again { .. } => {}
                _ => break,
            }
            prop_assert!(counted <= p.retries);
        }
    }

    #[test]
    fn a_life_ends(
        seed in prop::collection::vec((outcome(), 0.0f64..1.0), 1..8), p in policy(),
        [excused, doubted] in any::<[bool; 2]>(),
    ) {
        // Whatever a provider answers, over and over, every life is bounded by its TTL.
        let rules = rules(&p, 3600, false, false);
        let (mut attempts, mut now, mut replays, mut resigned) = (1, NOW, 0, false);
        let mut calls = 0;
        for (o, random) in seed.iter().cycle() {
            calls += 1;
            prop_assert!(calls < 50_000, "an endless life");
            let prog =
                AttemptProgress { attempts, replays, resigned, excused, doubted, ..AttemptProgress::default() };
            match decide(o, &prog, &rules, now, *random) {
                Decision::Retry { after, counted } => {
                    attempts += u32::from(counted);
                    now = now + after;
                    (replays, resigned) = (0, false);
                }
                Decision::Park { after } => {
                    now = now + after;
                    (replays, resigned) = (0, false);
                }
                Decision::Again { resign } => {
                    resigned |= resign;
                    replays += u32::from(!resign);
                }
                _ => return Ok(()),
            }
        }
    }

    #[test]
    fn a_wait_that_a_provider_asks_for_is_never_shortened(
        scope in prop::sample::select(vec![Scope::Target, Scope::Credential, Scope::Host]),
        secs in 0u64..100_000, p in policy(), random in 0.0f64..1.0,
    ) {
        let after = Duration::from_secs(secs);
        let rules = rules(&p, ttl::MAX_S, false, false);
        let prog = AttemptProgress { attempts: 1, ..AttemptProgress::default() };
        let asked = Outcome::RetryAfter { after, scope };
        if let Decision::Retry { after: waits, .. } = decide(&asked, &prog, &rules, NOW, random) {
            prop_assert!(waits >= after);
        }
    }

    #[test]
    fn retry_after_survives_any_text(text in ".*", now in any::<i64>()) {
        let _ = retry_after::parse(&text, Timestamp(now));
    }

    #[test]
    fn retry_after_survives_almost_dates(
        text in "(Sun|Sunday|Xxx)(, | )[0-9A-Z]{1,2}[ -](Nov|Feb|nov|Foo)[ -][0-9]{1,6} [0-9]{1,2}:[0-9]{2}:[0-9]{2} ?(GMT|UTC|[0-9]{4})?",
        now in any::<i64>(),
    ) {
        if let Some(wait) = retry_after::parse(&text, Timestamp(now)) {
            prop_assert!(wait <= retry_after::LONGEST);
        }
    }

    #[test]
    fn the_ttl_on_the_wire_never_outlives_the_message(
        ttl_s in 0..=ttl::MAX_S, elapsed_ms in 0u64..3_000_000_000,
    ) {
        let expires_at = ttl::expires_at(NOW, None, ttl_s, ttl::DISPATCH_WINDOW);
        let now = NOW + Duration::from_millis(elapsed_ms);
        let left = ttl::remaining_s(ttl_s == 0, expires_at, now);
        prop_assert!(left <= ttl_s);
        let kept_until = now + Duration::from_secs(u64::from(left));
        prop_assert!(kept_until <= expires_at.max(now));
    }
}

#[test]
fn what_a_provider_accepted_is_never_queued_again() {
    let mut reached = vec![State::Sent];
    let mut next = 0;
    while let Some(&from) = reached.get(next) {
        for &to in State::ALL.iter().filter(|to| from.can_become(**to)) {
            assert!(to.is_final(), "sent → … → {from} → {to}");
            if !reached.contains(&to) {
                reached.push(to);
            }
        }
        next += 1;
    }
}

#[test]
fn states_only_move_forward_save_by_replay() {
    let states = State::ALL;
    for &a in states {
        assert!(a.can_become(a), "transitions are idempotent");
        for &b in states.iter().filter(|&&b| b != a) {
            let working = a.is_pending() && b.is_pending();
            let replay = (a, b) == (State::Failed, State::Queued);
            let back = b.can_become(a) && (b, a) != (State::Failed, State::Queued);
            if a.can_become(b) && !working && !replay {
                assert!(!back, "{a} ↔ {b}");
            }
        }
    }
    // Acyclic among the final states: follow every path, counting its steps.
    fn longest_path(from: State, steps: usize) -> usize {
        assert!(steps <= State::ALL.len(), "a cycle through {from}");
        let next =
            State::ALL.iter().filter(|s| s.is_final() && **s != from && from.can_become(**s));
        next.map(|&s| longest_path(s, steps + 1)).max().unwrap_or(steps)
    }
    for &state in states.iter().filter(|s| s.is_final()) {
        assert!(longest_path(state, 0) <= 4, "sent → delivered → seen → clicked is the longest");
    }
}
