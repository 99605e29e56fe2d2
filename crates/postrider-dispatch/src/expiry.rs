//! Takes out of the queue what has expired, also where its lane waits, is blocked or paused: nobody
//! would lease it from there in time. Sends nothing.

use std::time::Duration;

use postrider_core::ports::store::StoreError;

use crate::launch::{Bench, Job, give_back, may_be_sent};

/// How many at once: a mass of them must not keep others from being sent.
const SWEEP_MAX: usize = 256;

/// Ends what has expired, a bounded number at a time. Says how many.
pub(crate) async fn sweep(bench: &Bench, lease: Duration) -> Result<usize, StoreError> {
    let room = bench.flow.room().min(SWEEP_MAX);
    let expired = bench.store.lease_expired(room, lease).await?;
    let count = expired.len();
    bench.flow.leased(count);
    let (policy, now) = (bench.lanes.policies().now(), bench.clock.now());
    for (lane, leased) in expired {
        let class = policy.class_or_default(&lane.class);
        if may_be_sent(bench, &lane, &leased, class, now) {
            // Two clocks that disagree: it has its turn like everybody else.
            give_back(bench, &lane, &mut Job::new(leased, now));
        }
    }
    Ok(count)
}
