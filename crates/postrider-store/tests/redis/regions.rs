//! What is pinned to a region is held by its workers only.

use std::sync::Arc;

use postrider_store::RedisStore;

use crate::fixture::{SERVER, clock, options, prefix};
use crate::pinned::pinned_work_waits_for_a_worker_of_its_region;

#[tokio::test]
async fn pinned_work_is_left_to_the_workers_of_its_region() {
    let clock = clock();
    let store = RedisStore::open_on(options(&SERVER, &prefix()), clock.clone()).await.unwrap();
    pinned_work_waits_for_a_worker_of_its_region(Arc::new(store), &clock).await;
}
