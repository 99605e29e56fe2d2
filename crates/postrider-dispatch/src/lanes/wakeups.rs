//! Events after which lanes may go on, kept for the dispatcher until it asks: a slot became free, a
//! provider recovered, an operator gave an order. Each names the lanes concerned, so that no other is
//! looked at.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::LaneKey;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{LaneProvider, ProviderKey};

/// How long a free slot may wait for others before it is used: leasing in batches keeps a
/// delivery cheap.
const GATHER: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) enum Wakeup {
    /// The provider has free slots again.
    SlotsFree(ProviderKey),
    /// The provider's gates changed, for any of its lanes.
    GatesChanged(ProviderKey),
    Lane(Arc<LaneKey>),
    All,
}

#[derive(Default)]
pub(crate) struct Wakeups {
    lists: Mutex<WakeupLists>,
    wake: Arc<Notify>,
    gathering: Notify,
}

#[derive(Default)]
struct WakeupLists {
    now: Vec<Wakeup>,
    /// Providers with a few free slots, since the first of them had one.
    few: Vec<(ProviderKey, Arc<LaneProvider>)>,
    since: Option<Instant>,
}

impl WakeupLists {
    fn few_go(&mut self) {
        self.since = None;
        let few = std::mem::take(&mut self.few);
        few.iter().for_each(|(_, provider)| provider.gates().gathering = false);
        self.now.extend(few.into_iter().map(|(provider, _)| Wakeup::SlotsFree(provider)));
    }
}

impl Wakeups {
    /// Notified of every wakeup, and by the clock when it is moved.
    pub(super) fn waker(&self) -> &Arc<Notify> {
        &self.wake
    }

    pub(super) fn post(&self, wakeup: Wakeup) {
        self.lists().now.push(wakeup);
        self.wake.notify_one();
    }

    /// The provider has a few free slots. Called once until they are used.
    pub(super) fn gather(&self, provider: ProviderKey, free_at: Arc<LaneProvider>) {
        let mut lists = self.lists();
        lists.since.get_or_insert_with(Instant::now);
        lists.few.push((provider, free_at));
        drop(lists);
        self.gathering.notify_one();
    }

    /// The wakeups since the last call. Few free slots are among them once they waited for long enough, however
    /// busy the dispatcher is.
    pub(crate) fn take(&self) -> Vec<Wakeup> {
        let mut lists = self.lists();
        if lists.since.is_some_and(|since| since.elapsed() >= GATHER) {
            lists.few_go();
        }
        std::mem::take(&mut lists.now)
    }

    /// Returns when there are wakeups, or the clock was moved.
    pub(crate) async fn posted(&self) {
        self.wake.notified().await;
    }

    /// Waits until a few free slots are worth a round: where the other calls hang, more may never come.
    pub(crate) async fn gathered(&self) {
        loop {
            let since = self.lists().since;
            let Some(since) = since else {
                self.gathering.notified().await;
                continue;
            };
            tokio::time::sleep_until(since + GATHER).await;
            self.lists().few_go();
            return;
        }
    }

    fn lists(&self) -> MutexGuard<'_, WakeupLists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
