//! Promises of receipts: states only move forward, in any order and however often.

use std::collections::BTreeMap;

use postrider_core::ReceiptKind;
use postrider_core::ports::store::ReceiptResult::{Early, Repeated, Unknown};

use super::fixture::*;

/// The state before and after, if it is recorded.
fn moved(result: &ReceiptResult) -> (State, State) {
    match result {
        ReceiptResult::Recorded { before, delivery } => (*before, delivery.state),
        other => panic!("not recorded: {other:?}"),
    }
}

async fn record(
    fixture: &StoreFixture<'_>,
    receipts: &[(DeliveryId, ReceiptKind)],
) -> Vec<ReceiptResult> {
    let new =
        |&(delivery, kind): &(DeliveryId, ReceiptKind)| NewReceipt { delivery, kind, at: None };
    let answers = fixture.store.record_receipts(receipts.iter().map(new).collect()).await;
    assert_eq!(answers.len(), receipts.len());
    answers.into_iter().map(Result::unwrap).collect()
}

async fn sent(fixture: &StoreFixture<'_>) -> DeliveryId {
    let leased = fixture.accept_and_lease(message("acme", 1)).await;
    fixture.settle(&leased, Decision::Done).await;
    leased.delivery
}

pub async fn receipts_move_a_sent_delivery_forward(fixture: &StoreFixture<'_>) {
    let id = sent(fixture).await;
    let before = fixture.delivery(id).await;
    fixture.clock.advance(secs(10));
    let happened = fixture.now() - secs(4);
    let new = NewReceipt { delivery: id, kind: ReceiptKind::Displayed, at: Some(happened) };
    let answer = fixture.store.record_receipts(vec![new]).await.remove(0).unwrap();
    assert_eq!(moved(&answer), (State::Sent, State::Seen));
    fixture.clock.advance(secs(10));
    let answers = record(fixture, &[(id, ReceiptKind::Clicked)]).await;
    assert_eq!(moved(&answers[0]), (State::Seen, State::Clicked));
    let check = async |fixture: &StoreFixture<'_>| {
        let after = fixture.delivery(id).await;
        assert_eq!((after.state, after.changed_at), (State::Clicked, fixture.now()));
        assert_eq!((&after.log, after.attempts), (&before.log, before.attempts));
        let times: Vec<_> = after.receipts.iter().map(|r| (r.kind, r.at, r.recorded_at)).collect();
        let (now, earlier) = (fixture.now(), fixture.now() - secs(10));
        let expected =
            [(ReceiptKind::Displayed, happened, earlier), (ReceiptKind::Clicked, now, now)];
        assert_eq!(times, expected);
    };
    let ReceiptResult::Recorded { delivery, .. } = &answers[0] else { panic!("recorded") };
    assert_eq!(**delivery, fixture.delivery(id).await, "the answer is what the ledger shows");
    check(fixture).await;
    if let Some(reopened) = fixture.reopened().await {
        check(&reopened).await;
    }
}

pub async fn receipts_in_any_order_and_repeated_end_in_the_same_state(fixture: &StoreFixture<'_>) {
    use ReceiptKind::*;
    let orders = [
        [Delivered, Displayed, Clicked],
        [Clicked, Delivered, Displayed],
        [Displayed, Clicked, Delivered],
    ];
    for kinds in orders {
        let id = sent(fixture).await;
        for kind in kinds {
            moved(&record(fixture, &[(id, kind)]).await[0]);
            assert_eq!(record(fixture, &[(id, kind)]).await, [Repeated]);
        }
        let delivery = fixture.delivery(id).await;
        assert_eq!((delivery.state, delivery.receipts.len()), (State::Clicked, 3), "{kinds:?}");
        assert_eq!(delivery.receipts.iter().map(|r| r.kind).collect::<Vec<_>>(), kinds);
    }
    let id = sent(fixture).await;
    let together = [Clicked, Displayed, Clicked, Dismissed, Delivered].map(|kind| (id, kind));
    let answers = record(fixture, &together).await;
    assert_eq!(moved(&answers[0]), (State::Sent, State::Clicked));
    assert_eq!(moved(&answers[1]), (State::Clicked, State::Clicked));
    assert_eq!(answers[2], Repeated);
    let delivery = fixture.delivery(id).await;
    assert_eq!((delivery.state, delivery.receipts.len()), (State::Clicked, 4));
    let counts = fixture.counts().await;
    assert_eq!(counts.states, BTreeMap::from([(State::Clicked, 4)]));
}

pub async fn counts_and_lists_follow_receipts(fixture: &StoreFixture<'_>) {
    use ReceiptKind::*;
    let (message, deliveries) = fixture.accept(batch("acme", &[1, 2, 3, 4])).await;
    for leased in fixture.lease_all().await {
        fixture.settle(&leased, Decision::Done).await;
    }
    let told = [(deliveries[0], Displayed), (deliveries[1], Delivered), (deliveries[2], Bounced)];
    record(fixture, &told).await;
    let states = [State::Seen, State::Delivered, State::Gone, State::Sent];
    let expected: BTreeMap<_, _> = states.into_iter().map(|state| (state, 1)).collect();
    let check = async |fixture: &StoreFixture<'_>| {
        assert_eq!(fixture.counts().await.states, expected);
        let counts = fixture.store.counts(Some(&acme())).await.unwrap();
        assert_eq!((counts.messages, counts.states), (1, expected.clone()));
        let view = fixture.store.message(None, message).await.unwrap().expect("it is there");
        assert_eq!(view.states, expected);
        for (id, state) in deliveries.iter().zip(states) {
            let filter = DeliveryFilter {
                tenant: Some(acme()),
                state: Some(state),
                limit: 10,
                ..DeliveryFilter::default()
            };
            assert_eq!(fixture.all(filter, false).await, [*id], "{state}");
        }
    };
    check(fixture).await;
    if let Some(reopened) = fixture.reopened().await {
        check(&reopened).await;
    }
}

pub async fn a_receipt_before_the_result_is_early(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    let early = [(id, ReceiptKind::Displayed)];
    assert_eq!(record(fixture, &early).await, [Early], "it is queued");
    let leased = fixture.lease_one().await;
    assert_eq!(record(fixture, &early).await, [Early], "it is being sent");
    fixture.settle(&leased, Decision::Done).await;
    let delivery = fixture.delivery(id).await;
    assert_eq!((delivery.state, delivery.log.len()), (State::Sent, 1));
    assert!(delivery.receipts.is_empty(), "nothing was written");
    assert_eq!(moved(&record(fixture, &early).await[0]), (State::Sent, State::Seen));
}

pub async fn a_receipt_of_nothing_is_unknown(fixture: &StoreFixture<'_>) {
    let id = sent(fixture).await;
    let nobody = DeliveryId(id.0 ^ 1);
    let answers =
        record(fixture, &[(nobody, ReceiptKind::Clicked), (id, ReceiptKind::Clicked)]).await;
    assert_eq!(answers[0], Unknown);
    assert_eq!(moved(&answers[1]), (State::Sent, State::Clicked), "the others are recorded");
}

pub async fn a_receipt_wakes_nothing_that_ended_otherwise(fixture: &StoreFixture<'_>) {
    fixture.accept(batch("acme", &[1, 2, 3])).await;
    let leased = fixture.lease_all().await;
    let ends = [Decision::MarkGone, Decision::Drop, Decision::DeadLetter(DeadReason::Ambiguous)];
    for (leased, end) in leased.iter().zip(ends) {
        fixture.settle(leased, end).await;
    }
    let before = fixture.counts().await;
    for leased in &leased {
        let state = fixture.state(leased.delivery).await;
        let told = [(leased.delivery, ReceiptKind::Displayed)];
        assert_eq!(moved(&record(fixture, &told).await[0]), (state, state));
        assert_eq!(record(fixture, &told).await, [Repeated]);
        assert_eq!(fixture.delivery(leased.delivery).await.receipts.len(), 1, "it is evidence");
    }
    assert_eq!(fixture.counts().await, before);
    assert!(fixture.lease_all().await.is_empty());
    let dead = fixture.dead().await;
    let one = Selection::Ids(dead.clone());
    assert_eq!(fixture.store.replay(None, one, Replay::default()).await.unwrap(), 1);
    fixture.settle_next(Decision::Done).await;
    let replayed = fixture.delivery(dead[0]).await;
    assert_eq!((replayed.state, replayed.log.len()), (State::Sent, 2));
    assert_eq!(replayed.receipts.len(), 1, "attempts do not drop it");
    let told = [(dead[0], ReceiptKind::Displayed)];
    assert_eq!(moved(&record(fixture, &told).await[0]), (State::Sent, State::Seen));
    assert_eq!(fixture.delivery(dead[0]).await.receipts.len(), 1, "each kind once");
}

pub async fn a_receipt_keeps_its_delivery_for_longer(fixture: &StoreFixture<'_>) {
    let (seen, unseen) = (sent(fixture).await, sent(fixture).await);
    let day = secs(86_400);
    fixture.clock.advance(day * 5);
    record(fixture, &[(seen, ReceiptKind::Displayed)]).await;
    fixture.clock.advance(day * 3);
    let retention = Retention::of(day * 7);
    fixture.store.prune(&retention).await.unwrap();
    assert!(fixture.store.delivery(None, unseen).await.unwrap().is_none());
    assert_eq!(fixture.state(seen).await, State::Seen);
    fixture.clock.advance(day * 5);
    fixture.store.prune(&retention).await.unwrap();
    assert!(fixture.store.delivery(None, seen).await.unwrap().is_none(), "its time is over");
    assert_eq!(record(fixture, &[(seen, ReceiptKind::Clicked)]).await, [Unknown]);
    assert!(fixture.counts().await.states.values().all(|count| *count == 0));
}
