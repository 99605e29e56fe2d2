//! Promises of the queue.

use super::fixture::*;

pub async fn accepted_work_is_leased_in_order_of_due_time(fixture: &StoreFixture<'_>) {
    let at = |s| Some(fixture.now() + secs(s));
    let third = fixture.accept(NewMessage { send_at: at(3), ..message("acme", 1) }).await.1;
    let first = fixture.accept(message("acme", 1)).await.1;
    let second = fixture.accept(NewMessage { send_at: at(1), ..message("acme", 1) }).await.1;
    fixture.clock.advance(secs(5));
    let leased = fixture.lease(10).await;
    let order: Vec<_> = leased.iter().map(|l| (l.delivery, l.due_at)).collect();
    let since = |s| fixture.now() - secs(s);
    assert_eq!(order, [(first[0], since(5)), (second[0], since(4)), (third[0], since(2))]);
}

pub async fn a_message_is_stored_once_for_many_deliveries(fixture: &StoreFixture<'_>) {
    let (id, deliveries) = fixture.accept(batch("acme", &[1, 1, 2])).await;
    let leased = fixture.lease(10).await;
    assert_eq!(leased.len(), 3);
    for item in &leased {
        assert_eq!(item.message.id, id);
        assert_eq!(&*item.message.content, r#"{"title":"hello"}"#);
        assert!(deliveries.contains(&item.delivery));
    }
    let view = fixture.store.message(None, id).await.unwrap().unwrap();
    assert_eq!(view.deliveries.iter().map(|(id, _)| *id).collect::<Vec<_>>(), deliveries);
}

pub async fn work_for_later_is_not_leased_before(fixture: &StoreFixture<'_>) {
    let send_at = Some(fixture.now() + secs(10));
    fixture.accept(NewMessage { send_at, ..message("acme", 1) }).await;
    assert!(fixture.ready().await.is_empty());
    fixture.clock.advance(secs(9));
    assert!(fixture.lease(1).await.is_empty());
    fixture.clock.advance(secs(1));
    let leased = fixture.lease_one().await;
    assert_eq!(leased.expires_at, fixture.now() + secs(3600), "the TTL counts from send_at");
}

pub async fn lanes_are_ready_longest_due_first(fixture: &StoreFixture<'_>) {
    for number in [3, 1, 2] {
        fixture.accept(message("acme", number)).await;
        fixture.clock.advance(secs(1));
    }
    let ready = fixture.store.ready_lanes(2).await.unwrap();
    let hosts: Vec<_> = ready.iter().map(|lane| lane.key.provider.to_string()).collect();
    assert_eq!(hosts, ["https://host-3.example", "https://host-1.example"]);
    assert_eq!(ready[0].due_at, fixture.now() - secs(3));
}

pub async fn a_lease_keeps_others_away_until_it_ends(fixture: &StoreFixture<'_>) {
    fixture.accept_one().await;
    fixture.lease_one().await;
    assert!(fixture.lease(1).await.is_empty());
    fixture.clock.advance(LEASE - secs(1));
    assert!(fixture.lease(1).await.is_empty());
}

pub async fn expired_lease_is_leased_again(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    let first = fixture.lease_one().await;
    fixture.clock.advance(LEASE);
    let second = fixture.lease_one().await;
    assert_eq!(second.delivery, id);
    assert!(second.token > first.token);
    assert_eq!(second.tries, 0, "an attempt that nobody reported is not counted");
}

pub async fn an_old_token_is_refused(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    let old = fixture.lease_one().await;
    fixture.clock.advance(LEASE);
    let new = fixture.lease_one().await;
    assert_eq!(fixture.settle(&old, Decision::Done).await, SettleResult::Fenced);
    assert_eq!(fixture.state(id).await, State::Sending);
    assert!(fixture.delivery(id).await.log.is_empty());
    assert_eq!(fixture.settle(&new, Decision::Done).await, SettleResult::Done);
    assert_eq!(fixture.state(id).await, State::Sent);
}

pub async fn a_late_settlement_counts_if_nobody_leased_since(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    let leased = fixture.lease_one().await;
    fixture.clock.advance(LEASE + secs(5));
    assert_eq!(fixture.ready().await.len(), 1, "the lease has ended");
    assert_eq!(fixture.settle(&leased, Decision::Done).await, SettleResult::Done);
    assert_eq!(fixture.state(id).await, State::Sent);
    assert!(fixture.ready().await.is_empty());
}

/// The answer to the first one may have been lost.
pub async fn a_repeated_settlement_counts_once_and_answers_as_before(fixture: &StoreFixture<'_>) {
    let leased = fixture.accept_and_lease(message("acme", 1)).await;
    let settlement = Settlement {
        delivery: leased.delivery,
        token: leased.token,
        attempts: Vec::new(),
        decision: Decision::Done,
        learned: AddressLearning::default(),
    };
    let answers = fixture.store.settle(vec![settlement.clone(), settlement]).await.unwrap();
    assert_eq!(answers, [SettleResult::Done, SettleResult::Done]);
    assert_eq!(fixture.settle(&leased, retry(1)).await, SettleResult::Done);
    assert_eq!(fixture.state(leased.delivery).await, State::Sent);
    assert!(fixture.delivery(leased.delivery).await.log.is_empty(), "the first one counts");

    let leased = fixture.accept_and_lease(message("acme", 1)).await;
    fixture.settle(&leased, retry(1)).await;
    fixture.clock.advance(secs(1));
    let again = fixture.lease_one().await;
    assert_eq!(fixture.settle(&leased, Decision::Done).await, SettleResult::Done);
    assert_eq!(fixture.state(leased.delivery).await, State::Sending, "the newer lease goes on");
    assert_eq!(fixture.settle(&again, Decision::Done).await, SettleResult::Done);
    assert_eq!(fixture.delivery(leased.delivery).await.log.len(), 2);
}

pub async fn a_retry_is_due_after_its_delay(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    let leased = fixture.lease_one().await;
    fixture.settle(&leased, retry(30)).await;
    let view = fixture.delivery(id).await;
    assert_eq!((view.state, view.attempts), (State::Retrying, 1));
    assert_eq!(view.due_at, Some(fixture.now() + secs(30)));
    fixture.clock.advance(secs(29));
    assert!(fixture.lease(1).await.is_empty());
    fixture.clock.advance(secs(1));
    let again = fixture.lease_one().await;
    assert_eq!((again.attempts, again.tries, again.last_delay), (1, 1, secs(30)));
    assert_eq!(again.delivery, id);
    assert_eq!(again.message, leased.message);
    assert_eq!(again.target, leased.target);
}

pub async fn every_attempt_of_a_lease_is_remembered(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    let leased = fixture.lease_one().await;
    let free = |n| AttemptRecord { counted: false, ..success(n, fixture.now()) };
    fixture.settle_with(&leased, Decision::Release, vec![free(1)]).await;
    let leased = fixture.lease_one().await;
    assert_eq!((leased.attempts, leased.tries), (0, 1));
    let attempts = vec![free(2), success(3, fixture.now())];
    fixture.settle_with(&leased, Decision::Done, attempts).await;
    let view = fixture.delivery(id).await;
    let numbers: Vec<_> = view.log.iter().map(|a| (a.number, a.counted)).collect();
    assert_eq!(numbers, [(1, false), (2, false), (3, true)]);
    assert_eq!((view.state, view.attempts), (State::Sent, 1));
}

pub async fn parked_work_keeps_its_attempts(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    let leased = fixture.lease_one().await;
    let attempt = AttemptRecord { counted: false, ..success(1, fixture.now()) };
    fixture.settle_with(&leased, Decision::Park { after: secs(300) }, vec![attempt]).await;
    let view = fixture.delivery(id).await;
    assert_eq!((view.state, view.attempts, view.log.len()), (State::Parked, 0, 1));
    fixture.clock.advance(secs(300));
    let again = fixture.lease_one().await;
    assert_eq!((again.attempts, again.tries), (0, 1));
}

pub async fn released_work_is_due_at_once_and_unchanged(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    let leased = fixture.lease_one().await;
    assert_eq!(fixture.settle(&leased, Decision::Release).await, SettleResult::Done);
    assert_eq!(fixture.settle(&leased, Decision::Release).await, SettleResult::Done, "a repeat");
    let view = fixture.delivery(id).await;
    assert_eq!((view.state, view.attempts, view.log.len()), (State::Queued, 0, 0));
    let again = fixture.lease_one().await;
    assert_eq!((again.delivery, again.attempts, again.tries), (id, 0, 0));
    assert!(again.token > leased.token);
}

pub async fn a_finished_delivery_is_never_leased_again(fixture: &StoreFixture<'_>) {
    for decision in [Decision::Done, Decision::Expire, Decision::Cancel, Decision::Drop] {
        let state = decision.final_state();
        let id = fixture.accept_one().await;
        fixture.settle_next(decision).await;
        assert_eq!(Some(fixture.state(id).await), state);
        assert_eq!(fixture.delivery(id).await.due_at, None);
    }
    fixture.clock.advance(secs(100_000));
    assert!(fixture.ready().await.is_empty());
}

pub async fn many_lanes_are_served_each_with_its_own_work(fixture: &StoreFixture<'_>) {
    let numbers: Vec<u32> = (0..300).collect();
    fixture.store.accept(numbers.iter().map(|n| message("acme", *n)).collect()).await.unwrap();
    let ready = fixture.store.ready_lanes(1000).await.unwrap();
    assert_eq!(ready.len(), 300);
    for lane in ready {
        let leased = fixture.store.lease(lane.id, 10, LEASE).await.unwrap();
        assert_eq!(leased.len(), 1);
        assert!(url(&leased[0].target).starts_with(&*lane.key.provider));
    }
    assert!(fixture.ready().await.is_empty());
}

pub async fn more_work_than_fits_in_memory_is_served_in_order(fixture: &StoreFixture<'_>) {
    let mut accepted: Vec<DeliveryId> = Vec::new();
    for _ in 0..20 {
        accepted.extend(fixture.accept(batch("acme", &[1; 500])).await.1);
        fixture.clock.advance(Duration::from_millis(1));
    }
    let mut served = Vec::new();
    loop {
        let leased = fixture.lease(700).await;
        if leased.is_empty() {
            break;
        }
        for item in &leased {
            fixture.settle_with(item, Decision::Done, Vec::new()).await;
        }
        served.extend(leased.into_iter().map(|l| l.delivery));
    }
    assert_eq!(served, accepted);
}
