//! The way out: a worker leases due work and settles it. It speaks only of what it holds, and knows of no other.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{LeasedDelivery, ReadyLane, SettleResult, Settlement, StoreResult};
use crate::model::id::DeliveryId;
use crate::model::lane::{LaneId, LaneKey};
use crate::model::time::Timestamp;

/// One per worker. Owns leases, suspended lanes and wake-ups; a [`LaneId`] is valid for one consumer. What it does not
/// hold any more, it neither lists nor leases nor settles.
///
/// [`close`](Self::close) hands over in order. A consumer that is dropped without it is dead: others get its work, and
/// what it had leased counts as in flight at a crash.
#[async_trait]
pub trait Consumer: Send + Sync {
    /// Lanes with something due now, longest due first, at most `limit`; none that is suspended.
    async fn ready_lanes(&self, limit: usize) -> StoreResult<Vec<ReadyLane>>;

    /// Leases up to `max` due deliveries of a lane, in order of due time; fewer if the others are not in memory yet,
    /// and none only if none is due. Deliveries that were in flight at `SUSPECT_CRASHES` crashes in a row are leased
    /// one at a time in the whole store; nothing else waits for them.
    async fn lease(
        &self,
        lane: LaneId,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<LeasedDelivery>>;

    /// Leases up to `max` pending deliveries whose expiry has passed, the longest expired first,
    /// whatever their lane's state and whenever they are due. Costs nothing while there are none. Fewer
    /// than `max` means that there are no more at this moment. The caller is woken for the next.
    async fn lease_expired(
        &self,
        max: usize,
        duration: Duration,
    ) -> StoreResult<Vec<(Arc<LaneKey>, LeasedDelivery)>>;

    /// Writes decisions down: state and ledger entry, atomic each, fenced. One answer each, in order. A settlement
    /// whose answer was lost can be repeated soon after: it counts once and answers `Done`. A decision to try again
    /// becomes `Cancelled` if the message was cancelled meanwhile.
    async fn settle(&self, settlements: Vec<Settlement>) -> Vec<StoreResult<SettleResult>>;

    /// Notes that an attempt of each is about to be sent, durable on return, until it is settled. For
    /// classes that must not send twice: costs a write. False if the lease is not valid any more or the
    /// message was cancelled.
    async fn start(&self, attempts: Vec<(DeliveryId, u64)>) -> StoreResult<Vec<bool>>;

    /// Returns when something became due since the last `ready_lanes` (by arrival or by time), about
    /// when something expires for those who take it with `lease_expired`, or after `at_most`. Work that
    /// was due before does not wake.
    async fn wait_for_work(&self, at_most: Duration);

    /// Until then the lane is not ready, and what arrives in it wakes nobody; the end of the suspension
    /// does. A later call sets another end. A suspended lane costs nothing per round. Another
    /// consumer knows nothing of it.
    fn suspend(&self, lane: LaneId, until: Timestamp);

    /// Ends a suspension early, for one lane or for all.
    fn resume(&self, lane: Option<LaneId>);

    /// Whether this consumer does the chores of all: exactly one does, or none for a while.
    fn leads(&self) -> bool;

    /// The part of all work that it holds; the parts of all consumers are never more than 1.
    fn part(&self) -> f64 {
        1.0
    }

    /// The store has so many regions from now on. What is pinned to one of them is left to its workers.
    fn set_regions(&self, _count: usize) {}

    /// Ends every lease and hands over in order: what was leased is due at once, without the count of a crash. Later
    /// calls find nothing.
    async fn close(&self);
}
