//! What becomes of a delivery once it is leased, outcome by outcome.

use std::time::Duration;

use postrider_core::{Class, DeadReason, Outcome, Scope, State};
use postrider_dispatch::DispatchLimits;

use crate::fixture::{DispatchFixture, ObservedEvent, WEBHOOK};

fn busy() -> Option<Outcome> {
    Some(Outcome::RetryBackoff { at_least: Duration::ZERO })
}

#[tokio::test]
async fn an_accepted_message_is_sent_once_and_recorded() {
    let mut fixture = DispatchFixture::new(vec![]);
    fixture.start().await;
    let id = fixture.webhook("").await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    let delivery = fixture.delivery(id).await;
    assert_eq!((delivery.state, delivery.attempts, delivery.log.len()), (State::Sent, 1, 1));
    assert_eq!(delivery.log[0].outcome.name(), "accepted");
    assert_eq!(fixture.calls(), 1);
}

#[tokio::test]
async fn a_retry_comes_soon_after_the_time_that_was_asked_for_and_not_before() {
    let after = Duration::from_secs(30);
    let mut fixture =
        DispatchFixture::new(vec![Some(Outcome::RetryAfter { after, scope: Scope::Target })]);
    fixture.start().await;
    let id = fixture.webhook("").await;
    let waiting = fixture.becomes(id, State::Retrying).await;
    let wait = waiting.due_at.unwrap().since(fixture.now());
    assert!((after..=after * 5 / 4).contains(&wait), "{wait:?}");
    fixture.clock.advance(wait - Duration::from_millis(1));
    tokio::task::yield_now().await;
    assert_eq!(fixture.calls(), 1);
    fixture.clock.advance(Duration::from_millis(1));
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(fixture.calls(), 2);
}

#[tokio::test]
async fn a_delivery_past_its_ttl_is_never_sent() {
    let mut fixture = DispatchFixture::new(vec![]);
    let id = fixture.webhook(r#","ttl_s":60"#).await;
    fixture.clock.advance(Duration::from_secs(60));
    fixture.start().await;
    assert_eq!(fixture.finished().await, (State::Expired, None));
    assert_eq!(fixture.calls(), 0);
    assert!(fixture.delivery(id).await.log.is_empty());
}

#[tokio::test]
async fn a_retry_that_would_come_after_the_ttl_is_a_dead_letter() {
    let after = Duration::from_secs(600);
    let mut fixture =
        DispatchFixture::new(vec![Some(Outcome::RetryAfter { after, scope: Scope::Target })]);
    fixture.start().await;
    fixture.webhook(r#","ttl_s":60"#).await;
    assert_eq!(fixture.finished().await, (State::Failed, Some(DeadReason::Ttl)));
    assert_eq!(fixture.calls(), 1);
}

#[tokio::test]
async fn retries_end_when_the_policy_says_so() {
    let mut fixture = DispatchFixture::new(vec![busy(), busy(), busy(), busy()]);
    fixture.start().await;
    let id = fixture.webhook(r#","retry":{"retries":2,"jitter":"none","base_ms":1000}"#).await;
    for _ in 0..2 {
        while !matches!(fixture.event().await, ObservedEvent::Attempted(..)) {}
        let waiting = fixture.becomes(id, State::Retrying).await;
        fixture.clock.set(waiting.due_at.unwrap());
    }
    assert_eq!(fixture.finished().await, (State::Failed, Some(DeadReason::RetriesExhausted)));
    assert_eq!(fixture.delivery(id).await.attempts, 3);
}

#[tokio::test]
async fn a_stale_token_is_renewed_once_and_then_the_work_is_parked_without_burning_attempts() {
    let mut fixture =
        DispatchFixture::new(vec![Some(Outcome::ResignOnce), Some(Outcome::ResignOnce)]);
    fixture.start().await;
    let id = fixture.webhook("").await;
    let parked = fixture.becomes(id, State::Parked).await;
    assert_eq!(parked.attempts, 0);
    let resigns: Vec<_> = fixture.channel.calls.lock().unwrap().iter().map(|a| a.resign).collect();
    assert_eq!(resigns, [false, true]);
    let log: Vec<_> = parked.log.iter().map(|a| (a.number, a.decision.name())).collect();
    assert_eq!(log, [(1, "again"), (2, "park")]);
    fixture.clock.set(parked.due_at.unwrap());
    assert_eq!(fixture.finished().await, (State::Sent, None));
}

#[tokio::test]
async fn what_the_provider_did_not_process_is_replayed_at_once_and_free() {
    let mut fixture =
        DispatchFixture::new(vec![Some(Outcome::Reconnect), Some(Outcome::Reconnect)]);
    fixture.start().await;
    let id = fixture.webhook("").await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    let delivery = fixture.delivery(id).await;
    assert_eq!((fixture.calls(), delivery.attempts), (3, 1));
    let log: Vec<_> =
        delivery.log.iter().map(|a| (a.number, a.outcome.name(), a.counted)).collect();
    assert_eq!(log, [(1, "reconnect", false), (2, "reconnect", false), (3, "accepted", true)]);
}

#[tokio::test]
async fn what_is_queued_for_a_gone_address_is_not_sent() {
    let mut fixture = DispatchFixture::new(vec![Some(Outcome::Gone)]);
    fixture.webhook("").await;
    let second = fixture.webhook(r#","send_at":"2027-01-15T09:00:00Z""#).await;
    fixture.start().await;
    assert_eq!(fixture.finished().await, (State::Gone, None));
    fixture.clock.advance(Duration::from_secs(86_400));
    assert_eq!(fixture.finished().await, (State::Gone, None));
    assert_eq!(fixture.delivery(second).await.state, State::Gone);
    assert_eq!(fixture.calls(), 1);
}

#[tokio::test]
async fn draining_finishes_what_can_finish_and_gives_the_rest_back() {
    let mut fixture = DispatchFixture::new(vec![None]);
    fixture.start().await;
    let id = fixture.webhook("").await;
    fixture.becomes(id, State::Sending).await;
    assert!(!fixture.drain(Duration::ZERO).await);
    let delivery = fixture.delivery(id).await;
    assert_eq!((delivery.state, delivery.attempts), (State::Queued, 0));
    fixture.start().await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
}

#[tokio::test]
async fn a_hanging_origin_does_not_hold_up_another() {
    let mut fixture = DispatchFixture::new(vec![None]);
    let limits = DispatchLimits { per_origin: [(WEBHOOK, 1)].into(), ..DispatchLimits::default() };
    fixture.start_with(limits).await;
    let stuck = fixture.webhook("").await;
    fixture.becomes(stuck, State::Sending).await;
    let behind = fixture.webhook("").await;
    fixture
        .submit(r#"{"to":{"address":{"channel":"webhook","url":"https://other.example/"}}}"#)
        .await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(fixture.delivery(behind).await.state, State::Queued);
    assert_eq!(fixture.calls(), 2);
}

#[tokio::test]
async fn an_attempt_that_its_channel_never_reports_is_ambiguous_and_sent_again() {
    let mut fixture = DispatchFixture::new(vec![None]);
    fixture.start().await;
    let id = fixture.webhook("").await;
    fixture.becomes(id, State::Sending).await;
    fixture.channel.hang.notify_one();
    let waiting = fixture.becomes(id, State::Retrying).await;
    assert_eq!(waiting.log[0].code.as_deref(), Some("no_report"));
    fixture.clock.set(waiting.due_at.unwrap());
    assert_eq!(fixture.finished().await, (State::Sent, None));
}

#[tokio::test]
async fn ttl_zero_is_one_attempt_now_or_never() {
    let mut fixture = DispatchFixture::new(vec![busy()]);
    fixture.start().await;
    fixture.webhook(r#","ttl_s":0"#).await;
    let (state, _) = fixture.finished().await;
    assert_ne!(state, State::Sent);
    assert_eq!(fixture.calls(), 1);
}

#[tokio::test]
async fn a_class_that_is_changed_while_it_runs_holds_at_the_gate_and_for_the_next_attempt() {
    let mut fixture = DispatchFixture::new(vec![busy(), busy()]);
    fixture.start().await;
    let mut hasty = Class { name: "hasty".into(), ..Class::default() };
    hasty.retry.retries = 0;
    fixture.add_class(hasty);
    fixture.webhook(r#","class":"hasty""#).await;
    let exhausted = (State::Failed, Some(DeadReason::RetriesExhausted));
    assert_eq!(fixture.finished().await, exhausted);
    assert_eq!(fixture.calls(), 1);
}
