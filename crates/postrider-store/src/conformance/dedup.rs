//! Promises about repeats.

use super::fixture::*;

const DAY: u64 = 86_400;

pub async fn a_repeated_key_gets_the_first_answer(fixture: &StoreFixture<'_>) {
    let (message, deliveries) = fixture.accept(keyed(1, 1, secs(DAY))).await;
    let again = fixture.store.accept(vec![keyed(1, 1, secs(DAY))]).await.unwrap();
    assert_eq!(again, [Admission::Duplicate { message, deliveries }]);
    assert_eq!(fixture.lease(10).await.len(), 1, "a repeat never reaches the queue");
}

pub async fn a_repeat_is_known_without_accepting_anything(fixture: &StoreFixture<'_>) {
    let key = |key, body| keyed(key, body, secs(DAY)).dedup.unwrap();
    let (message, deliveries) = fixture.accept(keyed(1, 1, secs(DAY))).await;
    let asked =
        async || fixture.store.repeats(vec![key(1, 1), key(2, 1), key(1, 2)]).await.unwrap();
    let first = Some(Admission::Duplicate { message, deliveries });
    assert_eq!(asked().await, [first, None, Some(Admission::Conflict { message })]);
    fixture.clock.advance(secs(DAY));
    assert_eq!(asked().await, [None, None, None], "outside of its window nothing is a repeat");
    assert_eq!(fixture.lease(10).await.len(), 1);
}

pub async fn a_key_with_another_body_is_a_conflict(fixture: &StoreFixture<'_>) {
    let (message, _) = fixture.accept(keyed(1, 1, secs(DAY))).await;
    let again = fixture.store.accept(vec![keyed(1, 2, secs(DAY))]).await.unwrap();
    assert_eq!(again, [Admission::Conflict { message }]);
}

pub async fn a_key_repeated_within_a_batch_counts(fixture: &StoreFixture<'_>) {
    let batch = vec![keyed(1, 1, secs(DAY)), keyed(2, 1, secs(DAY)), keyed(1, 1, secs(DAY))];
    let answers = fixture.store.accept(batch).await.unwrap();
    let Admission::Accepted { message, deliveries } = answers[0].clone() else { panic!() };
    assert!(matches!(answers[1], Admission::Accepted { .. }));
    assert_eq!(answers[2], Admission::Duplicate { message, deliveries });
}

pub async fn a_key_is_free_again_when_its_window_ends(fixture: &StoreFixture<'_>) {
    for (key, window) in [(1, secs(DAY)), (2, secs(28 * DAY))] {
        let (first, _) = fixture.accept(keyed(key, 1, window)).await;
        fixture.clock.advance(window - secs(1));
        let again = fixture.store.accept(vec![keyed(key, 1, window)]).await.unwrap();
        assert!(matches!(&again[0], Admission::Duplicate { message, .. } if *message == first));
        fixture.clock.advance(secs(1));
        fixture.store.prune(&Retention::of(secs(100 * DAY))).await.unwrap();
        let (second, _) = fixture.accept(keyed(key, 1, window)).await;
        assert_ne!(first, second);
        let again = fixture.store.accept(vec![keyed(key, 1, window)]).await.unwrap();
        assert!(matches!(&again[0], Admission::Duplicate { message, .. } if *message == second));
    }
}

/// Otherwise a repeat of scheduled work would be sent a second time.
pub async fn a_key_lives_at_least_as_long_as_its_message(fixture: &StoreFixture<'_>) {
    for (key, days) in [(1, 2), (2, 28)] {
        let mut new = keyed(key, 1, secs(DAY));
        new.send_at = Some(fixture.now() + secs(days * DAY));
        let (first, _) = fixture.accept(new.clone()).await;
        fixture.clock.advance(secs(days * DAY + u64::from(new.ttl_s) - 1));
        let again = fixture.store.accept(vec![new.clone()]).await.unwrap();
        assert!(
            matches!(&again[0], Admission::Duplicate { message, .. } if *message == first),
            "{again:?}"
        );
        fixture.clock.advance(secs(2));
        let again = fixture.store.accept(vec![new]).await.unwrap();
        assert!(matches!(again[0], Admission::Accepted { .. }), "{again:?}");
    }
}

fn member(number: u64) -> DedupKey {
    keyed(number, 0, secs(DAY)).dedup.unwrap()
}

/// A message to several addresses, each with a key.
fn list(numbers: &[u32]) -> NewMessage {
    let member_keys = numbers.iter().map(|number| member(u64::from(*number))).collect();
    NewMessage { member_keys, ..batch("acme", numbers) }
}

pub async fn a_list_is_accepted_only_if_none_of_its_deliveries_is_a_repeat(
    fixture: &StoreFixture<'_>,
) {
    let (first, deliveries) = fixture.accept(list(&[1, 2])).await;
    assert_eq!(deliveries.len(), 2);
    let again = fixture.store.accept(vec![list(&[3, 2, 4])]).await.unwrap();
    assert_eq!(again, [Admission::RepeatedMembers { places: vec![1], message: first }]);
    let (second, rest) = fixture.accept(list(&[3, 4])).await;
    assert_eq!(rest.len(), 2, "the refused list took no key");
    let lone = NewMessage { dedup: Some(member(2)), ..message("acme", 2) };
    let again = fixture.store.accept(vec![lone.clone()]).await.unwrap();
    assert!(matches!(&again[0], Admission::Duplicate { message, .. } if *message == first));
    let both = vec![list(&[5, 6]), list(&[6, 7])];
    let answers = fixture.store.accept(both).await.unwrap();
    let Admission::Accepted { message: third, .. } = answers[0] else { panic!("{answers:?}") };
    let repeat = Admission::RepeatedMembers { places: vec![0], message: third };
    assert_eq!(answers[1], repeat, "within a batch, too");
    let fixture = &fixture.after_crash().await;
    let again = fixture.store.accept(vec![list(&[8, 4])]).await.unwrap();
    assert_eq!(again, [Admission::RepeatedMembers { places: vec![1], message: second }]);
    assert_eq!(fixture.lease(100).await.len(), 6, "what is refused is not written");
    fixture.clock.advance(secs(2 * DAY));
    fixture.accept(list(&[1, 2])).await;
}

pub async fn a_delivery_of_a_list_is_known_by_a_single_message(fixture: &StoreFixture<'_>) {
    let lone = NewMessage { dedup: Some(member(1)), ..message("acme", 1) };
    let (first, _) = fixture.accept(lone).await;
    let answers = fixture.store.accept(vec![list(&[1, 2])]).await.unwrap();
    assert_eq!(answers, [Admission::RepeatedMembers { places: vec![0], message: first }]);
}

pub async fn keys_survive_a_restart(fixture: &StoreFixture<'_>) {
    let (message, deliveries) = fixture.accept(keyed(1, 1, secs(DAY))).await;
    let Some(fixture) = fixture.reopened().await else { return };
    let again = fixture.store.accept(vec![keyed(1, 1, secs(DAY))]).await.unwrap();
    assert_eq!(again, [Admission::Duplicate { message, deliveries }]);
}

pub async fn many_keys_are_distinguished(fixture: &StoreFixture<'_>) {
    let mut first = Vec::new();
    for chunk in 0..12u64 {
        let keys = (chunk * 250..(chunk + 1) * 250).map(|key| {
            let window = if key % 5 == 0 { secs(7 * DAY) } else { secs(DAY) };
            keyed(key, 1, window)
        });
        first.extend(fixture.store.accept(keys.collect()).await.unwrap());
        fixture.clock.advance(secs(600));
    }
    assert!(first.iter().all(|answer| matches!(answer, Admission::Accepted { .. })));
    let fixture = &fixture.after_crash().await;
    for key in 0..3000 {
        let again = fixture.store.accept(vec![keyed(key, 1, secs(DAY))]).await.unwrap();
        let Admission::Accepted { message, .. } = first[key as usize] else { panic!() };
        assert!(
            matches!(&again[0], Admission::Duplicate { message: m, .. } if *m == message),
            "key {key}: {again:?}"
        );
    }
    fixture.accept(keyed(1_000_000, 1, secs(DAY))).await;
}

pub async fn a_duplicate_of_forgotten_work_still_names_its_message(fixture: &StoreFixture<'_>) {
    let (message, _) = fixture.accept(keyed(1, 1, secs(DAY))).await;
    fixture.settle_next(Decision::Done).await;
    fixture.clock.advance(secs(100));
    assert_eq!(fixture.store.prune(&Retention::of(secs(10))).await.unwrap().deleted, 1);
    let again = fixture.store.accept(vec![keyed(1, 1, secs(DAY))]).await.unwrap();
    assert_eq!(again, [Admission::Duplicate { message, deliveries: Vec::new() }]);
}
