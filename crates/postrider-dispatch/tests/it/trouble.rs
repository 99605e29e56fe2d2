//! What the dispatcher does when something around it goes wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider_core::model::class::OnAmbiguous;
use postrider_core::{Class, DeadReason, Outcome, State};
use postrider_dispatch::DispatchLimits;

use crate::flaky::Flaky;
use crate::parallel::{Fate, Parallel};
use crate::scripted::{Event, WEBHOOK, World};

#[tokio::test]
async fn nothing_is_sent_twice_because_decisions_cannot_be_written() {
    let mut world = World::new(vec![]);
    let store = Arc::new(Flaky::over(world.store.clone()));
    store.full.store(true, Ordering::SeqCst);
    world.start_over(store.clone(), DispatchLimits::default());
    let id = world.webhook("").await;
    while !matches!(world.event().await, Event::Trouble) {}
    world.clock.advance(DispatchLimits::default().lease);
    // What the lease's end brought up again has had its chance by the second failure from here.
    for _ in 0..2 {
        while !matches!(world.event().await, Event::Trouble) {}
    }
    assert_eq!(world.calls(), 1);
    store.full.store(false, Ordering::SeqCst);
    assert_eq!(world.finished().await, (State::Sent, None));
    assert_eq!((world.calls(), world.delivery(id).await.state), (1, State::Sent));
    world.webhook("").await;
    assert_eq!(world.finished().await, (State::Sent, None), "work goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_without_room_sleeps_whatever_arrives() {
    let mut world = World::new(vec![None]);
    let store = Arc::new(Flaky::over(world.store.clone()));
    let limits = DispatchLimits { concurrency: 1, settle_batch: 0, ..DispatchLimits::default() };
    world.start_over(store.clone(), limits);
    let id = world.webhook("").await;
    world.becomes(id, State::Sending).await;
    let before = store.waits.load(Ordering::SeqCst);
    for _ in 0..100 {
        world.webhook("").await;
    }
    let waits = store.waits.load(Ordering::SeqCst) - before;
    assert!(waits <= 2, "{waits} times awake for nothing");
}

#[tokio::test]
async fn a_dropped_dispatcher_leases_nothing_and_lets_go_of_the_store() {
    let mut world = World::new(vec![]);
    let before = Arc::strong_count(&world.store);
    world.start();
    assert!(Arc::strong_count(&world.store) > before);
    world.drop_dispatcher();
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(Arc::strong_count(&world.store), before);
    world.webhook("").await;
    assert_eq!(world.calls(), 0);
}

#[tokio::test]
async fn a_free_replay_does_not_wait_for_slow_calls_beside_it() {
    let mut world = World::new(vec![]);
    let channel = Arc::new(Parallel::new(vec![Fate::Wait, Fate::Answer(Outcome::Reconnect)]));
    let slow = world.webhook("").await;
    let refused = world.webhook("").await;
    world.start_on(channel.clone(), DispatchLimits::default());
    assert_eq!(world.finished().await, (State::Sent, None));
    assert_eq!(world.delivery(refused).await.state, State::Sent);
    assert_eq!(world.delivery(slow).await.state, State::Sending);
    channel.release(1);
    assert_eq!(world.finished().await, (State::Sent, None));
    assert_eq!(channel.count(), 3);
}

#[tokio::test]
async fn a_free_replay_never_outlives_its_lease() {
    let mut world = World::new(vec![]);
    let channel = Arc::new(Parallel::new(vec![Fate::Wait]));
    let id = world.webhook("").await;
    world.start_on(channel.clone(), DispatchLimits::default());
    world.becomes(id, State::Sending).await;
    world.clock.advance(DispatchLimits::default().lease / 2);
    channel.answer_next(Outcome::Reconnect);
    channel.release(1);
    assert_eq!(world.finished().await, (State::Sent, None));
    let delivery = world.delivery(id).await;
    let decisions: Vec<_> = delivery.log.iter().map(|a| (a.decision.name(), a.counted)).collect();
    assert_eq!(decisions, [("retry", false), ("done", true)]);
}

#[tokio::test]
async fn a_channel_that_panics_costs_an_attempt_and_is_not_asked_again_at_once() {
    let mut world = World::new(vec![]);
    let channel = Arc::new(Parallel::new(vec![Fate::Panic]));
    let id = world.webhook(r#","retry":{"jitter":"none"}"#).await;
    world.start_on(channel.clone(), DispatchLimits::default());
    let waiting = world.becomes(id, State::Retrying).await;
    assert_eq!((waiting.attempts, waiting.log[0].code.as_deref()), (1, Some("panic")));
    assert_eq!(channel.count(), 1);
    world.clock.set(waiting.due_at.unwrap());
    assert_eq!(world.finished().await, (State::Sent, None));
}

#[tokio::test]
async fn what_a_shutdown_cuts_off_is_ambiguous_where_a_duplicate_is_worse_than_a_loss() {
    let mut world = World::new(vec![]);
    let paid = Class { name: "paid".into(), on_ambiguous: OnAmbiguous::Park, ..Class::default() };
    world.add_class(paid);
    let channel = Arc::new(Parallel::new(vec![Fate::Wait, Fate::Wait]));
    let paid = world.webhook(r#","class":"paid""#).await;
    let other = world.webhook("").await;
    world.start_on(channel, DispatchLimits::default());
    world.becomes(paid, State::Sending).await;
    world.becomes(other, State::Sending).await;
    assert!(!world.drain(Duration::ZERO).await);
    let paid = world.delivery(paid).await;
    assert_eq!((paid.state, paid.reason), (State::Failed, Some(DeadReason::Ambiguous)));
    let other = world.delivery(other).await;
    assert_eq!((other.state, other.attempts), (State::Queued, 0));
}

#[tokio::test]
async fn what_expires_while_its_start_is_being_written_is_not_handed_over() {
    let mut world = World::new(vec![]);
    let paid = Class { name: "paid".into(), on_ambiguous: OnAmbiguous::Park, ..Class::default() };
    world.add_class(paid);
    let start_takes = Some((world.clock.clone(), Duration::from_secs(30)));
    let store = Flaky { start_takes, ..Flaky::over(world.store.clone()) };
    let limits = DispatchLimits { per_origin: [(WEBHOOK, 1)].into(), ..DispatchLimits::default() };
    world.start_over(Arc::new(store), limits);
    let id = world.webhook(r#","class":"paid","ttl_s":30"#).await;
    assert_eq!(world.finished().await, (State::Expired, None));
    assert_eq!((world.calls(), world.delivery(id).await.log.len()), (0, 0));
    world.webhook("").await;
    assert_eq!(world.finished().await, (State::Sent, None), "its place is free again");
}

#[tokio::test]
async fn one_free_place_is_used_while_the_other_calls_hang() {
    let mut world = World::new(vec![]);
    let channel = Arc::new(Parallel::new(vec![Fate::Wait; 8]));
    let limits = DispatchLimits { per_origin: [(WEBHOOK, 8)].into(), ..DispatchLimits::default() };
    for _ in 0..9 {
        world.webhook("").await;
    }
    world.start_on(channel.clone(), limits);
    while channel.count() < 8 {
        tokio::task::yield_now().await;
    }
    channel.release(1);
    assert_eq!(world.finished().await, (State::Sent, None), "the one let go");
    assert_eq!(world.finished().await, (State::Sent, None), "the one behind");
    assert_eq!(channel.count(), 9);
}
