//! Takes expired deliveries out of the queue, also where their lane waits, is blocked or paused: nobody
//! would lease them from there in time. Sends nothing.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::decision::Decision;
use postrider_core::ports::store::StoreError;

use crate::attempt::LaneWork;
use crate::context::DispatchContext;

/// How many at once: a mass of them must not keep others from being sent.
const SWEEP_MAX: usize = 256;

/// Ends expired deliveries, a bounded number at a time. Says how many.
pub(crate) async fn sweep(
    context: &Arc<DispatchContext>,
    lease: Duration,
) -> Result<usize, StoreError> {
    let room = context.unsettled.room().min(SWEEP_MAX);
    let expired = context.consumer.lease_expired(room, lease).await?;
    let count = expired.len();
    context.unsettled.leased(count);
    let (policy, now) = (context.lanes.policies().now(), context.clock.now());
    for (lane, leased) in expired {
        let class = policy.class_or_default(&lane.class).clone();
        // If the store's clock and ours disagree, it has its turn like the others.
        let work = LaneWork::new(context.clone(), lane, class, policy.limits.times);
        work.settle_unattempted(leased, now, |_| Decision::Release);
    }
    Ok(count)
}
