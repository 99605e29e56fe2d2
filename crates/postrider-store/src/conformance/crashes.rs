//! Promises about what is remembered of attempts that were cut short.

use postrider_core::State;
use postrider_core::model::decision::Decision;
use postrider_core::ports::store::{Cancelled, Halt, Settled};

use super::kit::{Bench, LEASE, batch, message, secs};

pub async fn what_was_in_flight_at_a_crash_is_counted(bench: &Bench<'_>) {
    let (_, ids) = bench.accept(batch("acme", &[1, 1, 1, 1])).await;
    let leased = bench.lease_all().await;
    assert!(leased.iter().all(|l| l.crashes == 0));
    bench.clock.advance(secs(1));
    bench.settle(&leased[0], Decision::Done).await;
    bench.settle(&leased[1], Decision::Retry { after: secs(1), counted: true }).await;
    bench.settle(&leased[2], Decision::Release).await;
    let Some(bench) = bench.reopened().await else { return };
    bench.clock.advance(secs(1));
    let crashes = |leased: &[postrider_core::ports::store::Leased]| {
        let mut all: Vec<_> = leased.iter().map(|l| (l.delivery, l.crashes)).collect();
        all.sort();
        all
    };
    let leased = bench.lease_all().await;
    assert_eq!(crashes(&leased), [(ids[1], 0), (ids[2], 0), (ids[3], 1)]);
    let Some(bench) = bench.reopened().await else { return };
    let leased = bench.lease_all().await;
    assert_eq!(crashes(&leased), [(ids[1], 1), (ids[2], 1), (ids[3], 2)]);
}

pub async fn an_attempt_that_ended_clears_the_count_and_waiting_does_not(bench: &Bench<'_>) {
    bench.accept_one().await;
    bench.lease_one().await;
    let Some(bench) = bench.reopened().await else { return };
    let leased = bench.lease_one().await;
    assert_eq!(leased.crashes, 1);
    bench.settle(&leased, Decision::Release).await;
    let leased = bench.lease_one().await;
    assert_eq!(leased.crashes, 1, "given back");
    bench.settle(&leased, Decision::Park { after: secs(5) }).await;
    bench.clock.advance(secs(5));
    let Some(bench) = bench.reopened().await else { return };
    let leased = bench.lease_one().await;
    assert_eq!(leased.crashes, 1, "parked");
    bench.settle(&leased, Decision::Retry { after: secs(5), counted: true }).await;
    bench.clock.advance(secs(5));
    assert_eq!(bench.lease_one().await.crashes, 0, "tried");
}

pub async fn an_attempt_that_left_is_known_until_it_is_settled(bench: &Bench<'_>) {
    bench.accept(batch("acme", &[1, 1])).await;
    let leased = bench.lease_all().await;
    assert!(!leased[0].started);
    let asked = vec![(leased[0].delivery, leased[0].token), (leased[1].delivery, 1)];
    assert_eq!(bench.store.start(asked).await.unwrap(), [true, false], "an old token is refused");
    let reopened = bench.reopened().await;
    let bench = reopened.as_ref().unwrap_or(bench);
    bench.clock.advance(LEASE);
    let again = bench.lease_all().await;
    let started: Vec<_> = again.iter().map(|l| l.started).collect();
    assert_eq!(started, [true, false]);
    bench.settle(&again[0], Decision::Retry { after: secs(1), counted: true }).await;
    bench.settle(&again[1], Decision::Release).await;
    bench.clock.advance(secs(1));
    assert!(bench.lease_all().await.iter().all(|l| !l.started));
}

pub async fn giving_back_what_was_started_says_that_nothing_left(bench: &Bench<'_>) {
    bench.accept_one().await;
    let leased = bench.lease_one().await;
    let asked = vec![(leased.delivery, leased.token)];
    assert_eq!(bench.store.start(asked.clone()).await.unwrap(), [true]);
    assert_eq!(bench.settle(&leased, Decision::Release).await, Settled::Done);
    assert_eq!(bench.store.start(asked).await.unwrap(), [false], "the lease was given back");
    let reopened = bench.reopened().await;
    let bench = reopened.as_ref().unwrap_or(bench);
    assert!(!bench.lease_one().await.started);
}

pub async fn an_attempt_does_not_start_under_an_ended_lease(bench: &Bench<'_>) {
    bench.accept_one().await;
    let leased = bench.lease_one().await;
    bench.clock.advance(LEASE);
    let asked = vec![(leased.delivery, leased.token)];
    assert_eq!(bench.store.start(asked).await.unwrap(), [false]);
}

pub async fn cancel_stops_the_retry_of_what_is_in_flight(bench: &Bench<'_>) {
    let again = [
        Decision::Retry { after: secs(5), counted: true },
        Decision::Park { after: secs(5) },
        Decision::Release,
    ];
    for change in again {
        let (id, deliveries) = bench.accept(batch("acme", &[1, 1])).await;
        let leased = bench.lease_all().await;
        let result = bench.store.cancel(None, id).await.unwrap();
        assert_eq!(result, Some(Cancelled { in_flight: 2, ..Cancelled::default() }));
        let asked = vec![(leased[0].delivery, leased[0].token)];
        assert_eq!(bench.store.start(asked).await.unwrap(), [false]);
        assert_eq!(bench.settle(&leased[0], change).await, Settled::Done);
        assert_eq!(bench.state(deliveries[0]).await, State::Cancelled);
        bench.settle(&leased[1], Decision::Done).await;
        assert_eq!(bench.state(deliveries[1]).await, State::Sent, "what was sent was sent");
        assert_eq!(bench.store.content(None, id).await.unwrap(), None);
    }
    bench.clock.advance(secs(5));
    assert!(bench.ready().await.is_empty());
}

pub async fn cancel_reaches_what_nobody_settles(bench: &Bench<'_>) {
    let (id, _) = bench.accept(message("acme", 1)).await;
    bench.lease_one().await;
    bench.store.cancel(None, id).await.unwrap();
    let reopened = bench.reopened().await;
    let bench = reopened.as_ref().unwrap_or(bench);
    bench.clock.advance(LEASE);
    let again = bench.lease_one().await;
    assert_eq!(again.halt, Some(Halt::Cancelled));
    assert_eq!(bench.settle(&again, Decision::Cancel).await, Settled::Done);
}
