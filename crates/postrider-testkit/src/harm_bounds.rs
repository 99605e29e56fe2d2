//! What sick traffic may cost healthy traffic, in figures: for the simulator and for the proof on the real binary.
//! Measures nothing.

/// How much longer healthy deliveries may wait than in the reference.
#[derive(Debug, Clone, Copy)]
pub struct WaitBound {
    pub factor: f64,
    pub plus_ms: i64,
}

pub const P50_BOUND: WaitBound = WaitBound { factor: 1.25, plus_ms: 20 };
pub const P99_BOUND: WaitBound = WaitBound { factor: 2.0, plus_ms: 250 };
/// For deliveries of priority `high`.
pub const P99_HIGH_BOUND: WaitBound = WaitBound { factor: 2.0, plus_ms: 50 };
/// The share of the reference's throughput that is left while healthy work waits.
pub const THROUGHPUT_SHARE_MIN: f64 = 0.85;

impl WaitBound {
    pub fn allowed(self, reference_ms: i64) -> i64 {
        (reference_ms as f64 * self.factor) as i64 + self.plus_ms
    }
}

/// How far the healthy deliveries may be behind the reference, so long after something became sick.
pub fn lag_allowed_ms(since_onset_ms: i64) -> i64 {
    match since_onset_ms {
        ..10_000 => 5_000,
        10_000..15_000 => 2_000,
        _ => 500,
    }
}

/// The value below which this share of the values lies.
pub fn percentile(mut values: Vec<i64>, share: f64) -> i64 {
    values.sort_unstable();
    let nth = (values.len() as f64 * share) as usize;
    values.get(nth.min(values.len().saturating_sub(1))).copied().unwrap_or(0)
}
