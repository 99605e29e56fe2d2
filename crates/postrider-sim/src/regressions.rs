//! Seeds that once found a bug. Every test run plays them again.

/// Seed, and what it found.
pub const REGRESSIONS: &[(u64, &str)] = &[];
