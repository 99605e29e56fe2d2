//! How many lookups or connects are made at the same time. What failed the last time shares a quarter of the places,
//! so that dead names and hosts cannot hold up the others.

use tokio::sync::{Semaphore, SemaphorePermit};

const AT_ONCE_MAX: usize = 256;
const AFTER_FAILURE_MAX: usize = AT_ONCE_MAX / 4;

pub(super) struct OpeningPlaces {
    all: Semaphore,
    after_failure: Semaphore,
}

/// The right to begin now.
pub(super) struct OpeningPlace<'a> {
    _all: Option<SemaphorePermit<'a>>,
    _after_failure: Option<SemaphorePermit<'a>>,
}

impl Default for OpeningPlaces {
    fn default() -> Self {
        let (all, after_failure) = (AT_ONCE_MAX, AFTER_FAILURE_MAX);
        Self { all: Semaphore::new(all), after_failure: Semaphore::new(after_failure) }
    }
}

impl OpeningPlaces {
    /// Waits in the order of arrival.
    pub(super) async fn place(&self, has_failed: bool) -> OpeningPlace<'_> {
        let after_failure = match has_failed {
            true => self.after_failure.acquire().await.ok(),
            false => None,
        };
        OpeningPlace { _all: self.all.acquire().await.ok(), _after_failure: after_failure }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn what_failed_leaves_places_for_the_others() {
        let places = OpeningPlaces::default();
        let dead = join_all((0..AFTER_FAILURE_MAX).map(|_| places.place(true))).await;
        assert!(places.place(true).now_or_never().is_none());
        let others = join_all((dead.len()..AT_ONCE_MAX).map(|_| places.place(false))).await;
        assert!(places.place(false).now_or_never().is_none());
        drop((dead, others));
        assert!(places.place(false).now_or_never().is_some());
    }
}
