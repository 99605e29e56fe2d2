//! How much is usually pending, learned from samples. Forgets slowly, and does not learn from what is unusual.

use serde::{Deserialize, Serialize};

/// Samples until it knows anything; one comes per minute.
const SAMPLES_MIN: u32 = 60;
/// The weight of a new sample once it knows enough: half of what it knows is younger than eight hours.
const WEIGHT: f64 = 1.0 / 720.0;

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DepthBaseline {
    mean: f64,
    variance: f64,
    samples: u32,
}

impl DepthBaseline {
    /// What is unusual: the mean and three standard deviations. `None` before there are enough samples.
    pub fn unusual_from(&self) -> Option<f64> {
        (self.samples >= SAMPLES_MIN).then(|| self.mean + 3.0 * self.variance.sqrt())
    }

    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// A sample of each minute. One that is far beyond counts as just unusual, so that a lasting flood is learned in
    /// hours, not in minutes.
    pub fn learn(&mut self, depth: u64) {
        let depth = depth as f64;
        let sample = self.unusual_from().map_or(depth, |most| depth.min(most.max(self.mean + 1.0)));
        self.samples = self.samples.saturating_add(1);
        let weight = WEIGHT.max(1.0 / f64::from(self.samples));
        let off = sample - self.mean;
        self.mean += weight * off;
        self.variance = (1.0 - weight) * (self.variance + weight * off * off);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_the_mean_and_the_spread_and_is_not_spoiled_by_a_flood() {
        let mut usual = DepthBaseline::default();
        for minute in 0..1_000 {
            assert_eq!(usual.unusual_from().is_some(), minute >= 60);
            usual.learn(if minute % 2 == 0 { 900 } else { 1_100 });
        }
        let from = usual.unusual_from().unwrap();
        assert!((1_250.0..1_350.0).contains(&from), "{from}");
        (0..30).for_each(|_| usual.learn(1_000_000));
        let later = usual.unusual_from().unwrap();
        assert!(later < 2.0 * from, "{later}");
    }

    #[test]
    fn an_idle_server_learns_too() {
        let mut usual = DepthBaseline::default();
        (0..100).for_each(|_| usual.learn(0));
        assert_eq!(usual.unusual_from(), Some(0.0));
        (0..2_000).for_each(|_| usual.learn(50));
        assert!(usual.mean() > 5.0, "{usual:?}");
    }
}
