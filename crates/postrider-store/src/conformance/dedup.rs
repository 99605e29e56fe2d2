//! Promises about repeats.

use postrider_core::model::decision::Decision;
use postrider_core::ports::store::Admission;

use super::kit::{Bench, keyed, secs};

const DAY: u64 = 86_400;

pub async fn a_repeated_key_gets_the_first_answer(bench: &Bench<'_>) {
    let (message, deliveries) = bench.accept(keyed(1, 1, secs(DAY))).await;
    let again = bench.store.accept(vec![keyed(1, 1, secs(DAY))]).await.unwrap();
    assert_eq!(again, [Admission::Duplicate { message, deliveries }]);
    assert_eq!(bench.lease(10).await.len(), 1, "a repeat never reaches the queue");
}

pub async fn a_repeat_is_known_without_taking_anything_in(bench: &Bench<'_>) {
    let key = |key, body| keyed(key, body, secs(DAY)).dedup.unwrap();
    let (message, deliveries) = bench.accept(keyed(1, 1, secs(DAY))).await;
    let asked = async || bench.store.repeats(vec![key(1, 1), key(2, 1), key(1, 2)]).await.unwrap();
    let first = Some(Admission::Duplicate { message, deliveries });
    assert_eq!(asked().await, [first, None, Some(Admission::Conflict { message })]);
    bench.clock.advance(secs(DAY));
    assert_eq!(asked().await, [None, None, None], "outside of its window nothing is a repeat");
    assert_eq!(bench.lease(10).await.len(), 1);
}

pub async fn a_key_with_another_body_is_a_conflict(bench: &Bench<'_>) {
    let (message, _) = bench.accept(keyed(1, 1, secs(DAY))).await;
    let again = bench.store.accept(vec![keyed(1, 2, secs(DAY))]).await.unwrap();
    assert_eq!(again, [Admission::Conflict { message }]);
}

pub async fn a_key_repeated_within_a_batch_counts(bench: &Bench<'_>) {
    let batch = vec![keyed(1, 1, secs(DAY)), keyed(2, 1, secs(DAY)), keyed(1, 1, secs(DAY))];
    let answers = bench.store.accept(batch).await.unwrap();
    let Admission::Accepted { message, deliveries } = answers[0].clone() else { panic!() };
    assert!(matches!(answers[1], Admission::Accepted { .. }));
    assert_eq!(answers[2], Admission::Duplicate { message, deliveries });
}

pub async fn a_key_is_free_again_when_its_window_ends(bench: &Bench<'_>) {
    for (key, window) in [(1, secs(DAY)), (2, secs(28 * DAY))] {
        let (first, _) = bench.accept(keyed(key, 1, window)).await;
        bench.clock.advance(window - secs(1));
        let again = bench.store.accept(vec![keyed(key, 1, window)]).await.unwrap();
        assert!(matches!(&again[0], Admission::Duplicate { message, .. } if *message == first));
        bench.clock.advance(secs(1));
        bench.store.prune(secs(100 * DAY)).await.unwrap();
        let (second, _) = bench.accept(keyed(key, 1, window)).await;
        assert_ne!(first, second);
        let again = bench.store.accept(vec![keyed(key, 1, window)]).await.unwrap();
        assert!(matches!(&again[0], Admission::Duplicate { message, .. } if *message == second));
    }
}

pub async fn keys_survive_a_restart(bench: &Bench<'_>) {
    let (message, deliveries) = bench.accept(keyed(1, 1, secs(DAY))).await;
    let Some(bench) = bench.reopened().await else { return };
    let again = bench.store.accept(vec![keyed(1, 1, secs(DAY))]).await.unwrap();
    assert_eq!(again, [Admission::Duplicate { message, deliveries }]);
}

pub async fn many_keys_are_told_apart(bench: &Bench<'_>) {
    let mut first = Vec::new();
    for chunk in 0..12u64 {
        let keys = (chunk * 250..(chunk + 1) * 250).map(|key| {
            let window = if key % 5 == 0 { secs(7 * DAY) } else { secs(DAY) };
            keyed(key, 1, window)
        });
        first.extend(bench.store.accept(keys.collect()).await.unwrap());
        bench.clock.advance(secs(600));
    }
    assert!(first.iter().all(|answer| matches!(answer, Admission::Accepted { .. })));
    let reopened = bench.reopened().await;
    let bench = reopened.as_ref().unwrap_or(bench);
    for key in 0..3000 {
        let again = bench.store.accept(vec![keyed(key, 1, secs(DAY))]).await.unwrap();
        let Admission::Accepted { message, .. } = first[key as usize] else { panic!() };
        assert!(
            matches!(&again[0], Admission::Duplicate { message: m, .. } if *m == message),
            "key {key}: {again:?}"
        );
    }
    bench.accept(keyed(1_000_000, 1, secs(DAY))).await;
}

pub async fn a_duplicate_of_forgotten_work_still_names_its_message(bench: &Bench<'_>) {
    let (message, _) = bench.accept(keyed(1, 1, secs(DAY))).await;
    let leased = bench.lease_one().await;
    bench.settle(&leased, Decision::Done).await;
    bench.clock.advance(secs(100));
    assert_eq!(bench.store.prune(secs(10)).await.unwrap(), 1);
    let again = bench.store.accept(vec![keyed(1, 1, secs(DAY))]).await.unwrap();
    assert_eq!(again, [Admission::Duplicate { message, deliveries: Vec::new() }]);
}
