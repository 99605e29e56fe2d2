//! Workers of two regions over a shared store.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::RegionNumber;
use postrider_core::ports::store::*;
use postrider_store::ManualClock;
use postrider_store::conformance::message;

const LEASE: Duration = Duration::from_secs(60);

async fn accept(store: &dyn Store, region: Option<RegionNumber>, number: u32) {
    let mut new = message("acme", number);
    new.deliveries.iter_mut().for_each(|delivery| delivery.region = region);
    store.accept(vec![new]).await.remove(0).unwrap();
}

/// Some heartbeats of all, then everything that each can lease.
async fn leased(clock: &ManualClock, workers: &[&Arc<dyn Consumer>]) -> Vec<usize> {
    for _ in 0..4 {
        clock.advance(Duration::from_secs(1));
        for worker in workers {
            worker.ready_lanes(1).await.unwrap();
        }
    }
    let mut counts = Vec::new();
    for worker in workers {
        let mut count = 0;
        for lane in worker.ready_lanes(1_000).await.unwrap() {
            let leased = worker.lease(lane.id, 100, LEASE).await.unwrap();
            count += leased.len();
            let done = leased.iter().map(|leased| Settlement {
                delivery: leased.delivery,
                token: leased.token,
                attempts: Vec::new(),
                decision: postrider_core::Decision::Done,
                learned: AddressLearning::default(),
            });
            for settled in worker.settle(done.collect()).await {
                assert_eq!(settled.unwrap(), SettleResult::Done);
            }
        }
        counts.push(count);
    }
    counts
}

pub(crate) async fn pinned_work_waits_for_a_worker_of_its_region(
    store: Arc<dyn Store>,
    clock: &ManualClock,
) {
    let (eu, us) = (RegionNumber::new(0), RegionNumber::new(1));
    let somewhere = store.consumer("a").await.unwrap();
    let american = store.consumer_in("b", us, 2).await.unwrap();
    // It did not know at its start, and hands over what it should not have.
    somewhere.set_regions(2);
    leased(clock, &[&somewhere, &american]).await;
    for number in 0..20 {
        accept(&*store, eu, number).await;
        accept(&*store, us, 100 + number).await;
    }
    let counts = leased(clock, &[&somewhere, &american]).await;
    assert_eq!(counts, [0, 20], "what is pinned to the other region waits");
    assert_eq!(store.worker_regions().await.unwrap(), [us.unwrap()]);
    let european = store.consumer_in("c", eu, 2).await.unwrap();
    let counts = leased(clock, &[&somewhere, &american, &european]).await;
    assert_eq!(counts, [0, 0, 20]);
    assert_eq!(store.worker_regions().await.unwrap(), [eu.unwrap(), us.unwrap()]);
    for number in 0..100 {
        accept(&*store, None, 200 + number).await;
    }
    let counts = leased(clock, &[&somewhere, &american, &european]).await;
    assert_eq!(counts.iter().sum::<usize>(), 100);
    assert!(counts.iter().all(|count| *count > 10), "everybody sends the rest: {counts:?}");
}
