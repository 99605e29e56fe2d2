//! What the dispatcher does when something around it goes wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use postrider_core::model::class::OnAmbiguous;
use postrider_core::{Class, DeadReason, Outcome, State};
use postrider_dispatch::DispatchLimits;

use crate::fixture::{DispatchFixture, ObservedEvent, WEBHOOK};
use crate::flaky_consumer::FlakyConsumer;
use crate::parallel_channel::{CallFate, ParallelChannel};

#[tokio::test]
async fn nothing_is_sent_twice_because_decisions_cannot_be_written() {
    let mut fixture = DispatchFixture::new(vec![]);
    let store = Arc::new(FlakyConsumer::of(&fixture.store).await);
    store.full.store(true, Ordering::SeqCst);
    fixture.start_over(store.clone(), DispatchLimits::default());
    let id = fixture.webhook("").await;
    while !matches!(fixture.event().await, ObservedEvent::Trouble) {}
    fixture.clock.advance(DispatchLimits::default().lease);
    // What the lease's end brought up again has had its chance by the second failure from here.
    for _ in 0..2 {
        while !matches!(fixture.event().await, ObservedEvent::Trouble) {}
    }
    assert_eq!(fixture.calls(), 1);
    store.full.store(false, Ordering::SeqCst);
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!((fixture.calls(), fixture.delivery(id).await.state), (1, State::Sent));
    fixture.webhook("").await;
    assert_eq!(fixture.finished().await, (State::Sent, None), "work goes on");
}

/// The process ends then, and its supervisor starts it again.
#[tokio::test]
async fn a_task_that_panics_is_reported_and_nothing_more_is_leased() {
    for (call, task) in [
        ("settle", "the task that writes results is gone"),
        ("lease", "the task that leases is gone"),
        ("ready_lanes", "the task that leases is gone"),
    ] {
        let mut fixture = DispatchFixture::new(vec![]);
        let store = Arc::new(FlakyConsumer::of(&fixture.store).await);
        fixture.start_over(store.clone(), DispatchLimits::default());
        let status = fixture.dispatcher().status();
        assert!(status.is_running());
        *store.panics_in.lock().unwrap() = Some(call);
        fixture.webhook("").await;
        let cause = fixture.dispatcher().failed().await;
        assert!(cause.starts_with(task), "{call}: {cause}");
        assert!(cause.contains("panicked"), "{call}: {cause}");
        assert!(!status.is_running());
        let calls = fixture.calls();
        for _ in 0..10 {
            fixture.webhook("").await;
            tokio::task::yield_now().await;
        }
        assert!(fixture.calls() <= calls + 1, "{call}: it goes on sending without recording");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_without_room_sleeps_whatever_arrives() {
    let mut fixture = DispatchFixture::new(vec![None]);
    let store = Arc::new(FlakyConsumer::of(&fixture.store).await);
    let limits = DispatchLimits { concurrency: 1, settle_batch: 0, ..DispatchLimits::default() };
    fixture.start_over(store.clone(), limits);
    let id = fixture.webhook("").await;
    fixture.becomes(id, State::Sending).await;
    let before = store.waits.load(Ordering::SeqCst);
    for _ in 0..100 {
        fixture.webhook("").await;
    }
    let waits = store.waits.load(Ordering::SeqCst) - before;
    assert!(waits <= 2, "{waits} times awake for nothing");
}

#[tokio::test]
async fn a_dropped_dispatcher_leases_nothing_and_lets_go_of_the_store() {
    let mut fixture = DispatchFixture::new(vec![]);
    let consumer = Arc::new(FlakyConsumer::of(&fixture.store).await);
    fixture.start_over(consumer.clone(), DispatchLimits::default());
    assert!(Arc::strong_count(&consumer) > 1);
    fixture.drop_dispatcher();
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(Arc::strong_count(&consumer), 1);
    fixture.webhook("").await;
    assert_eq!(fixture.calls(), 0);
}

#[tokio::test]
async fn a_free_replay_does_not_wait_for_slow_calls_beside_it() {
    let mut fixture = DispatchFixture::new(vec![]);
    let channel =
        Arc::new(ParallelChannel::new(vec![CallFate::Wait, CallFate::Answer(Outcome::Reconnect)]));
    let slow = fixture.webhook("").await;
    let refused = fixture.webhook("").await;
    fixture.start_on(channel.clone(), DispatchLimits::default()).await;
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(fixture.delivery(refused).await.state, State::Sent);
    assert_eq!(fixture.delivery(slow).await.state, State::Sending);
    channel.release(1);
    assert_eq!(fixture.finished().await, (State::Sent, None));
    assert_eq!(channel.count(), 3);
}

#[tokio::test]
async fn a_free_replay_never_outlives_its_lease() {
    let mut fixture = DispatchFixture::new(vec![]);
    let channel = Arc::new(ParallelChannel::new(vec![CallFate::Wait]));
    let id = fixture.webhook("").await;
    fixture.start_on(channel.clone(), DispatchLimits::default()).await;
    fixture.becomes(id, State::Sending).await;
    fixture.clock.advance(DispatchLimits::default().lease / 2);
    channel.answer_next(Outcome::Reconnect);
    channel.release(1);
    assert_eq!(fixture.finished().await, (State::Sent, None));
    let delivery = fixture.delivery(id).await;
    let decisions: Vec<_> = delivery.log.iter().map(|a| (a.decision.name(), a.counted)).collect();
    assert_eq!(decisions, [("retry", false), ("done", true)]);
}

#[tokio::test]
async fn a_channel_that_panics_costs_an_attempt_and_is_not_asked_again_at_once() {
    let mut fixture = DispatchFixture::new(vec![]);
    let channel = Arc::new(ParallelChannel::new(vec![CallFate::Panic]));
    let id = fixture.webhook(r#","retry":{"jitter":"none"}"#).await;
    fixture.start_on(channel.clone(), DispatchLimits::default()).await;
    let waiting = fixture.becomes(id, State::Retrying).await;
    assert_eq!((waiting.attempts, waiting.log[0].code.as_deref()), (1, Some("panic")));
    assert_eq!(channel.count(), 1);
    fixture.clock.set(waiting.due_at.unwrap());
    assert_eq!(fixture.finished().await, (State::Sent, None));
}

#[tokio::test]
async fn what_a_shutdown_cuts_off_is_ambiguous_where_a_duplicate_is_worse_than_a_loss() {
    let mut fixture = DispatchFixture::new(vec![]);
    let paid = Class { name: "paid".into(), on_ambiguous: OnAmbiguous::Park, ..Class::default() };
    fixture.add_class(paid);
    let channel = Arc::new(ParallelChannel::new(vec![CallFate::Wait, CallFate::Wait]));
    let paid = fixture.webhook(r#","class":"paid""#).await;
    let other = fixture.webhook("").await;
    fixture.start_on(channel, DispatchLimits::default()).await;
    fixture.becomes(paid, State::Sending).await;
    fixture.becomes(other, State::Sending).await;
    assert!(!fixture.drain(Duration::ZERO).await);
    let paid = fixture.delivery(paid).await;
    assert_eq!((paid.state, paid.reason), (State::Failed, Some(DeadReason::Ambiguous)));
    let other = fixture.delivery(other).await;
    assert_eq!((other.state, other.attempts), (State::Queued, 0));
}

#[tokio::test]
async fn what_expires_while_its_start_is_being_written_is_not_handed_over() {
    let mut fixture = DispatchFixture::new(vec![]);
    let paid = Class { name: "paid".into(), on_ambiguous: OnAmbiguous::Park, ..Class::default() };
    fixture.add_class(paid);
    let start_takes = Some((fixture.clock.clone(), Duration::from_secs(30)));
    let store = FlakyConsumer { start_takes, ..FlakyConsumer::of(&fixture.store).await };
    let limits = DispatchLimits { per_origin: [(WEBHOOK, 1)].into(), ..DispatchLimits::default() };
    fixture.start_over(Arc::new(store), limits);
    let id = fixture.webhook(r#","class":"paid","ttl_s":30"#).await;
    assert_eq!(fixture.finished().await, (State::Expired, None));
    assert_eq!((fixture.calls(), fixture.delivery(id).await.log.len()), (0, 0));
    fixture.webhook("").await;
    assert_eq!(fixture.finished().await, (State::Sent, None), "its place is free again");
}

#[tokio::test]
async fn one_free_place_is_used_while_the_other_calls_hang() {
    let mut fixture = DispatchFixture::new(vec![]);
    let mut fates = vec![CallFate::Wait; 9];
    fates[0] = CallFate::Answer(Outcome::Accepted);
    let channel = Arc::new(ParallelChannel::new(fates));
    let limits = DispatchLimits { per_origin: [(WEBHOOK, 8)].into(), ..DispatchLimits::default() };
    fixture.webhook("").await;
    fixture.start_on(channel.clone(), limits).await;
    assert_eq!(fixture.finished().await, (State::Sent, None), "an origin that has answered");
    for _ in 0..9 {
        fixture.webhook("").await;
    }
    while channel.count() < 9 {
        tokio::task::yield_now().await;
    }
    channel.release(1);
    assert_eq!(fixture.finished().await, (State::Sent, None), "the one let go");
    assert_eq!(fixture.finished().await, (State::Sent, None), "the one behind");
    assert_eq!(channel.count(), 10);
}

#[tokio::test]
async fn what_we_ran_out_of_ourselves_is_no_attempt_and_is_tried_again_within_a_second() {
    let mut fixture = DispatchFixture::new(vec![Some(Outcome::Local)]);
    fixture.start().await;
    let id = fixture.webhook("").await;
    fixture.becomes(id, State::Parked).await;
    let delivery = fixture.delivery(id).await;
    assert!(delivery.attempts == 0 && delivery.log.is_empty(), "{delivery:?}");
    assert!(fixture.lanes.shortage().is_some(), "explain can say so");
    fixture.clock.advance(Duration::from_secs(1));
    assert_eq!(fixture.finished().await, (State::Sent, None));
}
