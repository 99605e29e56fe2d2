//! How long things took, counted in fixed buckets. Histograms of the same thing from several times, servers and tenants
//! add up.

use serde::{Deserialize, Serialize};

/// The upper end of each bucket in milliseconds, inclusive. What took longer than the last is in one more bucket.
/// These never change: stored histograms have no buckets of their own.
pub const BUCKETS_MS: [u64; 16] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 120_000, 600_000, 3_600_000,
    86_400_000,
];

const COUNTS: usize = BUCKETS_MS.len() + 1;

/// Counts by bucket, and the sum of all times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencyHistogram {
    counts: [u64; COUNTS],
    sum_ms: u64,
}

impl LatencyHistogram {
    pub fn note(&mut self, ms: u64) {
        let bucket = BUCKETS_MS.partition_point(|end| *end < ms);
        self.counts[bucket] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    pub fn add(&mut self, other: &Self) {
        for (own, more) in self.counts.iter_mut().zip(other.counts) {
            *own = own.saturating_add(more);
        }
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
    }

    /// One count for each bucket, and one for what took longer.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub fn sum_ms(&self) -> u64 {
        self.sum_ms
    }

    /// The end of the bucket that has this share of all times at or before it. `None` without a time. What took longer
    /// than every bucket is shown as the end of the last.
    pub fn quantile_ms(&self, share: f64) -> Option<u64> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        let wanted = ((total as f64 * share).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        for (count, end) in self.counts.iter().zip(BUCKETS_MS.iter().chain(BUCKETS_MS.last())) {
            seen += count;
            if seen >= wanted {
                return Some(*end);
            }
        }
        None
    }

    /// How many took at most so long. Exact for the end of a bucket, else for the bucket before.
    pub fn at_most(&self, ms: u64) -> u64 {
        let buckets = BUCKETS_MS.partition_point(|end| *end <= ms);
        self.counts[..buckets].iter().sum()
    }
}

/// As a list: the sum, then the counts up to the last that is not 0.
impl Serialize for LatencyHistogram {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let used = self.counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        to.collect_seq(std::iter::once(&self.sum_ms).chain(&self.counts[..used]))
    }
}

impl<'de> Deserialize<'de> for LatencyHistogram {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let list = Vec::<u64>::deserialize(from)?;
        let (sum_ms, given) = list.split_first().unwrap_or((&0, &[]));
        let mut counts = [0; COUNTS];
        if given.len() > COUNTS {
            return Err(serde::de::Error::custom("more buckets than this version knows"));
        }
        counts[..given.len()].copy_from_slice(given);
        Ok(Self { counts, sum_ms: *sum_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_add_up_and_survive_their_text() {
        let (mut one, mut two, mut both) =
            (LatencyHistogram::default(), LatencyHistogram::default(), LatencyHistogram::default());
        for (n, ms) in [0, 5, 6, 99, 100, 101, 500, 30_000, 86_400_001, 7].into_iter().enumerate() {
            if n % 2 == 0 {
                one.note(ms)
            } else {
                two.note(ms)
            }
            both.note(ms);
        }
        one.add(&two);
        assert_eq!(one, both);
        let text = serde_json::to_string(&both).unwrap();
        assert_eq!(serde_json::from_str::<LatencyHistogram>(&text).unwrap(), both);
        assert_eq!((both.total(), both.counts()[0], both.at_most(100)), (10, 2, 6));
        assert_eq!(serde_json::to_string(&LatencyHistogram::default()).unwrap(), "[0]");
    }

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        let mut times = LatencyHistogram::default();
        assert_eq!(times.quantile_ms(0.5), None);
        (0..95).for_each(|_| times.note(20));
        (0..5).for_each(|_| times.note(700));
        assert_eq!(
            [0.0, 0.5, 0.95, 0.96, 1.0].map(|q| times.quantile_ms(q)),
            [Some(25), Some(25), Some(25), Some(1_000), Some(1_000)]
        );
        times.note(u64::MAX);
        assert_eq!(times.quantile_ms(1.0), Some(86_400_000));
    }
}
