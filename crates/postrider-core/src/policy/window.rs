//! How many of the latest calls failed, over a rolling window. Constant memory, constant work per
//! call; forgets in steps of one bucket.

use std::time::Duration;

use crate::model::time::Timestamp;

const BUCKETS: usize = 20;
/// In how many steps a window forgets.
pub const STEPS: u32 = BUCKETS as u32;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowCounts {
    pub calls: u32,
    pub failed: u32,
}

impl WindowCounts {
    /// Whether there are enough calls to judge by, and more than that share of them failed.
    pub fn exceeds(self, share: f64, calls_min: u32) -> bool {
        self.calls >= calls_min.max(1) && f64::from(self.failed) > share * f64::from(self.calls)
    }
}

#[derive(Debug, Clone)]
pub struct SlidingWindow {
    bucket_ms: i64,
    head: i64,
    buckets: [WindowCounts; BUCKETS],
    total: WindowCounts,
}

impl SlidingWindow {
    pub fn new(length: Duration) -> Self {
        let bucket_ms = (length.as_millis() as i64 / BUCKETS as i64).max(1);
        Self {
            bucket_ms,
            head: 0,
            buckets: [WindowCounts::default(); BUCKETS],
            total: WindowCounts::default(),
        }
    }

    pub fn is_as_long_as(&self, other: &Self) -> bool {
        self.bucket_ms == other.bucket_ms
    }

    pub fn count(&mut self, failed: bool, now: Timestamp) {
        self.count_many(1, failed, now);
    }

    pub fn count_many(&mut self, calls: usize, failed: bool, now: Timestamp) {
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        let failures = if failed { calls } else { 0 };
        self.advance(now);
        let bucket = &mut self.buckets[self.head.rem_euclid(BUCKETS as i64) as usize];
        for tally in [bucket, &mut self.total] {
            tally.calls = tally.calls.saturating_add(calls);
            tally.failed = tally.failed.saturating_add(failures);
        }
    }

    pub fn tally(&mut self, now: Timestamp) -> WindowCounts {
        self.advance(now);
        self.total
    }

    /// The time that the counts cover: the oldest bucket is gone, the newest not full.
    pub fn covered(&self, now: Timestamp) -> Duration {
        let full = self.bucket_ms * (BUCKETS as i64 - 1);
        Duration::from_millis((full + now.0.rem_euclid(self.bucket_ms)) as u64)
    }

    pub fn clear(&mut self) {
        self.buckets = [WindowCounts::default(); BUCKETS];
        self.total = WindowCounts::default();
    }

    /// A clock that goes back counts into the newest bucket.
    fn advance(&mut self, now: Timestamp) {
        let head = now.0.div_euclid(self.bucket_ms);
        if head <= self.head {
            return;
        }
        let steps = (head - self.head).min(BUCKETS as i64);
        for slot in head - steps + 1..=head {
            let old = std::mem::take(&mut self.buckets[slot.rem_euclid(BUCKETS as i64) as usize]);
            self.total.calls = self.total.calls.saturating_sub(old.calls);
            self.total.failed = self.total.failed.saturating_sub(old.failed);
        }
        self.head = head;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_window_is_forgotten() {
        let mut window = SlidingWindow::new(Duration::from_secs(10));
        for second in 0..10 {
            window.count(second % 2 == 0, Timestamp::from_secs(1_000 + second));
        }
        assert_eq!(
            window.tally(Timestamp::from_secs(1_009)),
            WindowCounts { calls: 10, failed: 5 }
        );
        assert_eq!(window.tally(Timestamp::from_secs(1_014)), WindowCounts { calls: 5, failed: 2 });
        assert_eq!(window.tally(Timestamp::from_secs(1_030)), WindowCounts::default());
    }

    #[test]
    fn a_clock_that_goes_back_loses_nothing() {
        let mut window = SlidingWindow::new(Duration::from_secs(10));
        window.count(true, Timestamp::from_secs(1_000));
        window.count(true, Timestamp::from_secs(10));
        assert_eq!(window.tally(Timestamp::from_secs(1_000)).failed, 2);
    }
}
