//! Promises about expiry, load and other places to go to.

use std::sync::Arc;

use postrider_core::model::decision::Decision;
use postrider_core::ports::store::{Alternative, Load, NewMessage, Replay, Selection, Settled};
use postrider_core::{DeadReason, DeliveryId, State, TenantId};

use super::kit::{Bench, LEASE, batch, delivery_to, hash, lane, message, secs, webhook};
use super::waiting::{stays_asleep, wakes};

async fn expired(bench: &Bench<'_>) -> Vec<DeliveryId> {
    let leased = bench.store.lease_expired(100, LEASE).await.unwrap();
    leased.into_iter().map(|(_, leased)| leased.delivery).collect()
}

pub async fn expired_work_is_leased_whatever_its_lane_does(bench: &Bench<'_>) {
    let first = bench.accept(NewMessage { ttl_s: 20, ..message("acme", 1) }).await.1[0];
    let send_at = Some(bench.now() + secs(5));
    let second = bench.accept(NewMessage { ttl_s: 20, send_at, ..message("acme", 2) }).await.1[0];
    let third = bench.accept(NewMessage { ttl_s: 5000, ..message("acme", 1) }).await.1[0];
    for lane in bench.ready().await {
        bench.store.suspend(lane, bench.now() + secs(100_000));
    }
    bench.clock.advance(secs(19));
    assert!(expired(bench).await.is_empty());
    bench.clock.advance(secs(1));
    let leased = bench.store.lease_expired(100, LEASE).await.unwrap();
    assert_eq!(leased.len(), 1);
    let (key, leased) = &leased[0];
    assert_eq!((leased.delivery, key), (first, &lane("acme", 1)));
    assert_eq!(leased.expires_at, bench.now());
    assert!(expired(bench).await.is_empty(), "it is leased");
    assert_eq!(bench.settle(leased, Decision::Expire).await, Settled::Done);
    bench.clock.advance(secs(5));
    assert_eq!(expired(bench).await, [second]);
    bench.clock.advance(secs(5000));
    assert_eq!(expired(bench).await, [second, third], "a lease that ended counts for nothing");
    let lanes = bench.store.lanes(None, 10).await.unwrap();
    assert_eq!(
        lanes.iter().map(|l| (l.pending, l.in_flight)).collect::<Vec<_>>(),
        [(0, 1), (0, 1)]
    );
}

pub async fn expired_work_is_found_after_a_restart(bench: &Bench<'_>) {
    let (_, ids) = bench.accept(batch("acme", &[1, 2, 3])).await;
    bench.clock.advance(secs(70));
    let later = bench.accept(message("acme", 1)).await.1[0];
    let Some(bench) = bench.reopened().await else { return };
    bench.clock.advance(secs(3530));
    assert_eq!(expired(&bench).await, ids);
    let Some(bench) = bench.reopened().await else { return };
    bench.clock.advance(secs(70));
    assert_eq!(expired(&bench).await, [ids, vec![later]].concat());
}

pub async fn expiry_follows_a_replay(bench: &Bench<'_>) {
    let id = bench.accept(NewMessage { ttl_s: 100, ..message("acme", 1) }).await.1[0];
    bench.clock.advance(secs(90));
    let leased = bench.lease_one().await;
    bench.settle(&leased, Decision::DeadLetter(DeadReason::Permanent)).await;
    bench.clock.advance(secs(10));
    assert!(expired(bench).await.is_empty(), "a dead letter does not expire");
    let how = Replay { ttl_s: Some(500), ..Replay::default() };
    bench.store.replay(None, Selection::Ids(vec![id]), how).await.unwrap();
    bench.clock.advance(secs(499));
    assert!(expired(bench).await.is_empty());
    bench.clock.advance(secs(1));
    assert_eq!(expired(bench).await, [id]);
}

pub async fn what_is_finished_does_not_expire(bench: &Bench<'_>) {
    for wait in [0, 70] {
        let (id, _) = bench.accept(batch("acme", &[1, 1, 2])).await;
        bench.clock.advance(secs(wait));
        let leased = bench.lease_all().await;
        bench.settle(&leased[0], Decision::Done).await;
        bench.settle(&leased[1], Decision::Retry { after: secs(5), counted: true }).await;
        bench.settle(&leased[2], Decision::Done).await;
        bench.store.cancel(None, id).await.unwrap();
        bench.clock.advance(secs(3600));
        assert!(expired(bench).await.is_empty());
    }
}

pub async fn waiting_ends_for_those_who_take_what_expired(bench: &Bench<'_>) {
    bench.accept(NewMessage { ttl_s: 20, ..message("acme", 1) }).await;
    let lane = bench.ready().await[0];
    bench.store.suspend(lane, bench.now() + secs(100_000));
    bench.ready().await;
    bench.clock.advance(secs(30));
    assert!(stays_asleep(bench).await, "nobody asked for it");
    assert_eq!(expired(bench).await.len(), 1);
    bench.accept(NewMessage { ttl_s: 20, ..message("acme", 1) }).await;
    bench.ready().await;
    assert!(wakes(bench, async || bench.clock.advance(secs(20))).await);
    assert_eq!(expired(bench).await.len(), 1);
}

pub async fn the_load_is_what_is_pending(bench: &Bench<'_>) {
    let body = r#"{"title":"hello"}"#.len() as u64;
    let address = r#"{"channel":"webhook","url":"https://host-1.example/hook"}"#.len() as u64;
    let of = |deliveries, bodies| Load { deliveries, bytes: bodies * body + deliveries * address };
    let (acme, other) = (TenantId::new("acme"), TenantId::new("other"));
    assert_eq!(bench.store.load(None), Load::default());
    bench.accept(message("other", 1)).await;
    let (fan, _) = bench.accept(batch("acme", &[1, 1, 1])).await;
    bench.accept(message("acme", 1)).await;
    assert_eq!(bench.store.load(Some(&acme)), of(4, 2));
    assert_eq!(bench.store.load(Some(&other)), of(1, 1));
    assert_eq!(bench.store.load(None), of(5, 3));
    let leased = bench.lease_all().await;
    let of_fan: Vec<_> = leased.iter().filter(|l| l.message.id == fan).collect();
    bench.settle(of_fan[0], Decision::Done).await;
    bench.settle(of_fan[1], Decision::DeadLetter(DeadReason::Permanent)).await;
    bench.settle(of_fan[2], Decision::Retry { after: secs(1), counted: true }).await;
    assert_eq!(bench.store.load(Some(&acme)), of(2, 2), "the body is still needed");
    let reopened = bench.reopened().await;
    let bench = reopened.as_ref().unwrap_or(bench);
    assert_eq!(bench.store.load(Some(&acme)), of(2, 2));
    bench.store.cancel(None, fan).await.unwrap();
    assert_eq!(bench.store.load(Some(&acme)), of(1, 1), "a dead letter is not pending");
    let all = Selection::Filter(Default::default());
    bench.store.replay(None, all, Replay::default()).await.unwrap();
    assert_eq!(bench.store.load(None), of(3, 3));
}

fn with_alternatives(numbers: &[u32]) -> NewMessage {
    let alternatives = numbers.iter().map(|number| Alternative {
        lane: lane("acme", *number),
        target: Arc::new(webhook(*number)),
        hash: hash(*number),
        address: None,
        address_since: Some(postrider_core::Timestamp(7)),
    });
    let alternatives = alternatives.collect();
    let deliveries =
        vec![postrider_core::ports::store::NewDelivery { alternatives, ..delivery_to("acme", 1) }];
    NewMessage { deliveries, ..message("acme", 1) }
}

pub async fn a_redirected_delivery_goes_to_its_next_place(bench: &Bench<'_>) {
    let id = bench.accept(with_alternatives(&[2, 3])).await.1[0];
    let leased = bench.lease_one().await;
    assert_eq!(leased.alternatives.len(), 2);
    bench.settle(&leased, Decision::Retry { after: secs(1), counted: true }).await;
    bench.clock.advance(secs(1));
    let leased = bench.lease_one().await;
    assert_eq!(bench.settle(&leased, Decision::FallBack).await, Settled::Done);
    let view = bench.delivery(id).await;
    assert_eq!((view.state, view.attempts, view.log.len()), (State::Queued, 0, 2));
    assert_eq!((&*view.provider, view.address_hash), ("https://host-2.example", hash(2)));
    let reopened = bench.reopened().await;
    let bench = reopened.as_ref().unwrap_or(bench);
    let ready = bench.store.ready_lanes(10).await.unwrap();
    assert_eq!(
        ready.iter().map(|l| &*l.key.provider).collect::<Vec<_>>(),
        ["https://host-2.example"]
    );
    let leased = bench.lease_one().await;
    assert_eq!((leased.delivery, leased.attempts, leased.tries), (id, 0, 2));
    assert_eq!((&*leased.target, leased.hash), (&webhook(2), hash(2)));
    assert_eq!(leased.address_since, Some(postrider_core::Timestamp(7)));
    assert_eq!(leased.alternatives.len(), 1);
    bench.settle(&leased, Decision::Done).await;
    assert_eq!(bench.store.load(None), Load::default());
    let counts = bench.store.counts(None).await.unwrap();
    assert_eq!(counts.states, std::collections::BTreeMap::from([(State::Sent, 1)]));
}

pub async fn a_redirect_to_nowhere_waits(bench: &Bench<'_>) {
    let id = bench.accept_one().await;
    let leased = bench.lease_one().await;
    bench.settle(&leased, Decision::FallBack).await;
    assert_eq!(bench.state(id).await, State::Parked);
    assert!(bench.ready().await.is_empty());
}
