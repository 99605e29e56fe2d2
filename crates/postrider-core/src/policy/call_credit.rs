//! How many calls may be made while some of a tenant's addresses fail: two for each that succeeds, and one per
//! second beside them. Reads no clock.

use crate::model::time::Timestamp;

/// What can be saved up.
const MOST: f64 = 30.0;
#[derive(Debug, Clone, Copy)]
pub(super) struct CallCredit {
    left: f64,
    at: Timestamp,
}

impl Default for CallCredit {
    fn default() -> Self {
        Self { left: MOST, at: Timestamp::default() }
    }
}

impl CallCredit {
    /// In whole calls.
    pub(super) fn left(&self, now: Timestamp) -> f64 {
        self.at(now).floor()
    }

    /// A call pays for itself and for another one.
    pub(super) fn succeeded(&mut self, now: Timestamp) {
        self.set(self.at(now) + 1.0, now);
    }

    pub(super) fn failed(&mut self, now: Timestamp) {
        self.set(self.at(now) - 1.0, now);
    }

    fn at(&self, now: Timestamp) -> f64 {
        (self.left + now.since(self.at).as_secs_f64()).min(MOST)
    }

    fn set(&mut self, left: f64, now: Timestamp) {
        (self.left, self.at) = (left.clamp(0.0, MOST), now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn however_many_calls_failed_there_is_one_per_second() {
        let mut credit = CallCredit::default();
        (0..1_000).for_each(|_| credit.failed(NOW));
        let after = |s| credit.left(NOW + Duration::from_secs(s));
        assert_eq!([0, 1, 5, 3_600].map(after), [0.0, 1.0, 5.0, 30.0]);
    }
}
