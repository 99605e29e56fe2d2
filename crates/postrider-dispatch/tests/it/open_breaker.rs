//! Outages, retry storms and masses of gone addresses cost no delivery an attempt and no address its life.

use std::time::Duration;

use postrider_core::model::class::WhenOpen;
use postrider_core::policy::breaker::{BreakerOverride, BreakerPolicy};
use postrider_core::policy::budget::BudgetPolicy;
use postrider_core::ports::store::Ledger as _;
use postrider_core::{Class, DeadReason, Gate, LaneKey, LaneState, Outcome, State};
use postrider_dispatch::DispatchLimits;

use crate::fixture::{DispatchFixture, WEBHOOK, order, settle_down};

fn failing(calls: usize) -> Vec<Option<Outcome>> {
    vec![Some(Outcome::RetryBackoff { at_least: Duration::ZERO }); calls]
}

async fn lane_state(fixture: &DispatchFixture) -> LaneState {
    let lane = fixture.store.lanes(None, 9).await.unwrap().remove(0);
    fixture.lanes.report(&lane.key).state
}

#[tokio::test]
async fn an_outage_of_hours_kills_nothing_that_has_time_left() {
    let mut fixture = DispatchFixture::new(failing(10_000));
    let ids = fixture.submit_many(60, "").await;
    fixture.start().await;
    let began = fixture.now();
    while fixture.now().since(began) < Duration::from_secs(4 * 3600) {
        settle_down().await;
        fixture.clock.advance(Duration::from_secs(15));
    }
    settle_down().await;
    let calls = fixture.calls();
    assert!(
        (60..800).contains(&calls),
        "{calls} calls: the first burst, then three probes a minute"
    );
    for id in &ids {
        let delivery = fixture.delivery(*id).await;
        assert!(delivery.state.is_pending(), "{delivery:?}");
        assert!(delivery.attempts <= 3, "{}", delivery.attempts);
    }
    fixture.channel.answer_well();
    for _ in 0..400 {
        fixture.clock.advance(Duration::from_secs(1));
        settle_down().await;
    }
    for _ in 0..60 {
        assert_eq!(fixture.finished().await, (State::Sent, None));
    }
}

#[tokio::test]
async fn a_retry_storm_opens_the_breaker() {
    let mut fixture = DispatchFixture::new(failing(10_000));
    fixture
        .start_with(DispatchLimits {
            retry_budget: BudgetPolicy { floor_per_s: 1_000.0, ..BudgetPolicy::default() },
            breaker: BreakerPolicy { storm_retries_min: 10, ..BreakerPolicy::default() },
            ..DispatchLimits::default()
        })
        .await;
    fixture
        .webhook(r#","retry":{"retries":50,"kind":"fixed","jitter":"none","base_ms":1000}"#)
        .await;
    for second in 0..60 {
        settle_down().await;
        if matches!(lane_state(&fixture).await, LaneState::Waiting { on: Gate::Breaker, .. }) {
            assert_eq!(fixture.calls(), 11, "a first attempt and ten retries, at second {second}");
            return;
        }
        fixture.clock.advance(Duration::from_secs(1));
    }
    panic!("no storm was seen in {} calls", fixture.calls());
}

#[tokio::test]
async fn a_mass_of_gone_addresses_erases_few_and_stops_until_an_operator_says_so() {
    let mut fixture = DispatchFixture::new(vec![Some(Outcome::Gone); 10_000]);
    let ids = fixture.submit_many(200, "").await;
    fixture.start().await;
    for _ in 0..49 {
        assert_eq!(fixture.finished().await, (State::Gone, None));
    }
    settle_down().await;
    let mut parked = 0;
    for id in &ids {
        let delivery = fixture.delivery(*id).await;
        parked += usize::from(delivery.state == State::Parked);
        assert!(delivery.state != State::Parked || delivery.attempts == 0, "{delivery:?}");
    }
    assert_eq!(parked, fixture.calls() - 49, "what came after the doubt is kept");
    assert!(parked < 100, "and soon nothing is sent any more");
    let lane = fixture.store.lanes(None, 9).await.unwrap().remove(0);
    let standing = fixture.lanes.report(&lane.key);
    assert!(matches!(standing.state, LaneState::Waiting { on: Gate::MassGone, .. }));
    fixture.lanes.force_breaker(&lane.key, Some((BreakerOverride::Closed, order())));
    fixture.clock.advance(Duration::from_secs(300));
    for _ in 49..200 {
        assert_eq!(fixture.finished().await, (State::Gone, None));
    }
}

#[tokio::test]
async fn a_class_that_does_not_wait_is_refused_at_once_while_the_breaker_is_open() {
    let mut fixture = DispatchFixture::new(vec![]);
    fixture.add_class(Class {
        name: "eager".into(),
        when_open: WhenOpen::Reject,
        ..Class::default()
    });
    fixture.start().await;
    let patient = fixture.webhook("").await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    let lane = LaneKey {
        tenant: fixture.tenant.clone(),
        channel: WEBHOOK,
        provider: "https://hooks.example".into(),
        class: "eager".into(),
    };
    fixture.lanes.force_breaker(&lane, Some((BreakerOverride::Open, order())));
    let waits = fixture.webhook("").await;
    let refused = fixture.webhook(r#","class":"eager""#).await;
    assert_eq!(fixture.finished().await, (State::Failed, Some(DeadReason::Refused)));
    let refused = fixture.delivery(refused).await;
    assert_eq!((refused.attempts, refused.log.len()), (0, 0));
    assert_eq!(fixture.delivery(waits).await.state, State::Queued);
    fixture.lanes.force_breaker(&lane, None);
    assert_eq!(fixture.finished().await, (State::Sent, None));
    fixture.webhook(r#","class":"eager""#).await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_ne!(patient, waits);
}

const FLEXIBLE: &str = r#"{"to":{"address":{"channel":"webhook","url":"https://a.example/"},"fallback":[
    {"channel":"webhook","url":"https://b.example/"},{"channel":"webhook","url":"https://c.example/"}]},
    "class":"flexible"}"#;

fn lane_to(fixture: &DispatchFixture, provider: &str) -> LaneKey {
    LaneKey {
        tenant: fixture.tenant.clone(),
        channel: WEBHOOK,
        provider: provider.into(),
        class: "flexible".into(),
    }
}

#[tokio::test]
async fn what_may_fall_back_goes_to_the_next_address_whose_provider_takes_calls() {
    let mut fixture = DispatchFixture::new(vec![]);
    let falls_back = WhenOpen::FallBack;
    fixture.add_class(Class { name: "flexible".into(), when_open: falls_back, ..Class::default() });
    fixture.start().await;
    let closed = ["https://a.example", "https://b.example", "https://c.example"];
    for provider in &closed[..2] {
        fixture
            .lanes
            .force_breaker(&lane_to(&fixture, provider), Some((BreakerOverride::Open, order())));
    }
    let id = fixture.submit(FLEXIBLE).await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    let delivery = fixture.delivery(id).await;
    assert_eq!((&*delivery.provider, delivery.attempts), ("https://c.example", 1));
    let urls: Vec<_> = fixture.channel.urls();
    assert_eq!(urls, ["https://c.example/"], "nobody else was called");
    fixture
        .lanes
        .force_breaker(&lane_to(&fixture, closed[2]), Some((BreakerOverride::Open, order())));
    let id = fixture.submit(FLEXIBLE).await;
    let waits = fixture.becomes(id, State::Parked).await;
    assert_eq!((&*waits.provider, waits.attempts), ("https://c.example", 0), "nowhere left to go");
    fixture.lanes.force_breaker(&lane_to(&fixture, closed[2]), None);
    fixture.clock.advance(Duration::from_secs(60));
    assert_eq!(fixture.finished().await, (State::Sent, None));
}
