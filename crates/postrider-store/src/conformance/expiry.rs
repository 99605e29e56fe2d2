//! Promises about expiry, load and alternatives.

use super::fixture::*;
use super::waiting::{stays_asleep, wakes};

async fn expired(fixture: &StoreFixture<'_>) -> Vec<DeliveryId> {
    let leased = fixture.store.lease_expired(100, LEASE).await.unwrap();
    leased.into_iter().map(|(_, leased)| leased.delivery).collect()
}

pub async fn expired_work_is_leased_whatever_its_lane_does(fixture: &StoreFixture<'_>) {
    let first = fixture.accept(NewMessage { ttl_s: 20, ..message("acme", 1) }).await.1[0];
    let send_at = Some(fixture.now() + secs(5));
    let second = fixture.accept(NewMessage { ttl_s: 20, send_at, ..message("acme", 2) }).await.1[0];
    let third = fixture.accept(NewMessage { ttl_s: 5000, ..message("acme", 1) }).await.1[0];
    for lane in fixture.ready().await {
        fixture.store.suspend(lane, fixture.now() + secs(100_000));
    }
    fixture.clock.advance(secs(19));
    assert!(expired(fixture).await.is_empty());
    fixture.clock.advance(secs(1));
    let leased = fixture.store.lease_expired(100, LEASE).await.unwrap();
    assert_eq!(leased.len(), 1);
    let (key, leased) = &leased[0];
    assert_eq!((leased.delivery, key), (first, &lane("acme", 1)));
    assert_eq!(leased.expires_at, fixture.now());
    assert!(expired(fixture).await.is_empty(), "it is leased");
    assert_eq!(fixture.settle(leased, Decision::Expire).await, SettleResult::Done);
    fixture.clock.advance(secs(5));
    assert_eq!(expired(fixture).await, [second]);
    fixture.clock.advance(secs(5000));
    assert_eq!(expired(fixture).await, [second, third], "a lease that ended does not protect it");
    assert_eq!(fixture.depths(None, 10).await, [(0, 1), (0, 1)]);
}

/// Two clocks differ. What is over by one of them only is not over.
pub async fn nothing_ends_or_is_forgotten_while_the_clock_is_in_doubt(fixture: &StoreFixture<'_>) {
    let month = secs(30 * 86_400);
    let old = fixture.accept(message("acme", 1)).await.1[0];
    fixture.settle_next(Decision::Done).await;
    let pending = fixture.accept(keyed(1, 1, secs(60))).await.1[0];
    let repeat =
        async || fixture.store.accept(vec![keyed(1, 1, secs(60))]).await.unwrap().remove(0);
    fixture.clock.doubt(2 * month);
    fixture.clock.advance(2 * month);
    assert!(expired(fixture).await.is_empty());
    assert!(matches!(repeat().await, Admission::Duplicate { .. }));
    let key = keyed(1, 1, secs(60)).dedup.unwrap();
    assert!(fixture.store.repeats(vec![key]).await.unwrap()[0].is_some());
    assert_eq!(fixture.store.prune(&Retention::of(month)).await.unwrap().deleted, 0);
    assert_eq!(fixture.state(old).await, State::Sent);
    fixture.ready().await;
    assert!(stays_asleep(fixture).await, "there is nothing to do meanwhile");

    let end = async || {
        fixture.clock.doubt(Duration::ZERO);
        fixture.clock.advance(secs(1));
    };
    assert!(wakes(fixture, end).await);
    assert_eq!(expired(fixture).await, [pending]);
    assert_eq!(fixture.store.prune(&Retention::of(month)).await.unwrap().deleted, 1);
    assert!(matches!(repeat().await, Admission::Accepted { .. }));
}

pub async fn expired_work_is_found_after_a_restart(fixture: &StoreFixture<'_>) {
    let (_, ids) = fixture.accept(batch("acme", &[1, 2, 3])).await;
    fixture.clock.advance(secs(70));
    let later = fixture.accept(message("acme", 1)).await.1[0];
    let Some(fixture) = fixture.reopened().await else { return };
    fixture.clock.advance(secs(3530));
    assert_eq!(expired(&fixture).await, ids);
    let Some(fixture) = fixture.reopened().await else { return };
    fixture.clock.advance(secs(70));
    assert_eq!(expired(&fixture).await, [ids, vec![later]].concat());
}

pub async fn work_accepted_right_after_a_crash_expires(fixture: &StoreFixture<'_>) {
    let (_, mut ids) = fixture.accept(batch("acme", &[1, 2])).await;
    let fixture = &fixture.after_crash().await;
    ids.extend(fixture.accept(batch("acme", &[1, 2])).await.1);
    fixture.clock.advance(secs(3600));
    assert_eq!(expired(fixture).await, ids);
}

pub async fn expiry_follows_a_replay(fixture: &StoreFixture<'_>) {
    let id = fixture.accept(NewMessage { ttl_s: 100, ..message("acme", 1) }).await.1[0];
    fixture.clock.advance(secs(90));
    fixture.settle_next(Decision::DeadLetter(DeadReason::Permanent)).await;
    fixture.clock.advance(secs(10));
    assert!(expired(fixture).await.is_empty(), "a dead letter does not expire");
    let how = Replay { ttl_s: Some(500), ..Replay::default() };
    fixture.store.replay(None, Selection::Ids(vec![id]), how).await.unwrap();
    fixture.clock.advance(secs(499));
    assert!(expired(fixture).await.is_empty());
    fixture.clock.advance(secs(1));
    assert_eq!(expired(fixture).await, [id]);
}

pub async fn finished_work_does_not_expire(fixture: &StoreFixture<'_>) {
    for wait in [0, 70] {
        let (id, _) = fixture.accept(batch("acme", &[1, 1, 2])).await;
        fixture.clock.advance(secs(wait));
        let leased = fixture.lease_all().await;
        fixture.settle(&leased[0], Decision::Done).await;
        fixture.settle(&leased[1], retry(5)).await;
        fixture.settle(&leased[2], Decision::Done).await;
        fixture.store.cancel(None, id).await.unwrap();
        fixture.clock.advance(secs(3600));
        assert!(expired(fixture).await.is_empty());
    }
}

pub async fn waiting_ends_for_those_who_lease_expired_work(fixture: &StoreFixture<'_>) {
    fixture.accept(NewMessage { ttl_s: 20, ..message("acme", 1) }).await;
    let lane = fixture.ready().await[0];
    fixture.store.suspend(lane, fixture.now() + secs(100_000));
    fixture.ready().await;
    fixture.clock.advance(secs(30));
    assert!(stays_asleep(fixture).await, "nobody took expired deliveries yet");
    assert_eq!(expired(fixture).await.len(), 1);
    fixture.accept(NewMessage { ttl_s: 20, ..message("acme", 1) }).await;
    fixture.ready().await;
    assert!(wakes(fixture, async || fixture.clock.advance(secs(20))).await);
    assert_eq!(expired(fixture).await.len(), 1);
}

pub async fn the_load_is_what_is_pending(fixture: &StoreFixture<'_>) {
    let body = r#"{"title":"hello"}"#.len() as u64;
    let address = r#"{"channel":"webhook","url":"https://host-1.example/hook"}"#.len() as u64;
    let of = |deliveries, bodies| Load { deliveries, bytes: bodies * body + deliveries * address };
    let other = TenantId::new("other");
    assert_eq!(fixture.load(None, Load::default()), Load::default());
    fixture.accept(message("other", 1)).await;
    let (fan, _) = fixture.accept(batch("acme", &[1, 1, 1])).await;
    fixture.accept(message("acme", 1)).await;
    assert_eq!(fixture.load(Some(&acme()), of(4, 2)), of(4, 2));
    assert_eq!(fixture.load(Some(&other), of(1, 1)), of(1, 1));
    assert_eq!(fixture.load(None, of(5, 3)), of(5, 3));
    let leased = fixture.lease_all().await;
    let of_fan: Vec<_> = leased.iter().filter(|l| l.message.id == fan).collect();
    fixture.settle(of_fan[0], Decision::Done).await;
    fixture.settle(of_fan[1], Decision::DeadLetter(DeadReason::Permanent)).await;
    fixture.settle(of_fan[2], retry(1)).await;
    assert_eq!(fixture.load(Some(&acme()), of(2, 2)), of(2, 2), "the body is still needed");
    let fixture = &fixture.after_crash().await;
    assert_eq!(fixture.load(Some(&acme()), of(2, 2)), of(2, 2));
    fixture.store.cancel(None, fan).await.unwrap();
    assert_eq!(fixture.load(Some(&acme()), of(1, 1)), of(1, 1), "a dead letter is not pending");
    let all = Selection::Filter(Default::default());
    fixture.store.replay(None, all, Replay::default()).await.unwrap();
    assert_eq!(fixture.load(None, of(3, 3)), of(3, 3));
}

fn with_alternatives(numbers: &[u32]) -> NewMessage {
    let alternatives = numbers.iter().map(|number| Alternative {
        lane: lane("acme", *number),
        target: Arc::new(webhook(*number)),
        hash: hash(*number),
        address: None,
        address_since: Some(Timestamp(7)),
    });
    let alternatives = alternatives.collect();
    let deliveries = vec![NewDelivery { alternatives, ..delivery_to("acme", 1) }];
    NewMessage { deliveries, ..message("acme", 1) }
}

pub async fn a_fallback_goes_to_the_next_address(fixture: &StoreFixture<'_>) {
    let id = fixture.accept(with_alternatives(&[2, 3])).await.1[0];
    let leased = fixture.lease_one().await;
    assert_eq!(leased.alternatives.len(), 2);
    fixture.settle(&leased, retry(1)).await;
    fixture.clock.advance(secs(1));
    let leased = fixture.lease_one().await;
    assert_eq!(fixture.settle(&leased, Decision::FallBack).await, SettleResult::Done);
    let view = fixture.delivery(id).await;
    assert_eq!((view.state, view.attempts, view.log.len()), (State::Queued, 0, 2));
    assert_eq!((&*view.provider, view.address_hash), ("https://host-2.example", hash(2)));
    let fixture = &fixture.after_crash().await;
    let ready = fixture.store.ready_lanes(10).await.unwrap();
    assert_eq!(
        ready.iter().map(|l| &*l.key.provider).collect::<Vec<_>>(),
        ["https://host-2.example"]
    );
    let leased = fixture.lease_one().await;
    assert_eq!((leased.delivery, leased.attempts, leased.tries), (id, 0, 2));
    assert_eq!((&*leased.target, leased.hash), (&webhook(2), hash(2)));
    assert_eq!(leased.address_since, Some(Timestamp(7)));
    assert_eq!(leased.alternatives.len(), 1);
    fixture.settle(&leased, Decision::Done).await;
    assert_eq!(fixture.store.load(None), Load::default());
    let counts = fixture.counts().await;
    assert_eq!(counts.states, std::collections::BTreeMap::from([(State::Sent, 1)]));
}

pub async fn a_fallback_without_another_address_waits(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    fixture.settle_next(Decision::FallBack).await;
    assert_eq!(fixture.state(id).await, State::Parked);
    assert!(fixture.ready().await.is_empty());
}
