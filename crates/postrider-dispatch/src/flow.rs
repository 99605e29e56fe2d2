//! How much may be under way in all. Counts and wakes; what each lane may do is said in
//! [`crate::lanes`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

pub(crate) struct Flow {
    /// Leased and not yet durably settled: what a crash now would send again.
    unsettled: AtomicUsize,
    unsettled_max: AtomicUsize,
    /// What was decided cannot be written: nothing more is leased, or what is decided already
    /// would be due, and be sent, again.
    held: AtomicBool,
    freed: Notify,
}

impl Flow {
    pub(crate) fn new(unsettled_max: usize) -> Self {
        Self {
            unsettled: AtomicUsize::new(0),
            unsettled_max: AtomicUsize::new(unsettled_max),
            held: AtomicBool::new(false),
            freed: Notify::new(),
        }
    }

    /// How many more may be leased.
    pub(crate) fn room(&self) -> usize {
        if self.held.load(Ordering::Acquire) {
            return 0;
        }
        self.max().saturating_sub(self.unsettled.load(Ordering::Acquire))
    }

    fn max(&self) -> usize {
        self.unsettled_max.load(Ordering::Acquire)
    }

    /// What is under way beyond a smaller bound ends as it would have.
    pub(crate) fn resize(&self, unsettled_max: usize) {
        self.unsettled_max.store(unsettled_max, Ordering::Release);
        self.freed.notify_one();
    }

    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Acquire)
    }

    pub(crate) fn leased(&self, n: usize) {
        self.unsettled.fetch_add(n, Ordering::AcqRel);
    }

    pub(crate) fn settled(&self, n: usize) {
        let before = self.unsettled.fetch_sub(n, Ordering::AcqRel);
        // The dispatcher may stand at the ceiling or, when draining, wait for the last one.
        if before >= self.max() || before == n {
            self.freed.notify_one();
        }
    }

    pub(crate) fn hold(&self) {
        self.held.store(true, Ordering::Release);
    }

    pub(crate) fn resume(&self) {
        if self.held.swap(false, Ordering::AcqRel) {
            self.freed.notify_one();
        }
    }

    /// Waits until there is room again.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }
}
