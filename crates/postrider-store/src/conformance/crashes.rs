//! Promises about attempts that a crash interrupted.

use super::fixture::*;

pub async fn a_crash_is_counted_for_deliveries_in_flight(fixture: &StoreFixture<'_>) {
    let (_, ids) = fixture.accept(batch("acme", &[1, 1, 1, 1])).await;
    let leased = fixture.lease_all().await;
    assert!(leased.iter().all(|l| l.crashes == 0));
    fixture.clock.advance(secs(1));
    fixture.settle(&leased[0], Decision::Done).await;
    fixture.settle(&leased[1], retry(1)).await;
    fixture.settle(&leased[2], Decision::Release).await;
    let Some(fixture) = fixture.reopened().await else { return };
    fixture.clock.advance(secs(1));
    let crashes = |leased: &[LeasedDelivery]| {
        let mut all: Vec<_> = leased.iter().map(|l| (l.delivery, l.crashes)).collect();
        all.sort();
        all
    };
    let leased = fixture.lease_all().await;
    assert_eq!(crashes(&leased), [(ids[1], 0), (ids[2], 0), (ids[3], 1)]);
    let Some(fixture) = fixture.reopened().await else { return };
    let leased = fixture.lease_all().await;
    assert_eq!(crashes(&leased), [(ids[1], 1), (ids[2], 1), (ids[3], 2)]);
}

pub async fn an_attempt_that_ended_clears_the_count_and_waiting_does_not(
    fixture: &StoreFixture<'_>,
) {
    fixture.accept_one().await;
    fixture.lease_one().await;
    let Some(fixture) = fixture.reopened().await else { return };
    let leased = fixture.lease_one().await;
    assert_eq!(leased.crashes, 1);
    fixture.settle(&leased, Decision::Release).await;
    let leased = fixture.lease_one().await;
    assert_eq!(leased.crashes, 1, "a lease that was given back is no attempt");
    fixture.settle(&leased, Decision::Park { after: secs(5) }).await;
    fixture.clock.advance(secs(5));
    let Some(fixture) = fixture.reopened().await else { return };
    let leased = fixture.lease_one().await;
    assert_eq!(leased.crashes, 1, "a parked delivery was not attempted");
    fixture.settle(&leased, retry(5)).await;
    fixture.clock.advance(secs(5));
    assert_eq!(fixture.lease_one().await.crashes, 0, "an attempt ended");
}

pub async fn a_started_attempt_is_known_until_it_is_settled(fixture: &StoreFixture<'_>) {
    fixture.accept(batch("acme", &[1, 1])).await;
    let leased = fixture.lease_all().await;
    assert!(!leased[0].started);
    let asked = vec![(leased[0].delivery, leased[0].token), (leased[1].delivery, 1)];
    assert_eq!(fixture.store.start(asked).await.unwrap(), [true, false], "an old token is refused");
    let fixture = &fixture.after_crash().await;
    fixture.clock.advance(LEASE);
    let again = fixture.lease_all().await;
    let started: Vec<_> = again.iter().map(|l| l.started).collect();
    assert_eq!(started, [true, false]);
    fixture.settle(&again[0], retry(1)).await;
    fixture.settle(&again[1], Decision::Release).await;
    fixture.clock.advance(secs(1));
    assert!(fixture.lease_all().await.iter().all(|l| !l.started));
}

pub async fn giving_back_a_started_attempt_says_that_nothing_was_sent(fixture: &StoreFixture<'_>) {
    let leased = fixture.accept_and_lease(message("acme", 1)).await;
    assert!(fixture.start(&leased).await);
    assert_eq!(fixture.settle(&leased, Decision::Release).await, SettleResult::Done);
    assert!(!fixture.start(&leased).await, "the lease was given back");
    let fixture = &fixture.after_crash().await;
    assert!(!fixture.lease_one().await.started);
}

pub async fn an_attempt_does_not_start_under_an_ended_lease(fixture: &StoreFixture<'_>) {
    let leased = fixture.accept_and_lease(message("acme", 1)).await;
    fixture.clock.advance(LEASE);
    assert!(!fixture.start(&leased).await);
}

pub async fn cancel_stops_the_retry_of_deliveries_in_flight(fixture: &StoreFixture<'_>) {
    let again = [retry(5), Decision::Park { after: secs(5) }, Decision::Release];
    for change in again {
        let (id, deliveries) = fixture.accept(batch("acme", &[1, 1])).await;
        let leased = fixture.lease_all().await;
        let result = fixture.store.cancel(None, id).await.unwrap();
        assert_eq!(result, Some(CancelResult { in_flight: 2, ..CancelResult::default() }));
        assert!(!fixture.start(&leased[0]).await);
        assert_eq!(fixture.settle(&leased[0], change).await, SettleResult::Done);
        assert_eq!(fixture.state(deliveries[0]).await, State::Cancelled);
        fixture.settle(&leased[1], Decision::Done).await;
        assert_eq!(fixture.state(deliveries[1]).await, State::Sent, "the attempt had succeeded");
        assert_eq!(fixture.content(id).await, None);
    }
    fixture.clock.advance(secs(5));
    assert!(fixture.ready().await.is_empty());
}

pub async fn cancel_reaches_a_delivery_that_nobody_settles(fixture: &StoreFixture<'_>) {
    let (id, _) = fixture.accept(message("acme", 1)).await;
    fixture.lease_one().await;
    fixture.store.cancel(None, id).await.unwrap();
    let fixture = &fixture.after_crash().await;
    fixture.clock.advance(LEASE);
    let again = fixture.lease_one().await;
    assert_eq!(again.halt, Some(Halt::Cancelled));
    assert_eq!(fixture.settle(&again, Decision::Cancel).await, SettleResult::Done);
}
