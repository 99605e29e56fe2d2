//! A histogram of seconds that is counted without a lock, because every delivery is.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

#[derive(Debug, Clone)]
pub(super) struct AtomicHistogram(Arc<HistogramCounts>);

#[derive(Debug)]
struct HistogramCounts {
    bounds: &'static [f64],
    /// One more than bounds: the last one counts what is above all of them.
    counts: Vec<AtomicU64>,
    sum_us: AtomicU64,
}

impl AtomicHistogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(HistogramCounts { bounds, counts, sum_us: AtomicU64::new(0) }))
    }

    /// From a call to its answer.
    pub(super) fn of_latencies() -> Self {
        Self::new(&[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
    }

    /// From acceptance on.
    pub(super) fn of_ages() -> Self {
        Self::new(&[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 86_400.0])
    }

    pub(super) fn observe(&self, seconds: f64) {
        let at = self.0.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.0.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        // A cast of a negative or too large number takes the nearest that fits.
        self.0.sum_us.fetch_add((seconds * 1e6).round() as u64, Ordering::Relaxed);
    }
}

impl EncodeMetric for AtomicHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let bounds = self.0.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        // Not a counter of its own: it always fits the buckets.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.0.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for AtomicHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn a_value_counts_in_its_bucket_and_in_all_larger_ones() {
        let histogram = AtomicHistogram::new(&[0.1, 1.0]);
        [0.1, 0.5, 7.0].into_iter().for_each(|seconds| histogram.observe(seconds));
        let (mut registry, mut text) = (Registry::default(), String::new());
        registry.register("wait_seconds", "Waits", histogram);
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let expected = "# HELP wait_seconds Waits.\n# TYPE wait_seconds histogram\n\
            wait_seconds_sum 7.6\nwait_seconds_count 3\n\
            wait_seconds_bucket{le=\"0.1\"} 1\nwait_seconds_bucket{le=\"1.0\"} 2\n\
            wait_seconds_bucket{le=\"+Inf\"} 3\n# EOF\n";
        assert_eq!(text, expected);
    }
}
