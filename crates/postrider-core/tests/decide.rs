//! What follows from each outcome, line by line.

use std::time::Duration;

use postrider_core::model::class::{OnAmbiguous, OnExpiry, WhenOpen};
use postrider_core::model::decision::Decision;
use postrider_core::policy::backoff::{Jitter, RetryPolicy};
use postrider_core::policy::decide::{
    AttemptProgress, AttemptTimes, CRASHES_MAX, DeliveryRules, LeaseHistory, MAX_REPLAYS, PARK,
    before_attempt, decide, when_shut,
};
use postrider_core::policy::ttl;
use postrider_core::{DeadReason, Outcome, Scope, Timestamp};

const NOW: Timestamp = Timestamp(1_794_722_400_000);
const RETRY: Outcome = Outcome::RetryBackoff { at_least: Duration::ZERO };
const EVERYTHING: [Outcome; 11] = [
    Outcome::Accepted,
    RETRY,
    Outcome::RetryAfter { after: Duration::from_secs(60), scope: Scope::Target },
    Outcome::Gone,
    Outcome::DropMessage,
    Outcome::Config,
    Outcome::ResignOnce,
    Outcome::Reconnect,
    Outcome::SwitchAccount,
    Outcome::Ambiguous,
    Outcome::Expired,
];

/// No jitter: 2, 4, 8, 16, 32 s.
fn policy() -> RetryPolicy {
    RetryPolicy { jitter: Jitter::None, ..RetryPolicy::default() }
}

fn rules(retry: &RetryPolicy) -> DeliveryRules<'_> {
    DeliveryRules {
        retry,
        on_ambiguous: OnAmbiguous::Resend,
        shows_repeats: false,
        on_expiry: OnExpiry::DeadLetter,
        is_one_shot: false,
        expires_at: NOW + Duration::from_secs(3600),
        times: Default::default(),
    }
}

#[test]
fn an_operator_may_set_how_long_work_is_parked_and_how_many_crashes_are_too_many() {
    let policy = policy();
    let times = AttemptTimes { park: Duration::from_secs(7), crashes_max: 1 };
    let own = DeliveryRules { times, ..rules(&policy) };
    let history = LeaseHistory { crashes: 1, started: false };
    let progress = AttemptProgress { attempts: 1, ..AttemptProgress::default() };
    let found = before_attempt(history, &progress, &own, NOW, 0.5);
    assert_eq!(found, Some(Decision::DeadLetter(DeadReason::Poison)));
    let doubted = AttemptProgress { doubted: true, ..progress };
    let found = decide(&Outcome::Gone, &doubted, &own, NOW, 0.5);
    assert_eq!(found, Decision::Park { after: Duration::from_secs(7) });
}

fn with_ttl<'a>(retry: &'a RetryPolicy, ms: u64) -> DeliveryRules<'a> {
    DeliveryRules { expires_at: NOW + Duration::from_millis(ms), ..rules(retry) }
}

fn now_or_never(retry: &RetryPolicy) -> DeliveryRules<'_> {
    DeliveryRules { is_one_shot: true, ..with_ttl(retry, 10_000) }
}

fn after(attempts: u32) -> AttemptProgress {
    AttemptProgress { attempts, ..AttemptProgress::default() }
}

fn retry(secs: u64) -> Decision {
    Decision::Retry { after: Duration::from_secs(secs), counted: true }
}

fn dead(reason: DeadReason) -> Decision {
    Decision::DeadLetter(reason)
}

#[test]
fn plain_ends_are_ends() {
    let policy = policy();
    let of = |outcome| decide(&outcome, &after(1), &rules(&policy), NOW, 0.5);
    assert_eq!(of(Outcome::Accepted), Decision::Done);
    assert_eq!(of(Outcome::Gone), Decision::MarkGone);
    assert_eq!(of(Outcome::DropMessage), dead(DeadReason::Permanent));
}

#[test]
fn retries_follow_the_policy_until_it_ends() {
    let policy = policy();
    let waits: Vec<_> =
        (1..=6).map(|n| decide(&RETRY, &after(n), &rules(&policy), NOW, 0.5)).collect();
    let expected =
        [retry(2), retry(4), retry(8), retry(16), retry(32), dead(DeadReason::RetriesExhausted)];
    assert_eq!(waits, expected);
}

#[test]
fn a_providers_minimum_wait_is_kept() {
    let policy = policy();
    let at_least = |secs| Outcome::RetryBackoff { at_least: Duration::from_secs(secs) };
    assert_eq!(decide(&at_least(10), &after(1), &rules(&policy), NOW, 0.5), retry(10));
    assert_eq!(decide(&at_least(10), &after(5), &rules(&policy), NOW, 0.5), retry(32));
}

#[test]
fn retry_after_replaces_the_formula_and_counts() {
    let policy = policy();
    let told = Outcome::RetryAfter { after: Duration::from_secs(1), scope: Scope::Host };
    assert_eq!(decide(&told, &after(5), &rules(&policy), NOW, 0.0), retry(1));
    let exhausted = dead(DeadReason::RetriesExhausted);
    assert_eq!(decide(&told, &after(6), &rules(&policy), NOW, 0.0), exhausted);
}

#[test]
fn those_who_were_told_the_same_time_come_up_to_a_quarter_later_and_never_too_late() {
    let policy = policy();
    let told = Outcome::RetryAfter { after: Duration::from_secs(60), scope: Scope::Host };
    let wait =
        |rules: &DeliveryRules<'_>, random| match decide(&told, &after(1), rules, NOW, random) {
            Decision::Retry { after, .. } => after.as_millis(),
            other => panic!("{other:?}"),
        };
    let waits = |rules| [0.0, 0.5, 1.0].map(|random| wait(&rules, random));
    assert_eq!(waits(rules(&policy)), [60_000, 67_500, 75_000]);
    assert_eq!(waits(with_ttl(&policy, 62_000)), [60_000, 60_500, 61_000]);
}

#[test]
fn a_retry_at_the_deadline_is_too_late_and_before_it_is_not() {
    let policy = policy();
    assert_eq!(
        decide(&RETRY, &after(1), &with_ttl(&policy, 2000), NOW, 0.5),
        dead(DeadReason::Ttl)
    );
    assert_eq!(decide(&RETRY, &after(1), &with_ttl(&policy, 2001), NOW, 0.5), retry(2));
    let told = Outcome::RetryAfter { after: Duration::from_secs(60), scope: Scope::Target };
    let short = with_ttl(&policy, 60_000);
    assert_eq!(decide(&told, &after(1), &short, NOW, 0.5), dead(DeadReason::Ttl));
    let quiet = DeliveryRules { on_expiry: OnExpiry::Expire, ..short };
    assert_eq!(decide(&told, &after(1), &quiet, NOW, 0.5), Decision::Expire);
}

#[test]
fn now_or_never_is_one_attempt_and_free_replays() {
    let policy = policy();
    for outcome in [RETRY, EVERYTHING[2].clone(), Outcome::Config, Outcome::Ambiguous] {
        let found = decide(&outcome, &after(1), &now_or_never(&policy), NOW, 0.5);
        assert_eq!(found, dead(DeadReason::Ttl), "{}", outcome.name());
    }
    let of = |outcome| decide(&outcome, &after(1), &now_or_never(&policy), NOW, 0.5);
    assert_eq!(of(Outcome::Reconnect), Decision::Again { resign: false });
    assert_eq!(of(Outcome::SwitchAccount), Decision::Again { resign: false });
    assert_eq!(of(Outcome::ResignOnce), Decision::Again { resign: true });
    let replayed = AttemptProgress { replays: MAX_REPLAYS, ..after(1) };
    let end = decide(&Outcome::Reconnect, &replayed, &now_or_never(&policy), NOW, 0.5);
    assert_eq!(end, dead(DeadReason::Ttl));
}

#[test]
fn a_replay_gives_now_or_never_the_time_that_it_names() {
    let policy = policy();
    let message_expires_at = NOW + ttl::DISPATCH_WINDOW;
    let replayed = rules(&policy);
    let is_one_shot = ttl::is_one_shot(0, message_expires_at, replayed.expires_at, NOW);
    let replayed = DeliveryRules { is_one_shot, ..replayed };
    assert_eq!(decide(&RETRY, &after(1), &replayed, NOW, 0.5), retry(2));
}

#[test]
fn a_credential_problem_parks_and_burns_nothing() {
    let policy = policy();
    let parked = Decision::Park { after: PARK };
    for attempts in [1, 6, 100] {
        let found = decide(&Outcome::Config, &after(attempts), &rules(&policy), NOW, 0.5);
        assert_eq!(found, parked);
    }
    let short = with_ttl(&policy, PARK.as_millis() as u64);
    assert_eq!(decide(&Outcome::Config, &after(1), &short, NOW, 0.5), dead(DeadReason::Ttl));
}

#[test]
fn a_stale_token_is_renewed_once() {
    let policy = policy();
    let first = decide(&Outcome::ResignOnce, &after(1), &rules(&policy), NOW, 0.5);
    assert_eq!(first, Decision::Again { resign: true });
    let resigned = AttemptProgress { resigned: true, ..after(1) };
    let second = decide(&Outcome::ResignOnce, &resigned, &rules(&policy), NOW, 0.5);
    assert_eq!(second, Decision::Park { after: PARK });
}

#[test]
fn a_switch_of_accounts_is_as_free_and_as_bounded_as_a_reconnect() {
    let policy = policy();
    for replays in 0..=MAX_REPLAYS {
        let progress = AttemptProgress { replays, ..after(6) };
        let of = |outcome| decide(&outcome, &progress, &rules(&policy), NOW, 0.5);
        assert_eq!(of(Outcome::SwitchAccount), of(Outcome::Reconnect));
    }
}

#[test]
fn what_was_not_processed_is_replayed_free_then_rests() {
    let policy = policy();
    for replays in 0..MAX_REPLAYS {
        let progress = AttemptProgress { replays, ..after(6) };
        let found = decide(&Outcome::Reconnect, &progress, &rules(&policy), NOW, 0.5);
        assert_eq!(found, Decision::Again { resign: false });
    }
    let progress = AttemptProgress { replays: MAX_REPLAYS, ..after(6) };
    let rest = Decision::Retry { after: Duration::from_secs(64), counted: false };
    assert_eq!(decide(&Outcome::Reconnect, &progress, &rules(&policy), NOW, 0.5), rest);
    let eager = RetryPolicy::default();
    let rest = Decision::Retry { after: Duration::from_secs(1), counted: false };
    let found = decide(&Outcome::Reconnect, &progress, &rules(&eager), NOW, 0.0);
    assert_eq!(found, rest, "full jitter may roll nothing; a free retry must not spin");
}

#[test]
fn doubt_is_resolved_as_the_class_says() {
    let policy = policy();
    assert_eq!(decide(&Outcome::Ambiguous, &after(1), &rules(&policy), NOW, 0.5), retry(2));
    let careful = DeliveryRules { on_ambiguous: OnAmbiguous::Park, ..rules(&policy) };
    let found = decide(&Outcome::Ambiguous, &after(1), &careful, NOW, 0.5);
    assert_eq!(found, dead(DeadReason::Ambiguous));
    let quiet = DeliveryRules { on_ambiguous: OnAmbiguous::Drop, ..rules(&policy) };
    assert_eq!(decide(&Outcome::Ambiguous, &after(1), &quiet, NOW, 0.5), Decision::Drop);
}

#[test]
fn while_a_provider_is_down_no_attempt_is_used_up_and_nothing_with_time_left_dies() {
    let policy = policy();
    let excused = |attempts| AttemptProgress { excused: true, ..after(attempts) };
    let of = |outcome: &Outcome, rules: &DeliveryRules<'_>| {
        decide(outcome, &excused(6), rules, NOW, 0.5)
    };
    let free = |secs| Decision::Retry { after: Duration::from_secs(secs), counted: false };
    assert_eq!(of(&RETRY, &rules(&policy)), free(64), "its policy was exhausted");
    assert_eq!(of(&Outcome::Ambiguous, &rules(&policy)), free(64));
    let wait = Outcome::RetryAfter { after: Duration::from_secs(90), scope: Scope::Host };
    assert_eq!(decide(&wait, &excused(6), &rules(&policy), NOW, 0.0), free(90));
    assert_eq!(of(&RETRY, &with_ttl(&policy, 20_000)), free(10), "the formula ends nothing");
    assert_eq!(of(&wait, &with_ttl(&policy, 20_000)), dead(DeadReason::Ttl), "the provider does");
    assert_eq!(of(&RETRY, &now_or_never(&policy)), dead(DeadReason::Ttl));
    let careful = DeliveryRules { on_ambiguous: OnAmbiguous::Park, ..rules(&policy) };
    assert_eq!(of(&Outcome::Ambiguous, &careful), dead(DeadReason::Ambiguous));
    let once = RetryPolicy { retries: 0, ..policy.clone() };
    let found = decide(&RETRY, &excused(1), &rules(&once), NOW, 0.5);
    assert_eq!(found, dead(DeadReason::RetriesExhausted), "no retry is no retry");
}

#[test]
fn an_address_among_too_many_that_are_called_gone_stays() {
    let policy = policy();
    let doubted = AttemptProgress { doubted: true, ..after(1) };
    let found = decide(&Outcome::Gone, &doubted, &rules(&policy), NOW, 0.5);
    assert_eq!(found, Decision::Park { after: PARK });
    let found = decide(&Outcome::Gone, &doubted, &with_ttl(&policy, 1_000), NOW, 0.5);
    assert_eq!(found, dead(DeadReason::Ttl));
}

#[test]
fn what_crashes_left_behind_is_looked_at_before_another_attempt() {
    let policy = policy();
    let before = |past, rules: &DeliveryRules<'_>| before_attempt(past, &after(1), rules, NOW, 0.5);
    let careful = DeliveryRules { on_ambiguous: OnAmbiguous::Park, ..rules(&policy) };
    let started = LeaseHistory { started: true, crashes: 1 };
    assert_eq!(before(LeaseHistory::default(), &careful), None);
    assert_eq!(before(started, &careful), Some(dead(DeadReason::Ambiguous)));
    let over = DeliveryRules { expires_at: NOW, ..careful };
    assert_eq!(before(started, &over), Some(dead(DeadReason::Ambiguous)), "it may have arrived");
    assert_eq!(before(LeaseHistory::default(), &over), Some(Decision::Expire));
    let crashed = |crashes| LeaseHistory { crashes, started: false };
    assert_eq!(before(crashed(CRASHES_MAX - 1), &rules(&policy)), None);
    assert_eq!(before(crashed(CRASHES_MAX), &rules(&policy)), Some(dead(DeadReason::Poison)));
    assert_eq!(before(crashed(9), &over), Some(Decision::Expire));
}

#[test]
fn a_young_address_is_asked_again_before_it_is_called_gone() {
    let policy = policy();
    let aged = |attempts, secs| AttemptProgress {
        address_age: Some(Duration::from_secs(secs)),
        ..after(attempts)
    };
    let of = |progress| decide(&Outcome::Gone, &progress, &rules(&policy), NOW, 0.5);
    for attempts in 1..=3 {
        assert_eq!(of(aged(attempts, 59)), retry(2));
    }
    assert_eq!(of(aged(4, 59)), Decision::MarkGone);
    assert_eq!(of(aged(1, 60)), Decision::MarkGone);
    let found = decide(&Outcome::Gone, &aged(1, 1), &now_or_never(&policy), NOW, 0.5);
    assert_eq!(found, dead(DeadReason::Ttl), "no time to be sure: the address stays");
}

#[test]
fn expired_untried_just_expires_and_expired_in_retry_is_a_dead_letter() {
    let policy = policy();
    assert_eq!(decide(&Outcome::Expired, &after(1), &rules(&policy), NOW, 0.5), Decision::Expire);
    let tried = decide(&Outcome::Expired, &after(2), &rules(&policy), NOW, 0.5);
    assert_eq!(tried, dead(DeadReason::Ttl));
    let quiet = DeliveryRules { on_expiry: OnExpiry::Expire, ..rules(&policy) };
    assert_eq!(decide(&Outcome::Expired, &after(2), &quiet, NOW, 0.5), Decision::Expire);
}

#[test]
fn after_the_deadline_nothing_is_tried_again() {
    let policy = policy();
    for outcome in EVERYTHING {
        for late_ms in [0, 1, 1_000_000] {
            let now = NOW + Duration::from_millis(late_ms);
            let over = DeliveryRules { expires_at: NOW, ..rules(&policy) };
            let found = decide(&outcome, &after(1), &over, now, 0.0);
            let is_end = matches!(
                found,
                Decision::Done | Decision::Expire | Decision::DeadLetter(_) | Decision::MarkGone
            );
            assert!(is_end, "{} → {found:?}", outcome.name());
        }
    }
}

#[test]
fn a_mail_or_text_in_doubt_is_repeated_once_and_not_soon() {
    let policy = policy();
    let seen = DeliveryRules { shows_repeats: true, ..rules(&policy) };
    let ask = |attempts| {
        let progress = AttemptProgress { attempts, excused: true, ..AttemptProgress::default() };
        decide(&Outcome::Ambiguous, &progress, &seen, NOW, 0.5)
    };
    assert_eq!(ask(1), Decision::Retry { after: Duration::from_secs(60), counted: true });
    assert_eq!(ask(2), Decision::DeadLetter(DeadReason::Ambiguous));
}

#[test]
fn while_a_breaker_is_open_a_class_waits_refuses_or_goes_elsewhere() {
    let soon = Duration::from_secs(7);
    let wait = Decision::Park { after: soon };
    assert_eq!(when_shut(WhenOpen::Reject, true, soon), dead(DeadReason::Refused));
    assert_eq!(when_shut(WhenOpen::FallBack, true, soon), Decision::FallBack);
    assert_eq!(when_shut(WhenOpen::FallBack, false, soon), wait, "nowhere to go");
    assert_eq!(when_shut(WhenOpen::Wait, true, soon), wait);
}

#[test]
fn a_bounded_refusal_ends_as_refused_for_good_and_not_as_exhausted() {
    let policy = policy();
    let rules = rules(&policy);
    let hour = Outcome::RetryBackoff { at_least: Duration::from_secs(60) };
    let said = |attempts, most| {
        let progress = AttemptProgress { retries_max: most, ..after(attempts) };
        decide(&hour, &progress, &rules, NOW, 0.5)
    };
    assert_eq!(said(1, Some(1)), retry(60));
    assert_eq!(said(2, Some(1)), dead(DeadReason::Permanent));
    assert_eq!(said(1, Some(0)), dead(DeadReason::Permanent));
    assert_eq!(said(5, Some(9)), retry(60));
    assert_eq!(said(6, Some(9)), dead(DeadReason::Permanent), "the class allows five");
    assert_eq!(said(6, None), dead(DeadReason::RetriesExhausted));
}

#[test]
fn an_outage_does_not_use_up_the_retries_of_a_bounded_refusal() {
    let policy = policy();
    let progress = AttemptProgress { retries_max: Some(1), excused: true, ..after(4) };
    let decision = decide(&RETRY, &progress, &rules(&policy), NOW, 0.5);
    assert!(matches!(decision, Decision::Retry { counted: false, .. }), "{decision:?}");
}
