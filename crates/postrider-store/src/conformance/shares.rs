//! Promises about rates that several nodes share.

use postrider_core::policy::limiter::Rate;

use super::fixture::*;

pub async fn nodes_together_make_no_more_calls_than_a_rate_allows(fixture: &StoreFixture<'_>) {
    let rate = Rate { per_s: 50.0, burst: 10, ramp_s: 0 };
    let (start, mut calls) = (fixture.now(), Vec::new());
    for round in 0..100u32 {
        for node in 0..3 {
            let want = (round * 7 + node * 13) % 40;
            let slice = fixture.store.store().grant("api", rate, want).await.unwrap();
            assert!(slice.calls <= want);
            calls.extend((0..slice.calls).map(|n| slice.at(n).max(fixture.now())));
        }
        fixture.clock.advance(Duration::from_millis(100));
    }
    calls.sort();
    for (n, at) in calls.iter().enumerate() {
        let earned = at.since(start).as_secs_f64() * rate.per_s + f64::from(rate.burst);
        assert!((n as f64) < earned + 1.0, "call {n} at {at}");
    }
    assert!(calls.len() >= 450, "the rate is used: {}", calls.len());
}

pub async fn rates_of_other_names_are_others(fixture: &StoreFixture<'_>) {
    let rate = Rate { per_s: 1.0, burst: 5, ramp_s: 0 };
    let store = fixture.store.store();
    let first = store.grant("a", rate, 100).await.unwrap();
    assert!(first.calls >= 5);
    let none = store.grant("a", rate, 100).await.unwrap();
    assert_eq!(none.calls, 0);
    assert!(none.from > fixture.now(), "it says when to ask again");
    assert_eq!(store.grant("b", rate, 100).await.unwrap().calls, first.calls);
}
