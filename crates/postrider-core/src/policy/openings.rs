//! Connections to one origin that could not be opened, one after the other. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;

/// So many in a row, over at least so long, mean that nobody can reach the origin.
const FAILED_MIN: u32 = 5;
const FAILED_FOR: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, Default)]
pub struct Openings {
    failed: u32,
    first: Timestamp,
    last: Timestamp,
}

impl Openings {
    /// An opening that began then has failed. Calls that waited for the same one count once. True if
    /// nobody can reach the origin.
    pub fn failed(&mut self, began: Timestamp, now: Timestamp) -> bool {
        if self.failed > 0 && began < self.last {
            return false;
        }
        if self.failed == 0 {
            self.first = now;
        }
        self.last = now;
        self.failed = self.failed.saturating_add(1);
        self.failed >= FAILED_MIN && now.since(self.first) >= FAILED_FOR
    }

    /// How many failed in a row, if that means that nobody can reach the origin.
    pub fn unreachable_after(&self) -> Option<u32> {
        let is_unreachable = self.failed >= FAILED_MIN && self.last.since(self.first) >= FAILED_FOR;
        is_unreachable.then_some(self.failed)
    }

    /// A request could be written.
    pub fn opened(&mut self) {
        self.failed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn at(ms: u64) -> Timestamp {
        NOW + Duration::from_millis(ms)
    }

    #[test]
    fn five_in_a_row_over_a_second_mean_that_nobody_can_reach_it() {
        let mut openings = Openings::default();
        let failed = [0, 300, 600, 900, 1_200].map(|ms| openings.failed(at(ms), at(ms)));
        assert_eq!(failed, [false, false, false, false, true]);
    }

    #[test]
    fn calls_that_waited_for_one_opening_count_once() {
        let mut openings = Openings::default();
        assert!(!(0..100).any(|_| openings.failed(at(0), at(3_000))));
    }

    #[test]
    fn one_success_forgets_the_failures() {
        let mut openings = Openings::default();
        (0..4).for_each(|s| _ = openings.failed(at(s * 1_000), at(s * 1_000)));
        openings.opened();
        assert!(!openings.failed(at(9_000), at(9_000)));
    }
}
