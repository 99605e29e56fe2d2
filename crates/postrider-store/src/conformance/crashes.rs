//! Promises about attempts that a crash interrupted.

use std::collections::HashMap;

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

/// Two crashes say that one of the deliveries in flight may be the cause, not which one.
pub async fn suspects_of_two_crashes_are_leased_one_at_a_time(fixture: &StoreFixture<'_>) {
    let (_, ids) = fixture.accept(batch("acme", &[1, 1, 2, 2])).await;
    assert_eq!(fixture.lease_all().await.len(), 4);
    let Some(fixture) = fixture.reopened().await else { return };
    assert_eq!(fixture.lease_all().await.len(), 4, "one crash may have any cause");
    let Some(fixture) = fixture.reopened().await else { return };
    let (_, new) = fixture.accept(batch("acme", &[1, 2])).await;
    let leased = fixture.lease_all().await;
    let suspects: Vec<_> = leased.iter().filter(|l| l.crashes == 2).collect();
    assert_eq!((suspects.len(), leased.len()), (1, 3), "nothing else waits for suspects");
    assert!(new.iter().all(|id| leased.iter().any(|l| l.delivery == *id)));
    assert!(fixture.ready().await.is_empty(), "a lane of suspects that wait is not ready");
    fixture.settle(suspects[0], Decision::Done).await;
    let next = fixture.lease_all().await;
    assert_eq!((next.len(), next[0].crashes), (1, 2), "at once, and only one");

    let Some(fixture) = fixture.reopened().await else { return };
    let mut found = HashMap::new();
    loop {
        let leased = fixture.lease_all().await;
        assert!(leased.iter().filter(|l| l.crashes >= 2).count() <= 1);
        for leased in &leased {
            found.insert(leased.delivery, leased.crashes);
            fixture.settle(leased, Decision::Done).await;
        }
        if leased.is_empty() {
            break;
        }
    }
    assert_eq!(found[&next[0].delivery], 3, "it alone was in flight at the third crash");
    let cleared = ids.iter().filter(|id| found.get(id) == Some(&2)).count();
    assert_eq!((cleared, found.len()), (2, 5), "{found:?}");
}

/// However a suspect's lease ends, and whatever its lane waits for, the others have their turn.
pub async fn a_suspect_that_is_not_attempted_does_not_stop_the_others(fixture: &StoreFixture<'_>) {
    let (message, ids) = fixture.accept(batch("acme", &[1, 2, 3, 4])).await;
    fixture.lease_all().await;
    let Some(fixture) = fixture.reopened().await else { return };
    fixture.lease_all().await;
    let Some(fixture) = fixture.reopened().await else { return };
    let first = fixture.lease_all().await.remove(0);
    assert_eq!(
        fixture.settle(&first, Decision::Park { after: secs(500) }).await,
        SettleResult::Done
    );
    let second = fixture.lease_all().await.remove(0);
    assert_ne!(second.delivery, first.delivery);
    fixture.clock.advance(LEASE);
    let third = fixture.lease_all().await.remove(0);
    fixture.clock.advance(LEASE);
    let again: Vec<_> = fixture.lease_all().await;
    assert_eq!(again.len(), 1, "after the lease of {:?}", third.delivery);
    fixture.store.cancel(None, message).await.unwrap();
    fixture.settle(&again[0], Decision::Done).await;
    fixture.clock.advance(secs(1000));
    assert!(fixture.lease_all().await.is_empty());
    for id in ids {
        assert!(fixture.state(id).await.is_final());
    }
}

/// The lane of the others was suspended when the suspect in flight ended.
pub async fn suspects_go_on_when_their_lane_does(fixture: &StoreFixture<'_>) {
    fixture.accept(batch("acme", &[1, 1, 1])).await;
    fixture.lease_all().await;
    let Some(fixture) = fixture.reopened().await else { return };
    fixture.lease_all().await;
    let Some(fixture) = fixture.reopened().await else { return };
    let mut before = fixture.lease_all().await.remove(0);
    let lane = fixture.store.lanes(None, 1).await.unwrap()[0].id;
    for _ in 0..2 {
        fixture.store.suspend(lane, fixture.now() + secs(5));
        fixture.settle(&before, Decision::Done).await;
        assert!(fixture.lease_all().await.is_empty());
        fixture.clock.advance(secs(5));
        let mut next = fixture.lease_all().await;
        assert_eq!(next.len(), 1, "one, as soon as its lane goes on");
        before = next.remove(0);
    }
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
