//! Seeds that once found a bug. Every test run repeats them.

/// Seed, and what it found.
pub const REGRESSIONS: &[(u64, &str)] = &[
    (2770, "a delivery that expired while its start was written was still handed to its channel"),
    (3608, "the same bug with another plan"),
    (7_770_053, "the oracle took tokens in the order of calls, not of permissions"),
];
