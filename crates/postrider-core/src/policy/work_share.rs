//! The part of all work that a worker has. Limits of accounts, whose work is spread over all workers by address, are
//! split by it: the parts of all workers are never more than the whole.

use std::sync::atomic::{AtomicU32, Ordering};

use super::limiter::Rate;

const WHOLE: u32 = 1 << 20;
/// Of a rate that is split, only this part is used, so that calls of several workers that are a little late do not
/// exceed it in any window of 10 s.
const USED_PART: f64 = 0.98;

/// Changes when workers come and go.
#[derive(Debug)]
pub struct WorkShare(AtomicU32);

impl Default for WorkShare {
    /// The whole.
    fn default() -> Self {
        Self(AtomicU32::new(WHOLE))
    }
}

impl WorkShare {
    /// True if it changed.
    pub fn set(&self, part: f64) -> bool {
        let part = (part.clamp(0.0, 1.0) * f64::from(WHOLE)) as u32;
        self.0.swap(part, Ordering::Relaxed) != part
    }

    pub fn part(&self) -> f64 {
        f64::from(self.0.load(Ordering::Relaxed)) / f64::from(WHOLE)
    }

    /// The part of a count, at least 1.
    pub fn of_count(&self, count: usize) -> usize {
        // Rounded down, so that the parts are not more than the whole.
        ((count as f64 * self.part()) as usize).max(1)
    }

    pub fn of_rate(&self, rate: Rate) -> Rate {
        let part = self.part();
        let burst = (f64::from(rate.burst) * part).max(1.0) as u32;
        let used = if part < 1.0 { part * USED_PART } else { 1.0 };
        Rate { per_s: rate.per_s * used, burst, ..rate }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_all_workers_are_the_whole() {
        let parts = [22.0 / 64.0, 22.0 / 64.0, 20.0 / 64.0];
        let share = |part| {
            let share = WorkShare::default();
            assert!(share.set(part) && !share.set(part), "only a change is news");
            share
        };
        let rate = Rate { per_s: 300.0, burst: 32, ramp_s: 0 };
        let rates = parts.map(|part| share(part).of_rate(rate));
        let sum = rates.iter().map(|rate| rate.per_s).sum::<f64>();
        assert!((285.0..300.0).contains(&sum), "{sum}");
        assert!(rates.iter().map(|rate| rate.burst).sum::<u32>() <= 32);
        assert!(parts.map(|part| share(part).of_count(256)).iter().sum::<usize>() <= 256);
        assert_eq!(share(0.0).of_count(256), 1);
        assert_eq!(WorkShare::default().of_rate(rate), rate);
    }
}
