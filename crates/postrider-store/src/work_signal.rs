//! Wakes those who wait for work, when some arrives or becomes due. Never polls.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::{Clock, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The longest single sleep. After it, a changed wall clock is noticed.
const LONGEST: Duration = Duration::from_secs(60);

/// When there is work next.
pub(crate) enum NextWork {
    Now,
    At(Option<Timestamp>),
}

pub(crate) struct WorkSignal {
    clock: Arc<dyn Clock>,
    notify: Arc<Notify>,
}

impl WorkSignal {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let notify = Arc::new(Notify::new());
        let weak = Arc::downgrade(&notify);
        clock.on_move(Arc::new(move || {
            if let Some(notify) = weak.upgrade() {
                notify.notify_waiters();
            }
        }));
        Self { clock, notify }
    }

    pub(crate) fn notify(&self) {
        self.notify.notify_waiters();
    }

    /// Returns when `next_work` says that there is work, or after `at_most` by either clock.
    pub(crate) async fn wait(&self, at_most: Duration, next_work: impl Fn(Timestamp) -> NextWork) {
        let real_end = Instant::now() + at_most.min(Duration::from_secs(86_400 * 365));
        let end = self.clock.now() + at_most;
        loop {
            let notified = self.notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            let now = self.clock.now();
            let next = match next_work(now) {
                NextWork::Now => return,
                NextWork::At(next) => next.map_or(LONGEST, |at| at.since(now).min(LONGEST)),
            };
            if now >= end || Instant::now() >= real_end {
                return;
            }
            let wake_at = (Instant::now() + next.max(Duration::from_millis(1))).min(real_end);
            tokio::select! {
                biased;
                () = notified => {}
                () = tokio::time::sleep_until(wake_at) => {}
            }
        }
    }
}
