//! Promises about suspended lanes.

use postrider_core::model::decision::Decision;

use super::kit::{Bench, LEASE, message, secs};
use super::waiting::{stays_asleep, wakes};

pub async fn a_suspended_lane_is_not_ready_until_its_time(bench: &Bench<'_>) {
    bench.accept(message("acme", 1)).await;
    bench.accept(message("acme", 2)).await;
    let lanes = bench.ready().await;
    bench.store.suspend(lanes[0], bench.now() + secs(10));
    assert_eq!(bench.ready().await, lanes[1..]);
    bench.accept(message("acme", 1)).await;
    bench.clock.advance(secs(9));
    assert_eq!(bench.ready().await, lanes[1..], "whatever arrives in it");
    assert_eq!(bench.store.lease(lanes[0], 1, LEASE).await.unwrap().len(), 1, "it can be served");
    bench.clock.advance(secs(1));
    assert_eq!(bench.ready().await.len(), 2);
}

pub async fn a_lane_suspended_again_has_the_newer_end(bench: &Bench<'_>) {
    bench.accept_one().await;
    let lane = bench.ready().await[0];
    bench.store.suspend(lane, bench.now() + secs(100));
    bench.store.suspend(lane, bench.now() + secs(10));
    bench.clock.advance(secs(10));
    assert_eq!(bench.ready().await, [lane]);
    bench.store.suspend(lane, bench.now() + secs(10));
    bench.store.suspend(lane, bench.now() + secs(100));
    bench.clock.advance(secs(10));
    assert!(bench.ready().await.is_empty());
}

pub async fn what_arrives_in_a_suspended_lane_wakes_nobody(bench: &Bench<'_>) {
    bench.accept_one().await;
    let leased = bench.lease_one().await;
    let lane = bench.store.lanes(None, 1).await.unwrap()[0].id;
    bench.store.suspend(lane, bench.now() + secs(1000));
    bench.ready().await;
    bench.accept_one().await;
    assert!(stays_asleep(bench).await, "by arrival");
    bench.settle(&leased, Decision::Retry { after: secs(5), counted: true }).await;
    bench.clock.advance(secs(5));
    assert!(stays_asleep(bench).await, "by time");
    assert!(wakes(bench, async || _ = bench.accept(message("acme", 2)).await).await, "others do");
}

pub async fn waiting_ends_when_a_lane_comes_back(bench: &Bench<'_>) {
    bench.accept_one().await;
    let lane = bench.ready().await[0];
    bench.store.suspend(lane, bench.now() + secs(30));
    bench.ready().await;
    assert!(wakes(bench, async || bench.clock.advance(secs(30))).await, "by its time");
    assert_eq!(bench.ready().await, [lane]);
    for which in [Some(lane), None] {
        bench.store.suspend(lane, bench.now() + secs(30));
        bench.ready().await;
        assert!(wakes(bench, async || bench.store.resume(which)).await, "when it is called");
        assert_eq!(bench.ready().await, [lane]);
    }
}

pub async fn a_lane_comes_back_to_work_that_is_due_later(bench: &Bench<'_>) {
    bench.accept_one().await;
    let leased = bench.lease_one().await;
    let lane = bench.store.lanes(None, 1).await.unwrap()[0].id;
    bench.settle(&leased, Decision::Retry { after: secs(20), counted: true }).await;
    bench.store.suspend(lane, bench.now() + secs(10));
    bench.ready().await;
    bench.clock.advance(secs(10));
    assert!(stays_asleep(bench).await, "nothing is due yet");
    assert!(wakes(bench, async || bench.clock.advance(secs(10))).await);
    assert_eq!(bench.ready().await, [lane]);
}
