//! What holds a lane up holds up that lane only, burns no attempt and ends at its time.

use std::time::Duration;

use postrider_core::policy::breaker::{BreakerOverride, BreakerState};
use postrider_core::policy::budget::BudgetPolicy;
use postrider_core::policy::limiter::Rate;
use postrider_core::ports::store::Ledger;
use postrider_core::{DeliveryId, Gate, LaneState, Outcome, Scope, State};
use postrider_dispatch::DispatchLimits;

use crate::fixture::{DispatchFixture, WEBHOOK, order, settle_down};

const OTHER: &str = r#"{"to":{"address":{"channel":"webhook","url":"https://other.example/"}}}"#;

fn wait(after_s: u64, scope: Scope) -> Option<Outcome> {
    Some(Outcome::RetryAfter { after: Duration::from_secs(after_s), scope })
}

fn failing(calls: usize) -> Vec<Option<Outcome>> {
    vec![Some(Outcome::RetryBackoff { at_least: Duration::ZERO }); calls]
}

async fn to_target(fixture: &DispatchFixture, n: usize) -> DeliveryId {
    let url = format!("https://hooks.example/{n}");
    fixture
        .submit(&format!(r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}}}}"#))
        .await
}

/// A refusal that asks for hardly any pause.
fn busy() -> Option<Outcome> {
    Some(Outcome::RetryAfter { after: Duration::from_millis(10), scope: Scope::Target })
}

/// Two seconds in which all goes well.
async fn twenty_per_second(fixture: &mut DispatchFixture) {
    fixture.start().await;
    for n in 0..40 {
        to_target(fixture, n).await;
        settle_down().await;
        fixture.clock.advance(Duration::from_millis(50));
    }
}

async fn state_of_lane(fixture: &DispatchFixture) -> LaneState {
    let lane = fixture.store.lanes(None, 9).await.unwrap().remove(0);
    fixture.lanes.report(&lane.key).state
}

#[tokio::test]
async fn a_host_that_asks_to_be_left_alone_is_left_alone_by_all_its_lanes_and_only_by_them() {
    let mut fixture = DispatchFixture::new(vec![wait(30, Scope::Host)]);
    fixture.start().await;
    let first = fixture.webhook("").await;
    fixture.becomes(first, State::Retrying).await;
    let until = fixture.now() + Duration::from_secs(30);
    let second = to_target(&fixture, 2).await;
    let third = fixture.webhook(r#","class":"otp""#).await;
    fixture.submit(OTHER).await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    settle_down().await;
    assert_eq!(fixture.calls(), 2);
    assert_eq!(state_of_lane(&fixture).await, LaneState::Waiting { on: Gate::RetryAfter, until });
    fixture.clock.advance(Duration::from_millis(29_999));
    settle_down().await;
    assert_eq!(fixture.calls(), 2, "not before its time");
    fixture.clock.advance(Duration::from_millis(1));
    for _ in 0..2 {
        assert_eq!(fixture.finished().await, (State::Sent, None));
    }
    fixture.clock.advance(Duration::from_millis(7_500));
    assert_eq!(
        fixture.finished().await,
        (State::Sent, None),
        "its retry, a quarter later at the most"
    );
    for waited in [second, third] {
        assert_eq!(fixture.delivery(waited).await.attempts, 1, "waiting is not an attempt");
    }
}

#[tokio::test]
async fn an_address_that_asks_to_be_left_alone_does_not_hold_up_its_neighbours() {
    let mut fixture = DispatchFixture::new(vec![wait(30, Scope::Target)]);
    fixture.start().await;
    let first = fixture.webhook("").await;
    fixture.becomes(first, State::Retrying).await;
    to_target(&fixture, 2).await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
}

#[tokio::test]
async fn three_addresses_that_ask_at_the_same_time_speak_for_their_host() {
    let mut fixture = DispatchFixture::new(vec![wait(60, Scope::Target); 3]);
    fixture.start().await;
    for n in 0..3 {
        let id = to_target(&fixture, n).await;
        fixture.becomes(id, State::Retrying).await;
    }
    let fourth = to_target(&fixture, 4).await;
    settle_down().await;
    assert_eq!((fixture.calls(), fixture.delivery(fourth).await.state), (3, State::Queued));
    fixture.clock.advance(Duration::from_secs(75));
    for _ in 0..4 {
        assert_eq!(fixture.finished().await, (State::Sent, None));
    }
}

#[tokio::test]
async fn while_a_provider_is_down_nothing_is_leased_nothing_burned_and_probes_decide() {
    let mut fixture = DispatchFixture::new(failing(21));
    fixture.start().await;
    for n in 0..20 {
        let id =
            fixture.webhook(r#","retry":{"retries":5,"jitter":"none","base_ms":120000}"#).await;
        fixture.becomes(id, State::Retrying).await;
        assert_eq!(fixture.calls(), n + 1);
    }
    let waiting = fixture.webhook("").await;
    settle_down().await;
    assert_eq!(fixture.calls(), 20, "open");
    let LaneState::Waiting { on: Gate::Breaker, until } = state_of_lane(&fixture).await else {
        panic!("{:?}", state_of_lane(&fixture).await)
    };
    fixture.clock.set(until);
    settle_down().await;
    assert_eq!(fixture.calls(), 21, "one probe, which fails");
    fixture.submit(OTHER).await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(fixture.calls(), 22, "another provider is served meanwhile");
    assert!(fixture.delivery(waiting).await.attempts <= 1);
    fixture.clock.advance(Duration::from_secs(60));
    assert_eq!(fixture.finished().await, (State::Sent, None));
}

#[tokio::test]
async fn a_refused_credential_stops_its_tenant_at_once_and_no_other() {
    let mut fixture = DispatchFixture::new(vec![Some(Outcome::Config)]);
    fixture.start().await;
    let first = fixture.webhook("").await;
    fixture.becomes(first, State::Parked).await;
    let second = to_target(&fixture, 2).await;
    settle_down().await;
    assert_eq!((fixture.calls(), fixture.delivery(second).await.state), (1, State::Queued));
    fixture.tenant = postrider_core::TenantId::new("other");
    to_target(&fixture, 3).await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    fixture.lanes.credential_renewed(&postrider_core::TenantId::new("acme"));
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(fixture.delivery(second).await.state, State::Sent);
}

#[tokio::test]
async fn only_what_waits_for_the_server_itself_is_late() {
    let mut fixture = DispatchFixture::new(vec![]);
    fixture.webhook("").await;
    let lane = fixture.store.lanes(None, 9).await.unwrap().remove(0);
    fixture.clock.advance(Duration::from_secs(60));
    fixture.start().await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(fixture.take_lag(), Duration::from_secs(60), "the server was away");
    fixture.lanes.pause(lane.key.clone(), order());
    fixture.webhook("").await;
    settle_down().await;
    fixture.clock.advance(Duration::from_secs(60));
    settle_down().await;
    assert!(fixture.lanes.resume(&lane.key));
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(fixture.take_lag(), Duration::ZERO, "an operator paused it");
    fixture.channel.then(vec![wait(30, Scope::Host)]);
    let refused = fixture.webhook("").await;
    fixture.becomes(refused, State::Retrying).await;
    to_target(&fixture, 2).await;
    settle_down().await;
    fixture.clock.advance(Duration::from_secs(30));
    settle_down().await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(fixture.take_lag(), Duration::ZERO, "the host asked for a pause");
}

#[tokio::test]
async fn a_paused_lane_waits_for_its_operator_however_long() {
    let mut fixture = DispatchFixture::new(vec![]);
    let id = fixture.webhook("").await;
    fixture.start().await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    let waiting = fixture.webhook(r#","send_at":"2027-01-15T08:00:10Z""#).await;
    let lane = fixture.store.lanes(None, 9).await.unwrap().remove(0);
    fixture.lanes.pause(lane.key.clone(), order());
    fixture.clock.advance(Duration::from_secs(36_000));
    settle_down().await;
    assert_eq!(fixture.delivery(waiting).await.state, State::Queued);
    assert_eq!(state_of_lane(&fixture).await, LaneState::Blocked { on: Gate::Paused });
    assert!(fixture.lanes.resume(&lane.key));
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_ne!(id, waiting);
}

#[tokio::test]
async fn an_operators_word_about_a_breaker_takes_effect_at_once() {
    let mut fixture = DispatchFixture::new(vec![wait(600, Scope::Host)]);
    fixture.start().await;
    let first = fixture.webhook("").await;
    fixture.becomes(first, State::Retrying).await;
    let second = to_target(&fixture, 2).await;
    settle_down().await;
    let lane = fixture.store.lanes(None, 9).await.unwrap().remove(0);
    fixture.lanes.force_breaker(&lane.key, Some((BreakerOverride::Closed, order())));
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(fixture.delivery(second).await.state, State::Sent);
    fixture.lanes.force_breaker(&lane.key, Some((BreakerOverride::Open, order())));
    let third = to_target(&fixture, 3).await;
    settle_down().await;
    assert_eq!(fixture.delivery(third).await.state, State::Queued);
    assert_eq!(fixture.lanes.report(&lane.key).breaker, BreakerState::ForcedOpen);
    fixture.lanes.force_breaker(&lane.key, None);
    assert_eq!(fixture.finished().await, (State::Sent, None));
}

#[tokio::test]
async fn retries_beyond_their_share_wait_unburned_and_those_that_succeed_let_the_others_go() {
    let mut fixture = DispatchFixture::new(failing(8));
    fixture
        .start_with(DispatchLimits {
            retry_budget: BudgetPolicy { floor_per_s: 0.2, ..Default::default() },
            settle_linger: Duration::ZERO,
            ..DispatchLimits::default()
        })
        .await;
    let mut ids = Vec::new();
    for _ in 0..6 {
        let id = fixture.webhook(r#","retry":{"retries":9,"jitter":"none","base_ms":1000}"#).await;
        fixture.becomes(id, State::Retrying).await;
        ids.push(id);
    }
    fixture.clock.advance(Duration::from_secs(1));
    settle_down().await;
    assert_eq!(fixture.calls(), 8, "two of the six, the floor of ten seconds");
    let mut burned = 0;
    for id in &ids {
        burned += fixture.delivery(*id).await.attempts;
    }
    assert_eq!(burned, 8, "what waits keeps its attempts");
    for _ in 0..20 {
        fixture.clock.advance(Duration::from_secs(1));
        settle_down().await;
    }
    for _ in 0..6 {
        assert_eq!(fixture.finished().await, (State::Sent, None));
    }
}

#[tokio::test]
async fn a_providers_rate_is_kept_to_the_call_and_its_lanes_share_it() {
    let mut fixture = DispatchFixture::new(vec![]);
    for class in ["otp", "transactional"] {
        for _ in 0..10 {
            fixture.webhook(&format!(r#","class":"{class}""#)).await;
        }
    }
    let rate = Rate { per_s: 2.0, burst: 4, ramp_s: 0 };
    let rates = [(WEBHOOK, rate)].into();
    fixture.start_with(DispatchLimits { rates, ..DispatchLimits::default() }).await;
    settle_down().await;
    assert_eq!(fixture.calls(), 4, "one burst");
    let until = fixture.now() + Duration::from_millis(500);
    assert_eq!(state_of_lane(&fixture).await, LaneState::Waiting { on: Gate::RateLimit, until });
    for second in 1..=8 {
        for _ in 0..2 {
            fixture.clock.advance(Duration::from_millis(500));
            settle_down().await;
        }
        assert_eq!(fixture.calls(), 4 + second * 2);
    }
}

#[tokio::test]
async fn a_tenants_rate_holds_up_no_other_tenant() {
    let mut fixture = DispatchFixture::new(vec![]);
    for n in 0..5 {
        to_target(&fixture, n).await;
    }
    let acme = fixture.tenant.clone();
    fixture.tenant = postrider_core::TenantId::new("other");
    for n in 0..5 {
        to_target(&fixture, n).await;
    }
    let tenant_rates = [(acme, Rate { per_s: 1.0, burst: 1, ramp_s: 0 })].into();
    fixture.start_with(DispatchLimits { tenant_rates, ..DispatchLimits::default() }).await;
    settle_down().await;
    assert_eq!(fixture.calls(), 1 + 5);
    fixture.clock.advance(Duration::from_secs(1));
    settle_down().await;
    assert_eq!(fixture.calls(), 2 + 5);
}

#[tokio::test]
async fn a_tenants_old_backlog_does_not_keep_another_waiting() {
    let mut fixture = DispatchFixture::new(vec![]);
    for n in 0..200 {
        to_target(&fixture, n).await;
    }
    fixture.clock.advance(Duration::from_secs(60));
    fixture.tenant = postrider_core::TenantId::new("small");
    for n in 0..3 {
        to_target(&fixture, n).await;
    }
    let rates = [(WEBHOOK, Rate { per_s: 1.0, burst: 10, ramp_s: 0 })].into();
    fixture.start_with(DispatchLimits { rates, ..DispatchLimits::default() }).await;
    settle_down().await;
    fixture.clock.advance(Duration::from_secs(3));
    settle_down().await;
    let calls = fixture.channel.calls.lock().unwrap();
    let small = calls.iter().filter(|call| call.message.tenant.as_str() == "small").count();
    assert_eq!((calls.len(), small), (13, 3));
}

#[tokio::test]
async fn a_credentials_rate_holds_up_its_own_lanes_at_that_provider_only() {
    let mut fixture = DispatchFixture::new(vec![]);
    for n in 0..5 {
        to_target(&fixture, n).await;
    }
    fixture.submit(OTHER).await;
    fixture.tenant = postrider_core::TenantId::new("other");
    for n in 0..5 {
        to_target(&fixture, n).await;
    }
    let credential_rates = [(WEBHOOK, Rate { per_s: 1.0, burst: 2, ramp_s: 0 })].into();
    fixture.start_with(DispatchLimits { credential_rates, ..DispatchLimits::default() }).await;
    settle_down().await;
    assert_eq!(fixture.calls(), 2 + 1 + 2, "two each at the one, one at the other");
    fixture.clock.advance(Duration::from_secs(1));
    settle_down().await;
    assert_eq!(fixture.calls(), 5 + 2);
}

#[tokio::test]
async fn one_address_gets_no_more_than_its_rate_and_its_neighbours_do_not_wait() {
    let mut fixture = DispatchFixture::new(vec![]);
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(to_target(&fixture, 1).await);
    }
    to_target(&fixture, 2).await;
    let address_rates = [(WEBHOOK, Rate { per_s: 1.0, burst: 1, ramp_s: 0 })].into();
    let settle_linger = Duration::ZERO;
    fixture
        .start_with(DispatchLimits { address_rates, settle_linger, ..DispatchLimits::default() })
        .await;
    settle_down().await;
    assert_eq!(fixture.calls(), 2, "one each");
    for second in 1..=5 {
        fixture.clock.advance(Duration::from_secs(1));
        settle_down().await;
        assert_eq!(fixture.calls(), 2 + second);
    }
    for id in ids {
        let delivery = fixture.delivery(id).await;
        assert_eq!((delivery.state, delivery.attempts), (State::Sent, 1), "waiting burns nothing");
    }
}

#[tokio::test]
async fn complaints_of_single_addresses_slow_nobody_else_down() {
    let mut fixture = DispatchFixture::new(vec![]);
    twenty_per_second(&mut fixture).await;
    fixture.channel.then(vec![busy(); 11]);
    for n in 0..111 {
        to_target(&fixture, n).await;
    }
    settle_down().await;
    assert_eq!(fixture.calls(), 40 + 11 + 100, "a fifth complained, each for itself");
}

#[tokio::test]
async fn a_provider_that_complains_is_called_at_the_pace_that_it_takes() {
    let mut fixture = DispatchFixture::new(vec![]);
    twenty_per_second(&mut fixture).await;
    fixture.channel.then(vec![busy(); 45]);
    for n in 0..45 {
        // Many addresses: that is too much of ours, not a mood of theirs.
        to_target(&fixture, n).await;
        settle_down().await;
    }
    for n in 0..100 {
        to_target(&fixture, n).await;
    }
    settle_down().await;
    let before = fixture.calls();
    assert!(before < 90, "{before}");
    for _ in 0..200 {
        fixture.clock.advance(Duration::from_millis(10));
        settle_down().await;
    }
    let within_two_seconds = fixture.calls() - before;
    assert!(
        (32..=54).contains(&within_two_seconds),
        "{within_two_seconds}: 20 per second, growing"
    );
    assert_eq!(state_of_lane(&fixture).await.name(), "waiting");
}

#[tokio::test]
async fn at_a_learned_pace_one_refusal_does_not_hold_up_its_address() {
    let mut fixture = DispatchFixture::new(vec![]);
    twenty_per_second(&mut fixture).await;
    fixture.channel.then(vec![busy(); 45]);
    for n in 0..45 {
        to_target(&fixture, n).await;
        settle_down().await;
    }
    while fixture.calls() < 40 + 45 + 45 {
        fixture.clock.advance(Duration::from_millis(100));
        settle_down().await;
    }
    fixture.clock.advance(Duration::from_secs(20));
    fixture.channel.then(vec![wait(60, Scope::Target)]);
    let mut states = Vec::new();
    for _ in 0..2 {
        let id = to_target(&fixture, 7).await;
        for _ in 0..100 {
            fixture.clock.advance(Duration::from_millis(100));
            settle_down().await;
        }
        states.push(fixture.delivery(id).await.state);
    }
    assert_eq!(states, [State::Retrying, State::Sent], "each after ten seconds");
}
