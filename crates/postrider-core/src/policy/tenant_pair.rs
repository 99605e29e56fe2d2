//! The two tenants seen last. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;

#[derive(Debug, Clone, Copy, Default)]
pub struct TenantPair {
    latest: Option<(u64, Timestamp)>,
    other: Option<(u64, Timestamp)>,
}

impl TenantPair {
    /// A tenant (a number that stands for it) is seen.
    pub fn note(&mut self, tenant: u64, now: Timestamp) {
        if self.latest.is_some_and(|(latest, _)| latest != tenant) {
            self.other = self.latest;
        }
        self.latest = Some((tenant, now));
    }

    /// Two tenants were seen within this time.
    pub fn are_two(&self, within: Duration, now: Timestamp) -> bool {
        self.other.is_some_and(|(_, at)| is_within(at, within, now))
    }
}

/// A time ahead of the clock is not.
fn is_within(at: Timestamp, within: Duration, now: Timestamp) -> bool {
    at <= now && now.since(at) < within
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const WITHIN: Duration = Duration::from_secs(1);

    #[test]
    fn two_tenants_are_two_however_often_one_of_them_is_seen() {
        let mut pair = TenantPair::default();
        pair.note(1, NOW);
        assert!(!pair.are_two(WITHIN, NOW));
        (0..9).for_each(|_| pair.note(2, NOW));
        assert!(pair.are_two(WITHIN, NOW));
    }

    #[test]
    fn who_was_seen_long_ago_does_not_count() {
        let mut pair = TenantPair::default();
        pair.note(1, NOW);
        pair.note(2, NOW);
        assert!(!pair.are_two(WITHIN, NOW + WITHIN));
    }
}
