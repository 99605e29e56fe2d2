//! What is a provider's fault, or ours, costs no delivery an attempt and no address its life.

use std::time::Duration;

use postrider_core::model::class::{OnAmbiguous, WhenOpen};
use postrider_core::policy::breaker::{BreakerOverride, BreakerPolicy};
use postrider_core::policy::budget::BudgetPolicy;
use postrider_core::ports::store::{Ledger as _, Queue as _};
use postrider_core::{Class, DeadReason, DeliveryId, Gate, LaneKey, LaneState, Outcome, State};
use postrider_dispatch::DispatchLimits;

use crate::scripted::{WEBHOOK, World, order, settle_down};

fn failing(calls: usize) -> Vec<Option<Outcome>> {
    vec![Some(Outcome::RetryBackoff { at_least: Duration::ZERO }); calls]
}

async fn many(world: &World, count: usize) -> Vec<DeliveryId> {
    let mut ids = Vec::new();
    for n in 0..count {
        let url = format!("https://hooks.example/{n}");
        let to = format!(r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}}}}"#);
        ids.push(world.submit(&to).await);
    }
    ids
}

async fn lane_state(world: &World) -> LaneState {
    let lane = world.store.lanes(None, 9).await.unwrap().remove(0);
    world.lanes.report(&lane.key).state
}

#[tokio::test]
async fn an_outage_of_hours_kills_nothing_that_has_time_left() {
    let mut world = World::new(failing(10_000));
    let ids = many(&world, 60).await;
    world.start();
    let began = world.now();
    while world.now().since(began) < Duration::from_secs(4 * 3600) {
        settle_down().await;
        world.clock.advance(Duration::from_secs(15));
    }
    settle_down().await;
    let calls = world.calls();
    assert!((60..300).contains(&calls), "{calls} calls: the first burst, then single probes");
    for id in &ids {
        let delivery = world.delivery(*id).await;
        assert!(delivery.state.is_pending(), "{delivery:?}");
        assert!(delivery.attempts <= 3, "{}", delivery.attempts);
    }
    world.channel.answer_well();
    world.clock.advance(Duration::from_secs(400));
    for _ in 0..60 {
        assert_eq!(world.finished().await, (State::Sent, None));
    }
}

#[tokio::test]
async fn a_retry_storm_opens_the_breaker() {
    let mut world = World::new(failing(10_000));
    world.start_with(DispatchLimits {
        breaker: BreakerPolicy {
            burst_calls_min: 10_000,
            calls_min: 10_000,
            ..BreakerPolicy::default()
        },
        retry_budget: BudgetPolicy { floor_per_s: 1_000.0, ..BudgetPolicy::default() },
        ..DispatchLimits::default()
    });
    many(&world, 60).await;
    let storms = |state| matches!(state, LaneState::Waiting { on: Gate::Breaker, .. });
    for second in 0..60 {
        settle_down().await;
        if storms(lane_state(&world).await) {
            let calls = world.calls();
            assert!((120..=180).contains(&calls), "{calls} calls, at second {second}");
            return;
        }
        world.clock.advance(Duration::from_secs(1));
    }
    panic!("no storm was seen in {} calls", world.calls());
}

#[tokio::test]
async fn a_mass_of_gone_addresses_erases_few_and_stops_until_an_operator_says_so() {
    let mut world = World::new(vec![Some(Outcome::Gone); 10_000]);
    let ids = many(&world, 200).await;
    world.start();
    for _ in 0..49 {
        assert_eq!(world.finished().await, (State::Gone, None));
    }
    settle_down().await;
    let mut parked = 0;
    for id in &ids {
        let delivery = world.delivery(*id).await;
        parked += usize::from(delivery.state == State::Parked);
        assert!(delivery.state != State::Parked || delivery.attempts == 0, "{delivery:?}");
    }
    assert_eq!(parked, world.calls() - 49, "what came after the doubt is kept");
    assert!(parked < 100, "and soon nothing is sent any more");
    let lane = world.store.lanes(None, 9).await.unwrap().remove(0);
    let standing = world.lanes.report(&lane.key);
    assert!(matches!(standing.state, LaneState::Waiting { on: Gate::MassGone, .. }));
    world.lanes.force_breaker(&lane.key, Some((BreakerOverride::Closed, order())));
    world.clock.advance(Duration::from_secs(300));
    for _ in 49..200 {
        assert_eq!(world.finished().await, (State::Gone, None));
    }
}

#[tokio::test]
async fn a_class_that_does_not_wait_is_refused_at_once_while_the_breaker_is_open() {
    let mut world = World::new(vec![]);
    world.add_class(Class {
        name: "eager".into(),
        when_open: WhenOpen::Reject,
        ..Class::default()
    });
    world.start();
    let patient = world.webhook("").await;
    assert_eq!(world.finished().await, (State::Sent, None));
    let lane = LaneKey {
        tenant: world.tenant.clone(),
        channel: WEBHOOK,
        provider: "https://hooks.example".into(),
        class: "eager".into(),
    };
    world.lanes.force_breaker(&lane, Some((BreakerOverride::Open, order())));
    let waits = world.webhook("").await;
    let refused = world.webhook(r#","class":"eager""#).await;
    assert_eq!(world.finished().await, (State::Failed, Some(DeadReason::Refused)));
    let refused = world.delivery(refused).await;
    assert_eq!((refused.attempts, refused.log.len()), (0, 0));
    assert_eq!(world.delivery(waits).await.state, State::Queued);
    world.lanes.force_breaker(&lane, None);
    assert_eq!(world.finished().await, (State::Sent, None));
    world.webhook(r#","class":"eager""#).await;
    assert_eq!(world.finished().await, (State::Sent, None));
    assert_ne!(patient, waits);
}

fn careful(name: &str, on_ambiguous: OnAmbiguous) -> Class {
    Class { name: name.into(), on_ambiguous, ..Class::default() }
}

#[tokio::test]
async fn what_left_before_a_crash_is_not_sent_again_where_a_duplicate_is_worse_than_a_loss() {
    let ends = [
        (OnAmbiguous::Park, (State::Failed, Some(DeadReason::Ambiguous))),
        (OnAmbiguous::Drop, (State::Suppressed, None)),
    ];
    for (on_ambiguous, end) in ends {
        let mut world = World::new(vec![]);
        world.add_class(careful("paid", on_ambiguous));
        let id = world.webhook(r#","class":"paid""#).await;
        // Somebody before us: leased, noted, gone.
        let lane = world.store.ready_lanes(9).await.unwrap().remove(0);
        let leased = world.store.lease(lane.id, 9, Duration::from_secs(90)).await.unwrap();
        let start = vec![(leased[0].delivery, leased[0].token)];
        assert_eq!(world.store.start(start).await.unwrap(), [true]);
        world.clock.advance(Duration::from_secs(90));
        world.start();
        assert_eq!(world.finished().await, end);
        assert_eq!(world.calls(), 0);
        let delivery = world.delivery(id).await;
        assert_eq!(delivery.log.len(), 1, "the attempt whose end nobody knows is remembered");
        assert_eq!(delivery.log[0].code.as_deref(), Some("crash"));
    }
}

#[tokio::test]
async fn no_call_is_made_before_its_start_is_durable_where_that_matters() {
    let mut world = World::new(vec![]);
    world.add_class(careful("paid", OnAmbiguous::Park));
    let disk = std::sync::Arc::new(crate::flaky::Flaky::over(world.store.clone()));
    disk.full.store(true, std::sync::atomic::Ordering::SeqCst);
    world.start_over(disk.clone(), DispatchLimits::default());
    let id = world.webhook(r#","class":"paid""#).await;
    while world.event().await != crate::scripted::Event::Trouble {}
    settle_down().await;
    assert_eq!((world.calls(), world.delivery(id).await.attempts), (0, 0));
    disk.full.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(world.finished().await, (State::Sent, None));
    assert_eq!(world.calls(), 1);
}

const FLEXIBLE: &str = r#"{"to":{"address":{"channel":"webhook","url":"https://a.example/"},"fallback":[
    {"channel":"webhook","url":"https://b.example/"},{"channel":"webhook","url":"https://c.example/"}]},
    "class":"flexible"}"#;

fn lane_to(world: &World, provider: &str) -> LaneKey {
    LaneKey {
        tenant: world.tenant.clone(),
        channel: WEBHOOK,
        provider: provider.into(),
        class: "flexible".into(),
    }
}

#[tokio::test]
async fn what_may_fall_back_goes_to_the_next_address_whose_provider_takes_calls() {
    let mut world = World::new(vec![]);
    let falls_back = WhenOpen::FallBack;
    world.add_class(Class { name: "flexible".into(), when_open: falls_back, ..Class::default() });
    world.start();
    let closed = ["https://a.example", "https://b.example", "https://c.example"];
    for provider in &closed[..2] {
        world
            .lanes
            .force_breaker(&lane_to(&world, provider), Some((BreakerOverride::Open, order())));
    }
    let id = world.submit(FLEXIBLE).await;
    assert_eq!(world.finished().await, (State::Sent, None));
    let delivery = world.delivery(id).await;
    assert_eq!((&*delivery.provider, delivery.attempts), ("https://c.example", 1));
    let urls: Vec<_> = world.channel.urls();
    assert_eq!(urls, ["https://c.example/"], "nobody else was called");
    world.lanes.force_breaker(&lane_to(&world, closed[2]), Some((BreakerOverride::Open, order())));
    let id = world.submit(FLEXIBLE).await;
    let waits = world.becomes(id, State::Parked).await;
    assert_eq!((&*waits.provider, waits.attempts), ("https://c.example", 0), "nowhere left to go");
    world.lanes.force_breaker(&lane_to(&world, closed[2]), None);
    world.clock.advance(Duration::from_secs(60));
    assert_eq!(world.finished().await, (State::Sent, None));
}

#[tokio::test]
async fn what_has_expired_leaves_the_queue_while_its_lane_is_held() {
    let mut world = World::new(vec![]);
    world.start();
    world.lanes.force_breaker(
        &lane_to(&world, "https://hooks.example"),
        Some((BreakerOverride::Open, order())),
    );
    let short = world.webhook(r#","ttl_s":30"#).await;
    let later = world.webhook(r#","ttl_s":30,"send_at":"2027-01-15T08:10:00Z""#).await;
    let long = world.webhook("").await;
    settle_down().await;
    world.clock.advance(Duration::from_secs(31));
    assert_eq!(world.finished().await, (State::Expired, None));
    assert_eq!(world.delivery(short).await.state, State::Expired);
    assert_eq!(world.delivery(later).await.state, State::Queued, "its time has not begun");
    assert_eq!(world.delivery(long).await.state, State::Queued);
    assert_eq!(world.calls(), 0);
}
