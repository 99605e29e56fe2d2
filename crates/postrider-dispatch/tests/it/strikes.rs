//! What an address was blamed for before counts, and a refusal that is final in itself is not retried
//! for ever.

use std::time::Duration;

use postrider_core::model::decision::DecisionKind;
use postrider_core::model::outcome::AnswerTerms;
use postrider_core::ports::store::{NewAddress, Registry as _, StrikeFilter};
use postrider_core::{
    Address, AddressStatus, DeadReason, Outcome, State, Strike, StrikeKind, Timestamp,
};

use crate::fixture::{DispatchFixture, ObservedEvent, settle_down};

const HOUR: Duration = Duration::from_secs(3600);
const PERMANENT: (State, Option<DeadReason>) = (State::Failed, Some(DeadReason::Permanent));
const GONE: (State, Option<DeadReason>) = (State::Gone, None);
const SENT: (State, Option<DeadReason>) = (State::Sent, None);

/// Every answer blames the address for this.
fn fixture(kind: StrikeKind, answers: Vec<Outcome>) -> DispatchFixture {
    let fixture = DispatchFixture::new(answers.into_iter().map(Some).collect());
    fixture.channel.terms.lock().unwrap().strike = Some(kind);
    fixture
}

fn dropped(times: usize) -> Vec<Outcome> {
    vec![Outcome::DropMessage; times]
}

/// One more message to the one address, and its end.
async fn one(fixture: &mut DispatchFixture) -> (State, Option<DeadReason>) {
    fixture.webhook("").await;
    fixture.finished().await
}

async fn strikes(fixture: &DispatchFixture) -> Vec<Strike> {
    let all = StrikeFilter { limit: 10, ..StrikeFilter::default() };
    let page = fixture.store.strikes(&fixture.tenant, all).await.unwrap();
    page.items.into_iter().flat_map(|struck| struck.strikes).collect()
}

async fn register(fixture: &DispatchFixture) -> Address {
    let body = br#"{"channel":"webhook","url":"https://hooks.example/a"}"#;
    let new: NewAddress = fixture.intake.check_address(&fixture.tenant, body).await.unwrap();
    fixture.store.put_address(new).await.unwrap().0
}

async fn status(fixture: &DispatchFixture, address: &Address) -> AddressStatus {
    fixture.store.address(&fixture.tenant, address.id).await.unwrap().unwrap().status
}

#[tokio::test]
async fn three_strikes_within_a_day_cost_messages_and_the_first_after_a_day_the_address() {
    let mut fixture = fixture(StrikeKind::Endpoint, dropped(9));
    let address = register(&fixture).await;
    fixture.start().await;
    for hour in [0, 8, 15] {
        assert_eq!(one(&mut fixture).await, PERMANENT, "{hour}");
        fixture.clock.advance(8 * HOUR - Duration::from_millis(1));
    }
    assert_eq!(strikes(&fixture).await[0].count, 3);
    assert_eq!(status(&fixture, &address).await, AddressStatus::Active);
    fixture.clock.advance(Duration::from_millis(3));
    assert_eq!(one(&mut fixture).await, GONE);
    assert_eq!(status(&fixture, &address).await, AddressStatus::Gone);
    assert_eq!(one(&mut fixture).await, GONE);
    assert_eq!(fixture.calls(), 4, "who is gone is not asked again");
}

#[tokio::test]
async fn an_inline_address_is_remembered_like_a_registered_one() {
    let mut fixture = fixture(StrikeKind::Number, dropped(2));
    fixture.start().await;
    assert_eq!(one(&mut fixture).await, PERMANENT);
    assert_eq!(one(&mut fixture).await, GONE);
}

#[tokio::test]
async fn strikes_outlive_the_dispatcher() {
    let mut fixture = fixture(StrikeKind::Number, dropped(2));
    fixture.start().await;
    assert_eq!(one(&mut fixture).await, PERMANENT);
    assert!(fixture.drain(Duration::from_secs(5)).await);
    fixture.start().await;
    assert_eq!(one(&mut fixture).await, GONE);
}

#[tokio::test]
async fn a_success_between_two_strikes_clears_the_first() {
    let mut fixture = fixture(
        StrikeKind::Number,
        vec![Outcome::DropMessage, Outcome::Accepted, Outcome::DropMessage],
    );
    fixture.start().await;
    assert_eq!(one(&mut fixture).await, PERMANENT);
    assert_eq!(one(&mut fixture).await, SENT);
    assert!(strikes(&fixture).await.is_empty());
    assert_eq!(one(&mut fixture).await, PERMANENT);
}

#[tokio::test]
async fn an_unreachable_number_strikes_once_per_message_and_is_suspect_after_three() {
    let retry = Outcome::RetryBackoff { at_least: 2 * HOUR };
    let mut fixture = fixture(StrikeKind::Unreachable, vec![retry; 9]);
    fixture.channel.terms.lock().unwrap().retries_max = Some(2);
    let address = register(&fixture).await;
    fixture.start().await;
    for nth in 1..=3u32 {
        fixture.webhook(r#","ttl_s":86400"#).await;
        let mut retries = 0;
        let (kind, suspected) = loop {
            match fixture.event().await {
                ObservedEvent::Attempted(_, DecisionKind::Retry) => {
                    retries += 1;
                    settle_down().await;
                    fixture.clock.advance(2 * HOUR);
                }
                ObservedEvent::Struck(kind, suspected) => break (kind, suspected),
                _ => {}
            }
        };
        assert_eq!((kind, suspected, retries), (StrikeKind::Unreachable, nth == 3, 2));
        assert_eq!(
            fixture.finished().await,
            PERMANENT,
            "with the provider's words, not as exhausted"
        );
        assert_eq!(strikes(&fixture).await[0].count, nth);
    }
    assert_eq!(status(&fixture, &address).await, AddressStatus::Suspect);
    assert_eq!(one(&mut fixture).await, SENT, "it is still sent to");
    assert_eq!(status(&fixture, &address).await, AddressStatus::Active);
}

#[tokio::test]
async fn a_host_without_a_name_is_retried_for_a_day_and_then_gone() {
    let retry = Outcome::RetryBackoff { at_least: Duration::ZERO };
    let mut fixture = fixture(StrikeKind::Host, vec![retry; 1_000]);
    fixture.start().await;
    let began: Timestamp = fixture.now();
    let gone_at = loop {
        fixture.webhook(r#","ttl_s":7200"#).await;
        settle_down().await;
        fixture.clock.advance(HOUR);
        settle_down().await;
        let heard: Vec<ObservedEvent> = std::iter::from_fn(|| fixture.heard()).collect();
        let is_gone = |event: &ObservedEvent| *event == ObservedEvent::Finished(State::Gone, None);
        let marks_gone = |event: &ObservedEvent| {
            matches!(event, ObservedEvent::Attempted(_, DecisionKind::MarkGone))
        };
        if heard.iter().any(marks_gone) {
            // The settlement may still be on its way.
            while !heard.iter().any(is_gone) && fixture.finished().await != GONE {}
            break fixture.now();
        }
        assert!(fixture.now().since(began) < 30 * HOUR, "it is never gone");
    };
    let after = gone_at.since(began);
    assert!(after >= 24 * HOUR, "gone after {after:?}");
}

#[tokio::test]
async fn a_receiver_that_failed_for_five_days_gets_one_attempt_until_it_works() {
    let retry = Outcome::RetryBackoff { at_least: Duration::ZERO };
    let mut fixture = fixture(StrikeKind::Failing, vec![retry; 100]);
    let address = register(&fixture).await;
    fixture.start().await;
    let exhausted = (State::Failed, Some(DeadReason::RetriesExhausted));
    for day in 0..=5 {
        fixture.webhook("").await;
        let end = loop {
            match fixture.event().await {
                ObservedEvent::Finished(state, reason) => break (state, reason),
                ObservedEvent::Attempted(..) => {
                    settle_down().await;
                    fixture.clock.advance(Duration::from_secs(120));
                }
                _ => {}
            }
        };
        assert_eq!(end, if day < 5 { exhausted } else { PERMANENT }, "day {day}");
        fixture.clock.advance(24 * HOUR);
    }
    assert_eq!(status(&fixture, &address).await, AddressStatus::Suspect);
    fixture.channel.answer_well();
    assert_eq!(one(&mut fixture).await, SENT);
    assert_eq!(status(&fixture, &address).await, AddressStatus::Active);
    assert!(strikes(&fixture).await.is_empty());
}

#[tokio::test]
async fn a_mass_of_addresses_that_strikes_call_gone_is_not_believed() {
    let mut fixture = fixture(StrikeKind::Number, dropped(10_000));
    fixture.start().await;
    let to = |n| {
        let url = format!("https://hooks.example/{n}");
        format!(r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}}}}"#)
    };
    for n in 0..200 {
        fixture.submit(&to(n)).await;
        assert_eq!(fixture.finished().await, PERMANENT);
    }
    let mut second = Vec::new();
    for n in 0..200 {
        second.push(fixture.submit(&to(n)).await);
    }
    settle_down().await;
    let mut gone = 0;
    for id in second {
        let state = fixture.delivery(id).await.state;
        assert!(state.is_pending() || state == State::Gone, "{state}");
        gone += usize::from(state == State::Gone);
    }
    assert!(gone < 100, "{gone} of 200 were erased");
}

#[tokio::test]
async fn a_refusal_with_bounded_retries_ends_as_permanent() {
    let retry = Outcome::RetryBackoff { at_least: Duration::ZERO };
    let mut fixture = DispatchFixture::new(vec![Some(retry); 9]);
    *fixture.channel.terms.lock().unwrap() = AnswerTerms { retries_max: Some(1), strike: None };
    fixture.start().await;
    let id = fixture.webhook("").await;
    fixture.becomes(id, State::Retrying).await;
    fixture.clock.advance(Duration::from_secs(120));
    assert_eq!(fixture.finished().await, PERMANENT);
    assert_eq!(fixture.calls(), 2);
}
