//! Stores in Redis, and what tests do with them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use postrider_core::ports::store::*;
use postrider_core::{Decision, DeliveryId, Timestamp};
use postrider_store::{ManualClock, RedisOptions, RedisStore};
use postrider_testkit::redis::RedisServer;

/// For tests that leave it running.
pub(crate) static SERVER: LazyLock<RedisServer> = LazyLock::new(|| RedisServer::start().unwrap());
static PREFIXES: AtomicU32 = AtomicU32::new(0);

pub(crate) const LEASE: Duration = Duration::from_secs(60);
pub(crate) const START: Timestamp = Timestamp(1_790_000_000_000);

pub(crate) fn prefix() -> String {
    format!("own_{}", PREFIXES.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn options(server: &RedisServer, prefix: &str) -> RedisOptions {
    RedisOptions::parse(&server.url(&format!("prefix={prefix}"))).unwrap()
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

pub(crate) async fn accept(store: &RedisStore, new: NewMessage) -> Vec<DeliveryId> {
    match store.accept(vec![new]).await.remove(0).unwrap() {
        Admission::Accepted { deliveries, .. } => deliveries,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn lease_all(consumer: &dyn Consumer) -> Vec<LeasedDelivery> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        for lane in consumer.ready_lanes(1_000).await.unwrap() {
            all.extend(consumer.lease(lane.id, 100, LEASE).await.unwrap());
        }
        if all.len() == before {
            return all;
        }
    }
}

pub(crate) fn done(leased: &LeasedDelivery) -> Settlement {
    Settlement {
        delivery: leased.delivery,
        token: leased.token,
        attempts: Vec::new(),
        decision: Decision::Done,
        learned: AddressLearning::default(),
    }
}

pub(crate) async fn settle(consumer: &dyn Consumer, leased: &LeasedDelivery) -> SettleResult {
    consumer.settle(vec![done(leased)]).await.remove(0).unwrap()
}

/// Waits until something holds, because servers take their time to start.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
