//! The server's time. It runs with the monotonic time of this machine, whose own wall clock nobody asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::{SteadyClock, monotonic_ms};

/// How far the server's clock is ahead of this machine's monotonic time.
#[derive(Clone)]
pub(crate) struct ServerTime(Arc<AtomicI64>);

/// A longer way to the server says too little about its clock.
const ROUND_TRIP_MAX_MS: i64 = 500;

impl ServerTime {
    /// From an answer of the server and the times before and after it.
    pub(crate) fn new(server_ms: i64, before: i64, after: i64) -> Self {
        Self(Arc::new(AtomicI64::new(server_ms - before.midpoint(after))))
    }

    pub(crate) fn monotonic() -> i64 {
        monotonic_ms()
    }

    pub(crate) fn observe(&self, server_ms: i64, before: i64, after: i64) {
        if after - before <= ROUND_TRIP_MAX_MS {
            self.0.store(server_ms - before.midpoint(after), Ordering::Relaxed);
        }
    }

    /// A clock that believes the server as others believe their system.
    pub(crate) fn clock(&self) -> SteadyClock {
        let ahead = self.0.clone();
        let server = move || monotonic_ms().saturating_add(ahead.load(Ordering::Relaxed));
        SteadyClock::new(Box::new(monotonic_ms), Box::new(server))
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::Clock;

    use super::*;

    #[test]
    fn time_is_the_servers_whatever_this_machine_believes() {
        let server = 1_900_000_000_000;
        let now = ServerTime::monotonic();
        let time = ServerTime::new(server, now, now);
        let clock = time.clock();
        assert!((clock.now().0 - server).abs() < 1_000);
        time.observe(5, now, now + ROUND_TRIP_MAX_MS + 1);
        assert!((clock.now().0 - server).abs() < 1_000, "a slow answer says nothing");
    }
}
