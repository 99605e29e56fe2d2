//! Totals since the start, and rates over the last ten seconds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use postrider_core::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// Seconds over which a rate is averaged.
const WINDOW: usize = 10;
/// Seconds of history.
const HISTORY: usize = 300;
/// Samples kept, one per second. The oldest rate needs a whole window before it.
const SAMPLES: usize = HISTORY + WINDOW + 1;

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub struct TotalsBody {
    /// Accepted messages, without duplicates.
    pub accepted: u64,
    pub duplicates: u64,
    pub refused: u64,
    /// Calls to providers.
    pub attempts: u64,
    /// Attempts that are followed by another.
    pub retried: u64,
    /// Deliveries that a provider accepted.
    pub sent: u64,
    pub gone: u64,
    pub expired: u64,
    pub dead_lettered: u64,
    /// Late answers that were refused.
    pub fenced: u64,
}

/// Per second.
#[derive(Debug, Clone, Copy, Default, Serialize, ToSchema)]
pub struct RatesBody {
    pub accepted_per_s: f64,
    pub attempts_per_s: f64,
    pub retried_per_s: f64,
    pub sent_per_s: f64,
    pub dead_lettered_per_s: f64,
}

/// Counts since the start, with samples of the last minutes.
#[derive(Default)]
pub struct Totals {
    pub(super) accepted: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) attempts: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) gone: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) dead_lettered: AtomicU64,
    pub(super) fenced: AtomicU64,
    samples: Mutex<VecDeque<(Timestamp, TotalsBody)>>,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Totals {
    pub fn body(&self) -> TotalsBody {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TotalsBody {
            accepted: read(&self.accepted),
            duplicates: read(&self.duplicates),
            refused: read(&self.refused),
            attempts: read(&self.attempts),
            retried: read(&self.retried),
            sent: read(&self.sent),
            gone: read(&self.gone),
            expired: read(&self.expired),
            dead_lettered: read(&self.dead_lettered),
            fenced: read(&self.fenced),
        }
    }

    /// Call it once a second.
    pub fn sample(&self, now: Timestamp) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back((now, self.body()));
    }

    /// Over at most the last ten seconds.
    pub fn rates(&self) -> RatesBody {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.len().checked_sub(1).map(|last| rates_at(&samples, last)).unwrap_or_default()
    }

    /// The rates in each second of the history, the oldest first.
    pub fn history(&self) -> Vec<RatesBody> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let first = samples.len().saturating_sub(HISTORY).max(1);
        (first..samples.len()).map(|at| rates_at(&samples, at)).collect()
    }
}

/// Over the ten seconds before the sample `at`, or as many as there are.
fn rates_at(samples: &VecDeque<(Timestamp, TotalsBody)>, at: usize) -> RatesBody {
    let (Some((from, old)), Some((to, new))) =
        (samples.get(at.saturating_sub(WINDOW)), samples.get(at))
    else {
        return RatesBody::default();
    };
    let seconds = to.since(*from).as_secs_f64();
    let per_s = |a: u64, b: u64| {
        if seconds > 0.0 {
            (b.saturating_sub(a) as f64 / seconds * 10.0).round() / 10.0
        } else {
            0.0
        }
    };
    RatesBody {
        accepted_per_s: per_s(old.accepted, new.accepted),
        attempts_per_s: per_s(old.attempts, new.attempts),
        retried_per_s: per_s(old.retried, new.retried),
        sent_per_s: per_s(old.sent, new.sent),
        dead_lettered_per_s: per_s(old.dead_lettered, new.dead_lettered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_taken_over_the_last_ten_seconds_only() {
        let totals = Totals::default();
        for second in 0..30 {
            totals.sample(Timestamp::from_secs(second));
            let burst = if second < 15 { 1000 } else { 5 };
            totals.accepted.fetch_add(burst, Ordering::Relaxed);
        }
        assert_eq!(totals.rates().accepted_per_s, 5.0);
    }
    #[test]
    fn five_minutes_of_rates_are_remembered_and_no_more() {
        let totals = Totals::default();
        assert!(totals.history().is_empty());
        for second in 0..1000 {
            totals.sample(Timestamp::from_secs(second));
            totals.sent.fetch_add(if second < 990 { 2 } else { 7 }, Ordering::Relaxed);
        }
        let history = totals.history();
        assert_eq!(history.len(), HISTORY);
        assert_eq!(history.first().map(|r| r.sent_per_s), Some(2.0));
        assert_eq!(history.last().map(|r| r.sent_per_s), Some(totals.rates().sent_per_s));
    }
}
