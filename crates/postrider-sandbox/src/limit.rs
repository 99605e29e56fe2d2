//! Limits over all targets: requests per second and requests at once. Beyond them the answer is 429. With a pace, the
//! answer comes later instead.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

#[derive(Debug, Default)]
pub(super) struct SandboxLimits {
    rate_per_s: Option<u32>,
    concurrency_max: Option<u32>,
    /// Processes this many requests per second, in order.
    pace_per_s: Option<u32>,
    bucket: Mutex<RateWindow>,
    /// When all requests so far are processed, in microseconds since the start.
    processed_at_us: Mutex<u64>,
    in_flight: AtomicU32,
}

#[derive(Debug, Default)]
struct RateWindow {
    second: u64,
    used: u32,
}

/// One request inside the concurrency limit. Dropping it frees its place.
#[derive(Debug)]
pub(super) struct RequestPermit<'a>(&'a AtomicU32);

impl SandboxLimits {
    pub(super) fn new(
        rate_per_s: Option<u32>,
        concurrency_max: Option<u32>,
        pace_per_s: Option<u32>,
    ) -> Self {
        Self { rate_per_s, concurrency_max, pace_per_s, ..Self::default() }
    }

    /// How long a request that comes now has to wait for those before it.
    pub(super) fn wait(&self, since_start_ms: u64) -> Option<Duration> {
        let each_us = 1_000_000 / u64::from(self.pace_per_s?.max(1));
        let now_us = since_start_ms * 1_000;
        let mut processed_at = self.processed_at_us.lock().unwrap_or_else(PoisonError::into_inner);
        *processed_at = (*processed_at).max(now_us) + each_us;
        Some(Duration::from_micros(*processed_at - now_us))
    }

    /// A place for this request, or `None` if it is one too many.
    pub(super) fn enter(&self, since_start_ms: u64) -> Option<RequestPermit<'_>> {
        let before = self.in_flight.fetch_add(1, Relaxed);
        let place = RequestPermit(&self.in_flight);
        let room = self.concurrency_max.is_none_or(|max| before < max);
        (room && self.within_rate(since_start_ms)).then_some(place)
    }

    fn within_rate(&self, since_start_ms: u64) -> bool {
        let Some(rate) = self.rate_per_s else { return true };
        let second = since_start_ms / 1000;
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        if bucket.second != second {
            *bucket = RateWindow { second, used: 0 };
        }
        bucket.used += 1;
        bucket.used <= rate
    }
}

impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_rate_nothing_enters_until_the_next_second() {
        let limits = SandboxLimits::new(Some(2), None, None);
        let entered = [0, 10, 20, 1000].map(|t| limits.enter(t).is_some());
        assert_eq!(entered, [true, true, false, true]);
    }

    #[test]
    fn a_place_is_given_back() {
        let limits = SandboxLimits::new(None, Some(1), None);
        let first = limits.enter(0);
        assert!(first.is_some());
        assert!(limits.enter(0).is_none());
        drop(first);
        assert!(limits.enter(0).is_some());
    }

    #[test]
    fn at_a_pace_requests_wait_for_those_before_them() {
        let limits = SandboxLimits::new(None, None, Some(100));
        let waits = [0, 0, 0, 1_000].map(|t| limits.wait(t).map(|d| d.as_millis()));
        assert_eq!(waits, [Some(10), Some(20), Some(30), Some(10)]);
        assert_eq!(SandboxLimits::default().wait(0), None);
    }
}
