//! How late deliveries are taken up because the server is busy: the sign that more workers would help.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Seconds over which the largest lag counts.
const WINDOW: usize = 10;

#[derive(Default)]
pub struct Lag {
    /// Milliseconds, the most since the last sample.
    newest: AtomicU64,
    /// One per second.
    samples: Mutex<VecDeque<u64>>,
}

impl Lag {
    /// Deliveries were taken up so late.
    pub(super) fn note(&self, late: Duration) {
        let late = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
        self.newest.fetch_max(late, Ordering::Relaxed);
    }

    /// Call it once a second.
    pub fn sample(&self) {
        let newest = self.newest.swap(0, Ordering::Relaxed);
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == WINDOW {
            samples.pop_front();
        }
        samples.push_back(newest);
    }

    /// The most of the last ten seconds.
    pub fn seconds(&self) -> f64 {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = self.newest.load(Ordering::Relaxed);
        samples.iter().copied().chain([newest]).max().unwrap_or(0) as f64 / 1000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_lag_counts_for_ten_seconds() {
        let lag = Lag::default();
        assert_eq!(lag.seconds(), 0.0);
        lag.note(Duration::from_millis(2_500));
        lag.note(Duration::from_millis(10));
        assert_eq!(lag.seconds(), 2.5);
        for _ in 0..WINDOW {
            lag.sample();
            assert_eq!(lag.seconds(), 2.5);
        }
        lag.sample();
        assert_eq!(lag.seconds(), 0.0);
    }
}
