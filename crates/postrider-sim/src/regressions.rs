//! Seeds that once found a bug. Every test run plays them again.

/// Seed, and what it found.
pub const REGRESSIONS: &[(u64, &str)] = &[
    (2770, "what expired while its start was being written was handed to its channel all the same"),
    (3608, "the same, over another plan"),
];
