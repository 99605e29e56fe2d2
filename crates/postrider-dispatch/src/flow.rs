//! How much may be under way: per origin and in all. Counts and wakes; decides nothing about order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::{ChannelKind, LaneKey};
use tokio::sync::Notify;

/// Idle origins are forgotten beyond this many.
const ORIGINS_MAX: usize = 10_000;
/// How long a call that ended may wait for others to end before its place is given away.
const GATHER: Duration = Duration::from_millis(5);

/// The calls under way to one origin.
pub(crate) struct Origin {
    limit: usize,
    in_flight: AtomicUsize,
}

impl Origin {
    pub(crate) fn free(&self) -> usize {
        self.limit.saturating_sub(self.in_flight.load(Ordering::Acquire))
    }

    pub(crate) fn take(&self, n: usize) {
        self.in_flight.fetch_add(n, Ordering::AcqRel);
    }
}

type OriginKey = (ChannelKind, Arc<str>);

pub(crate) struct Flow {
    origins: Mutex<HashMap<OriginKey, Arc<Origin>>>,
    /// Leased and not yet durably settled: what a crash now would send again.
    unsettled: AtomicUsize,
    unsettled_max: usize,
    /// What was decided cannot be written: nothing more is leased, or what is decided already
    /// would be due, and be sent, again.
    held: AtomicBool,
    freed: Notify,
    ended: Notify,
}

impl Flow {
    pub(crate) fn new(unsettled_max: usize) -> Self {
        Self {
            origins: Mutex::default(),
            unsettled: AtomicUsize::new(0),
            unsettled_max,
            held: AtomicBool::new(false),
            freed: Notify::new(),
            ended: Notify::new(),
        }
    }

    pub(crate) fn origin(
        &self,
        lane: &LaneKey,
        limit: impl Fn(ChannelKind) -> usize,
    ) -> Arc<Origin> {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (lane.channel, lane.provider.clone());
        if let Some(origin) = origins.get(&key) {
            return origin.clone();
        }
        if origins.len() >= ORIGINS_MAX {
            origins.retain(|_, o| o.in_flight.load(Ordering::Acquire) > 0);
        }
        let origin =
            Arc::new(Origin { limit: limit(lane.channel).max(1), in_flight: AtomicUsize::new(0) });
        origins.insert(key, origin.clone());
        origin
    }

    /// How many more may be leased.
    pub(crate) fn room(&self) -> usize {
        if self.held.load(Ordering::Acquire) {
            return 0;
        }
        self.unsettled_max.saturating_sub(self.unsettled.load(Ordering::Acquire))
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
        if before >= self.unsettled_max || before == n {
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

    /// A call has ended. Wakes the dispatcher when a quarter of the origin is free again, not for
    /// every single call: leasing in batches is what keeps a delivery cheap.
    pub(crate) fn call_ended(&self, origin: &Origin) {
        let left = origin.in_flight.fetch_sub(1, Ordering::AcqRel) - 1;
        if left == 0 || left == origin.limit - origin.limit.div_ceil(4) {
            self.freed.notify_one();
        } else {
            self.ended.notify_one();
        }
    }

    /// Waits until there is room again, or much of it at an origin.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Waits until a few places are free. Where the other calls hang, a quarter never will be.
    pub(crate) async fn trickled(&self) {
        self.ended.notified().await;
        tokio::time::sleep(GATHER).await;
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::TenantId;

    use super::*;

    #[test]
    fn an_origin_never_gives_more_than_its_limit_and_lanes_of_one_origin_share_it() {
        let flow = Flow::new(100);
        let lane = |tenant: &str| LaneKey {
            tenant: TenantId::new(tenant),
            channel: ChannelKind::Webhook,
            provider: "https://a.example".into(),
            class: "otp".into(),
        };
        let first = flow.origin(&lane("a"), |_| 4);
        let second = flow.origin(&lane("b"), |_| 4);
        first.take(3);
        assert_eq!(second.free(), 1);
        second.take(1);
        assert_eq!(first.free(), 0);
        flow.call_ended(&first);
        assert_eq!(first.free(), 1);
    }
}
