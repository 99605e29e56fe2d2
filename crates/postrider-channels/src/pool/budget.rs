//! How many connections may be open at once, to all origins together. A permit is taken before a connect and ends
//! with its socket, so the limit holds at every moment. Closes no connection in use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::idle::IdleConnections;

/// The right to have one connection open.
pub(super) type ConnectionPermit = OwnedSemaphorePermit;

/// A waiting origin asks again for room after this time: a connection that was to be closed may hang.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(250);

pub(super) struct ConnectionBudget {
    max: usize,
    permits: Arc<Semaphore>,
    queue: Mutex<RoomQueue>,
    /// A copy of `RoomQueue::unmet` that is read without its lock.
    unmet: AtomicUsize,
    pub(super) idle: IdleConnections,
}

#[derive(Default)]
struct RoomQueue {
    /// Openings that wait for a permit.
    waiting: usize,
    /// Those of them for which no connection was told to close yet.
    unmet: usize,
}

impl ConnectionBudget {
    pub(super) fn new(max: usize) -> Arc<Self> {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self {
            max,
            permits: Arc::new(Semaphore::new(max)),
            queue: Mutex::default(),
            unmet: AtomicUsize::new(0),
            idle: IdleConnections::default(),
        })
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }

    pub(super) fn is_full(&self) -> bool {
        self.permits.available_permits() == 0
    }

    /// A permit if one is free and nobody waits for one.
    pub(super) fn try_permit(&self) -> Option<ConnectionPermit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// Waits for a permit in the order of arrival, and lets one other connection close for it: an unused one, or one
    /// that is soon done. For the first connection of an origin. `None` once nobody wants it any more.
    pub(super) async fn permit(&self, is_wanted: impl Fn() -> bool) -> Option<ConnectionPermit> {
        let acquire = self.permits.clone().acquire_owned();
        tokio::pin!(acquire);
        let _place = QueuePlace::new(self);
        loop {
            if !self.idle.close_oldest() {
                self.ask_for_room();
            }
            match timeout(ASKED_AGAIN_AFTER, &mut acquire).await {
                Ok(permit) => return permit.ok(),
                Err(_) if !is_wanted() => return None,
                Err(_) => {}
            }
        }
    }

    /// Waits for a permit that no other origin needs, or for an unused connection to close. For a further connection
    /// of an origin. `None` once nobody wants it any more.
    pub(super) async fn spare_permit(
        &self,
        is_wanted: impl Fn() -> bool,
    ) -> Option<ConnectionPermit> {
        loop {
            if let Some(permit) = self.try_permit() {
                return Some(permit);
            }
            if self.idle.close_oldest() {
                let freed = self.permits.clone().acquire_owned();
                if let Ok(permit) = timeout(ASKED_AGAIN_AFTER, freed).await {
                    return permit.ok();
                }
            } else if is_wanted() {
                sleep(ASKED_AGAIN_AFTER).await;
            }
            if !is_wanted() {
                return None;
            }
        }
    }

    /// Whether a connection in use should be closed after its request, as soon as its origin can do without it.
    pub(super) fn wants_room(&self) -> bool {
        self.unmet.load(Ordering::Relaxed) > 0
    }

    /// Whether the caller is the one to close a connection for an opening that waits.
    pub(super) fn claim(&self) -> bool {
        let mut queue = self.queue();
        let claimed = queue.unmet > 0;
        queue.unmet -= usize::from(claimed);
        self.publish(&queue);
        claimed
    }

    fn ask_for_room(&self) {
        let mut queue = self.queue();
        queue.unmet = (queue.unmet + 1).min(queue.waiting);
        self.publish(&queue);
    }

    fn publish(&self, queue: &RoomQueue) {
        self.unmet.store(queue.unmet, Ordering::Relaxed);
    }

    fn queue(&self) -> MutexGuard<'_, RoomQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An opening that waits for a permit.
struct QueuePlace<'a>(&'a ConnectionBudget);

impl<'a> QueuePlace<'a> {
    fn new(budget: &'a ConnectionBudget) -> Self {
        budget.queue().waiting += 1;
        Self(budget)
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.waiting -= 1;
        queue.unmet = queue.unmet.min(queue.waiting);
        self.0.publish(&queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_connection_is_closed_for_each_opening_that_waits() {
        let budget = ConnectionBudget::new(1);
        let first = budget.try_permit().unwrap();
        assert!(budget.try_permit().is_none() && !budget.wants_room() && !budget.claim());
        let waiting = budget.permit(|| true);
        tokio::pin!(waiting);
        assert!(timeout(Duration::from_millis(1), &mut waiting).await.is_err());
        assert!(budget.wants_room());
        assert!(budget.claim(), "one connection is to be closed");
        assert!(!budget.claim() && !budget.wants_room(), "and no second one");
        drop(first);
        assert!(waiting.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_opening_that_nobody_wants_stops_waiting() {
        let budget = ConnectionBudget::new(1);
        let _first = budget.try_permit().unwrap();
        assert!(budget.permit(|| false).await.is_none());
        assert!(!budget.wants_room(), "nothing is closed for it");
    }

    #[tokio::test(start_paused = true)]
    async fn a_further_connection_of_an_origin_takes_only_what_is_left() {
        let budget = ConnectionBudget::new(1);
        let first = budget.try_permit().unwrap();
        assert!(budget.spare_permit(|| false).await.is_none(), "only if somebody waits for it");
        let spare = budget.spare_permit(|| true);
        tokio::pin!(spare);
        assert!(timeout(ASKED_AGAIN_AFTER * 4, &mut spare).await.is_err());
        assert!(!budget.wants_room(), "no connection in use is closed for it");
        drop(first);
        assert!(spare.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_does_not_close_is_replaced_by_another() {
        let budget = ConnectionBudget::new(1);
        let _hanging = budget.try_permit().unwrap();
        let waiting = budget.permit(|| true);
        tokio::pin!(waiting);
        assert!(timeout(Duration::from_millis(1), &mut waiting).await.is_err());
        assert!(budget.claim());
        assert!(timeout(ASKED_AGAIN_AFTER, &mut waiting).await.is_err());
        assert!(budget.claim(), "asked again");
    }
}
