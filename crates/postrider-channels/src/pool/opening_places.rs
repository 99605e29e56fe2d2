//! How many lookups or connects are made at the same time. What failed the last time shares a quarter of the places,
//! and all that never succeeded three quarters, so that dead names and hosts, also endless new ones, cannot hold up
//! those that work.

use tokio::sync::{Semaphore, SemaphorePermit};

const AT_ONCE_MAX: usize = 256;
const AFTER_FAILURE_MAX: usize = AT_ONCE_MAX / 4;
const UNPROVEN_MAX: usize = AT_ONCE_MAX / 4 * 3;

/// How the last lookup of a name, or the last connect to a host, ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastOpening {
    /// There was none yet.
    #[default]
    Unknown,
    Succeeded,
    Failed,
}

pub(super) struct OpeningPlaces {
    all: Semaphore,
    /// What never succeeded, or failed the last time.
    unproven: Semaphore,
    after_failure: Semaphore,
}

/// The right to begin now.
pub(super) struct OpeningPlace<'a> {
    _all: Option<SemaphorePermit<'a>>,
    _unproven: Option<SemaphorePermit<'a>>,
    _after_failure: Option<SemaphorePermit<'a>>,
}

impl Default for OpeningPlaces {
    fn default() -> Self {
        Self {
            all: Semaphore::new(AT_ONCE_MAX),
            unproven: Semaphore::new(UNPROVEN_MAX),
            after_failure: Semaphore::new(AFTER_FAILURE_MAX),
        }
    }
}

impl OpeningPlaces {
    /// Waits in the order of arrival.
    pub(super) async fn place(&self, last: LastOpening) -> OpeningPlace<'_> {
        let after_failure = match last {
            LastOpening::Failed => self.after_failure.acquire().await.ok(),
            _ => None,
        };
        let unproven = match last {
            LastOpening::Succeeded => None,
            _ => self.unproven.acquire().await.ok(),
        };
        let all = self.all.acquire().await.ok();
        OpeningPlace { _all: all, _unproven: unproven, _after_failure: after_failure }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::LastOpening::{Failed, Succeeded, Unknown};
    use super::*;

    #[tokio::test]
    async fn what_failed_leaves_places_for_the_others() {
        let places = OpeningPlaces::default();
        let dead = join_all((0..AFTER_FAILURE_MAX).map(|_| places.place(Failed))).await;
        assert!(places.place(Failed).now_or_never().is_none());
        let others = join_all((dead.len()..AT_ONCE_MAX).map(|_| places.place(Succeeded))).await;
        assert!(places.place(Succeeded).now_or_never().is_none());
        drop((dead, others));
        // Else the runtime may want this task to pause first.
        tokio::task::yield_now().await;
        assert!(places.place(Succeeded).now_or_never().is_some());
    }

    #[tokio::test]
    async fn endless_new_hosts_leave_places_for_those_that_work() {
        let places = OpeningPlaces::default();
        let new = join_all((0..UNPROVEN_MAX).map(|_| places.place(Unknown))).await;
        assert!(places.place(Unknown).now_or_never().is_none());
        assert!(places.place(Failed).now_or_never().is_none());
        let others = join_all((new.len()..AT_ONCE_MAX).map(|_| places.place(Succeeded))).await;
        assert!(places.place(Succeeded).now_or_never().is_none());
        drop((new, others));
        tokio::task::yield_now().await;
        assert!(places.place(Unknown).now_or_never().is_some());
    }
}
