//! What encryption at rest costs per delivery: the life of a delivery in memory, with and without it.
#![expect(clippy::unwrap_used, reason = "a measurement ends with the first failure")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::model::decision::Decision;
use postrider_core::ports::store::{AddressLearning, Settlement, Store};
use postrider_store::conformance::message;
use postrider_store::sealed::MasterKey;
use postrider_store::{MemoryStore, SealedStore, SystemClock};

const DELIVERIES: usize = 50_000;
const AT_ONCE: usize = 500;

/// µs per life of a delivery: accept, lease, settle.
async fn life(store: Arc<dyn Store>) -> f64 {
    let consumer = store.consumer("bench").await.unwrap();
    let begin = Instant::now();
    for _ in 0..DELIVERIES / AT_ONCE {
        let new = (0..AT_ONCE).map(|_| message("acme", 1)).collect();
        store.accept(new).await.into_iter().for_each(|answer| drop(answer.unwrap()));
        for lane in consumer.ready_lanes(10).await.unwrap() {
            let leased = consumer.lease(lane.id, AT_ONCE, Duration::from_secs(60)).await.unwrap();
            let settle = leased.iter().map(|leased| Settlement {
                delivery: leased.delivery,
                token: leased.token,
                attempts: Vec::new(),
                decision: Decision::Done,
                learned: AddressLearning::default(),
            });
            drop(consumer.settle(settle.collect()).await);
        }
    }
    begin.elapsed().as_secs_f64() * 1e6 / DELIVERIES as f64
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let plain = || -> Arc<dyn Store> { Arc::new(MemoryStore::new(Arc::new(SystemClock))) };
    for round in 1..=3 {
        let without = life(plain()).await;
        let masters = vec![MasterKey::parse(&"ab".repeat(32)).unwrap()];
        let with = life(Arc::new(SealedStore::open(plain(), masters).await.unwrap())).await;
        println!(
            "round {round}: {without:.2} µs without, {with:.2} µs with encryption: {:.2} µs per delivery",
            with - without
        );
    }
}
