//! Promises about several consumers of one store: each speaks of what it holds, and the work of one that ends comes to
//! the others. How much each holds is the store's affair.

use std::collections::{HashMap, HashSet};

use super::fixture::*;

/// More than any store takes to find out that a consumer is dead.
const TAKEN_OVER: Duration = Duration::from_secs(10);
const LANES: u32 = 20;

async fn consumer(fixture: &StoreFixture<'_>, node: &str) -> Arc<dyn Consumer> {
    fixture.store.store().consumer(node).await.unwrap()
}

async fn accept_some(fixture: &StoreFixture<'_>) -> HashSet<DeliveryId> {
    let numbers: Vec<_> = (0..LANES).flat_map(|lane| [lane; 3]).collect();
    fixture.accept(batch("acme", &numbers)).await.1.into_iter().collect()
}

/// Everything that a consumer can lease.
async fn lease_all(consumer: &dyn Consumer, max: usize) -> Vec<LeasedDelivery> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        for lane in consumer.ready_lanes(1000).await.unwrap() {
            let room = max - all.len();
            all.extend(consumer.lease(lane.id, room.min(100), LEASE).await.unwrap());
        }
        if all.len() == before {
            return all;
        }
    }
}

fn ids(leased: &[LeasedDelivery]) -> HashSet<DeliveryId> {
    leased.iter().map(|leased| leased.delivery).collect()
}

async fn settle(
    consumer: &dyn Consumer,
    leased: &LeasedDelivery,
    decision: Decision,
) -> SettleResult {
    let (delivery, token) = (leased.delivery, leased.token);
    let (attempts, learned) = (Vec::new(), AddressLearning::default());
    let settlement = Settlement { delivery, token, attempts, decision, learned };
    consumer.settle(vec![settlement]).await.remove(0).unwrap()
}

pub async fn no_delivery_is_leased_by_two_consumers(fixture: &StoreFixture<'_>) {
    let (a, b) = (consumer(fixture, "a").await, consumer(fixture, "b").await);
    let all = accept_some(fixture).await;
    let (ours, theirs) = (lease_all(&*a, 1000).await, lease_all(&*b, 1000).await);
    assert!(ids(&ours).is_disjoint(&ids(&theirs)));
    assert_eq!(ours.len() + theirs.len(), all.len(), "somebody leases each of them");
    for (consumer, leased) in [(&a, &ours), (&b, &theirs)] {
        for leased in leased {
            assert_eq!(settle(&**consumer, leased, Decision::Done).await, SettleResult::Done);
        }
    }
    assert_eq!(fixture.counts().await.states.get(&State::Sent), Some(&(all.len() as u64)));
}

pub async fn one_consumer_leads(fixture: &StoreFixture<'_>) {
    let (a, b) = (consumer(fixture, "a").await, consumer(fixture, "b").await);
    assert!(a.leads() && !b.leads());
    a.close().await;
    fixture.clock.advance(TAKEN_OVER);
    b.ready_lanes(1).await.unwrap();
    assert!(b.leads() && !a.leads());
}

pub async fn a_consumer_that_closes_hands_over_in_order(fixture: &StoreFixture<'_>) {
    let (a, b) = (consumer(fixture, "a").await, consumer(fixture, "b").await);
    let all = accept_some(fixture).await;
    let leased = lease_all(&*a, 7).await;
    let theirs = lease_all(&*b, 1000).await;
    a.close().await;
    fixture.clock.advance(TAKEN_OVER);
    let mut rest = lease_all(&*b, 1000).await;
    assert!(rest.iter().all(|leased| leased.crashes == 0), "a clean end is no crash");
    rest.extend(theirs);
    assert_eq!(ids(&rest), all, "what was leased is due again");
    assert!(lease_all(&*a, 1000).await.is_empty());
    assert_eq!(settle(&*a, &leased[0], Decision::Done).await, SettleResult::Fenced);
    assert_eq!(fixture.state(leased[0].delivery).await, State::Sending);
}

/// Nobody waits until the leases of the dead one end.
pub async fn the_work_of_a_dead_consumer_comes_to_the_others(fixture: &StoreFixture<'_>) {
    let (a, b) = (consumer(fixture, "a").await, consumer(fixture, "b").await);
    let all = accept_some(fixture).await;
    let mut dead = lease_all(&*a, 7).await;
    assert!(!dead.is_empty());
    assert_eq!(settle(&*a, &dead[0], Decision::Done).await, SettleResult::Done);
    let done = dead.remove(0).delivery;
    let mut theirs = lease_all(&*b, 1000).await;
    drop(a);
    fixture.clock.advance(TAKEN_OVER);
    theirs.extend(lease_all(&*b, 1000).await);
    let expected: HashSet<_> = all.into_iter().filter(|id| *id != done).collect();
    assert_eq!(ids(&theirs), expected);
    let crashes: HashMap<_, _> = theirs.iter().map(|l| (l.delivery, l.crashes)).collect();
    for (id, count) in crashes {
        let was_in_flight = dead.iter().any(|leased| leased.delivery == id);
        assert_eq!(count, u32::from(was_in_flight), "only what it had leased was in flight");
    }
}

pub async fn a_restarted_worker_takes_its_own_work_back_at_once(fixture: &StoreFixture<'_>) {
    let old = consumer(fixture, "a").await;
    let all = accept_some(fixture).await;
    let leased = lease_all(&*old, 1000).await;
    let new = consumer(fixture, "a").await;
    let again = lease_all(&*new, 1000).await;
    assert_eq!(ids(&again), all);
    assert!(again.iter().all(|leased| leased.crashes == 1), "the old one did not close");
    assert_eq!(settle(&*old, &leased[0], Decision::Done).await, SettleResult::Fenced);
    let start = vec![(leased[0].delivery, leased[0].token)];
    assert_eq!(old.start(start).await.unwrap(), [false]);
    old.suspend(
        new.ready_lanes(1).await.unwrap().first().map_or(LaneId(0), |l| l.id),
        Timestamp::MAX,
    );
    old.close().await;
    drop(old);
    assert_eq!(settle(&*new, &again[0], Decision::Release).await, SettleResult::Done);
    assert_eq!(lease_all(&*new, 1000).await.len(), 1, "the end of the old one changes nothing");
    fixture.accept_one().await;
    assert_eq!(lease_all(&*new, 1000).await.len(), 1);
}

pub async fn suspended_lanes_are_those_of_one_consumer(fixture: &StoreFixture<'_>) {
    let a = consumer(fixture, "a").await;
    fixture.accept_one().await;
    let lane = a.ready_lanes(1).await.unwrap()[0].id;
    a.suspend(lane, Timestamp::MAX);
    assert!(a.ready_lanes(1).await.unwrap().is_empty());
    let b = consumer(fixture, "b").await;
    a.close().await;
    fixture.clock.advance(TAKEN_OVER);
    assert_eq!(lease_all(&*b, 10).await.len(), 1);
}

pub async fn waiting_ends_when_a_consumer_gets_work_of_another(fixture: &StoreFixture<'_>) {
    let (a, b) = (consumer(fixture, "a").await, consumer(fixture, "b").await);
    fixture.accept_one().await;
    let (holder, other) = match a.ready_lanes(1).await.unwrap().is_empty() {
        true => (b, a),
        false => (a, b),
    };
    other.ready_lanes(1).await.unwrap();
    let waiting = tokio::spawn(async move {
        other.wait_for_work(Duration::from_secs(600)).await;
        lease_all(&*other, 10).await.len()
    });
    tokio::task::yield_now().await;
    drop(holder);
    fixture.clock.advance(TAKEN_OVER);
    let leased = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert_eq!(leased.expect("it was woken").unwrap(), 1);
}

/// An answer may be lost on its way. Whoever asks again gets the same one, and nothing happens twice.
pub async fn a_repeat_after_a_lost_answer_changes_nothing(fixture: &StoreFixture<'_>) {
    let new = keyed(7, 1, secs(3600));
    let first = fixture.store.accept(vec![new.clone()]).await.unwrap().remove(0);
    let Admission::Accepted { message: id, deliveries } = first else { panic!("{first:?}") };
    let second = fixture.store.accept(vec![new]).await.unwrap().remove(0);
    assert_eq!(second, Admission::Duplicate { message: id, deliveries: deliveries.clone() });

    let a = consumer(fixture, "a").await;
    let leased = lease_all(&*a, 10).await;
    assert_eq!(leased.len(), 1);
    for _ in 0..3 {
        let again = Decision::Retry { after: secs(5), counted: true };
        assert_eq!(settle(&*a, &leased[0], again).await, SettleResult::Done);
    }
    fixture.clock.advance(secs(5));
    let leased = lease_all(&*a, 10).await;
    for _ in 0..3 {
        assert_eq!(settle(&*a, &leased[0], Decision::Done).await, SettleResult::Done);
    }
    let counts = fixture.counts().await;
    assert_eq!((counts.messages, counts.states.get(&State::Sent)), (1, Some(&1)));
}

/// One bad message of a batch is refused alone.
pub async fn each_message_of_a_batch_has_its_own_answer(fixture: &StoreFixture<'_>) {
    let keys = [keyed(1, 1, secs(60)), keyed(1, 2, secs(60)), keyed(1, 1, secs(60))];
    let mut batch = vec![message("acme", 1)];
    batch.extend(keys);
    batch.push(message("acme", 2));
    let answers = fixture.store.store().accept(batch).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert!(matches!(answers[0], Admission::Accepted { .. }));
    assert!(matches!(answers[1], Admission::Accepted { .. }));
    assert!(matches!(answers[2], Admission::Conflict { .. }));
    assert!(matches!(answers[3], Admission::Duplicate { .. }));
    assert!(matches!(answers[4], Admission::Accepted { .. }));
}

pub async fn the_clock_of_the_store_is_the_one_it_was_given(fixture: &StoreFixture<'_>) {
    let clock = fixture.store.store().clock();
    assert_eq!(clock.now(), fixture.now());
    fixture.clock.advance(secs(1000));
    assert_eq!(clock.now(), fixture.now());
    let id = fixture.accept_one().await;
    assert_eq!(fixture.delivery(id).await.created_at, clock.now());
}
