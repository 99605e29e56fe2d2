//! The clocks: the system's, one that does not follow its steps, and one that a test moves by hand.

mod steady;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider_core::{Clock, TimeBounds, Timestamp};

pub use steady::SteadyClock;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) use steady::monotonic_ms;

/// The system's clock as it is, for commands that end soon.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn now_rounded_up(&self) -> Timestamp {
        self.now() + Duration::from_millis(1)
    }
}

/// A clock that stands still until it is moved; moving it wakes whoever waits for a time.
#[derive(Default)]
pub struct ManualClock {
    now: AtomicI64,
    /// How far `TimeBounds::earliest` is behind.
    lag_ms: AtomicI64,
    wakers: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

impl ManualClock {
    pub fn at(now: Timestamp) -> Self {
        Self { now: AtomicI64::new(now.0), ..Self::default() }
    }

    pub fn set(&self, now: Timestamp) {
        self.now.store(now.0, Ordering::SeqCst);
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        wakers.iter().for_each(|wake| wake());
    }

    /// Another clock is so far behind this one; nobody knows which one is right.
    pub fn doubt(&self, lag: Duration) {
        let lag = i64::try_from(lag.as_millis()).unwrap_or(i64::MAX);
        self.lag_ms.store(lag, Ordering::SeqCst);
        self.advance(Duration::ZERO);
    }

    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn bounds(&self) -> TimeBounds {
        let (latest, lag) = (self.now(), self.lag_ms.load(Ordering::SeqCst));
        TimeBounds { earliest: Timestamp(latest.0.saturating_sub(lag)), latest }
    }

    fn on_move(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_begins_no_earlier_than_the_present() {
        for _ in 0..1_000 {
            let present = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            let from = SystemClock.now_rounded_up();
            assert!(Duration::from_millis(from.0.unsigned_abs()) >= present);
        }
    }
}
