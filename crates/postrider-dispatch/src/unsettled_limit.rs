//! How many deliveries may be leased and not yet durably settled, in all lanes together. Counts and
//! wakes; what each lane may do is decided in [`crate::lanes`].

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct UnsettledLimit {
    /// A crash now would send these again.
    unsettled: AtomicUsize,
    unsettled_max: AtomicUsize,
    /// Decisions cannot be written. Nothing more is leased meanwhile: leases of decided deliveries would
    /// end, and they would be sent again.
    held: AtomicBool,
    freed: Notify,
}

impl UnsettledLimit {
    pub(crate) fn new(unsettled_max: usize) -> Self {
        Self { unsettled_max: AtomicUsize::new(unsettled_max), ..Self::default() }
    }

    /// How many more may be leased.
    pub(crate) fn room(&self) -> usize {
        if self.held.load(Ordering::Acquire) {
            return 0;
        }
        self.max().saturating_sub(self.unsettled())
    }

    fn max(&self) -> usize {
        self.unsettled_max.load(Ordering::Acquire)
    }

    /// Sets another bound. Deliveries under way beyond a smaller one end as they would have.
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
        // The dispatcher may wait at the bound or, while draining, for the last one.
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
