//! What happened that may let lanes go, kept for the dispatcher until it asks: a place that became
//! free, a provider that recovered, an operator's word. Names who is meant, so that nobody else is
//! looked at.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::LaneKey;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Origin, OriginKey};

/// How long a place that became free may wait for others before it is given away: leasing in
/// batches is what keeps a delivery cheap.
const GATHER: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) enum Notice {
    /// The provider has room again.
    Room(OriginKey),
    /// What its gates said may hold no more, for any of its lanes.
    Eased(OriginKey),
    Lane(Arc<LaneKey>),
    All,
}

#[derive(Default)]
pub(super) struct Notices {
    lists: Mutex<Lists>,
    wake: Arc<Notify>,
    gathering: Notify,
}

#[derive(Default)]
struct Lists {
    now: Vec<Notice>,
    /// Providers with a few places free, since the first of them had one.
    few: Vec<(OriginKey, Arc<Origin>)>,
    since: Option<Instant>,
}

impl Notices {
    /// Woken by every notice; also to be called when time is moved by hand.
    pub(super) fn waker(&self) -> &Arc<Notify> {
        &self.wake
    }

    pub(super) fn post(&self, notice: Notice) {
        self.lists().now.push(notice);
        self.wake.notify_one();
    }

    /// The provider has a few places free. To be said once until they are given away.
    pub(super) fn gather(&self, provider: OriginKey, origin: Arc<Origin>) {
        let mut lists = self.lists();
        lists.since.get_or_insert_with(Instant::now);
        lists.few.push((provider, origin));
        drop(lists);
        self.gathering.notify_one();
    }

    pub(super) fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.lists().now)
    }

    pub(super) async fn posted(&self) {
        self.wake.notified().await;
    }

    /// Waits until a few places are worth a round. Where the other calls hang, a quarter never will
    /// be free.
    pub(super) async fn gathered(&self) {
        loop {
            let since = self.lists().since;
            let Some(since) = since else {
                self.gathering.notified().await;
                continue;
            };
            tokio::time::sleep_until(since + GATHER).await;
            let mut lists = self.lists();
            lists.since = None;
            let few = std::mem::take(&mut lists.few);
            few.iter().for_each(|(_, origin)| origin.gathered());
            lists.now.extend(few.into_iter().map(|(provider, _)| Notice::Room(provider)));
            return;
        }
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
