//! Random numbers for jitter, from one seed. Not for secrets.

use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64. One atomic addition per number, so that all tasks can share it.
pub(crate) struct JitterRng(AtomicU64);

impl JitterRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number in `0.0..1.0`.
    pub(crate) fn next(&self) -> f64 {
        let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}
