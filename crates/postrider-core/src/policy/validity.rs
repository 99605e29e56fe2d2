//! How long a credential is still valid, and when a person should be told. Reads no clock and tells
//! nobody.

use std::time::Duration;

use crate::model::time::Timestamp;

/// A person is told this many days before the end, once each.
pub const TOLD_AT_DAYS: [u32; 5] = [30, 14, 7, 3, 1];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    Ample,
    /// The last of [`TOLD_AT_DAYS`] that has come.
    Ending {
        within_days: u32,
    },
    Over,
}

impl Validity {
    pub fn at(now: Timestamp, expires_at: Timestamp) -> Self {
        if now >= expires_at {
            return Self::Over;
        }
        let left = expires_at.since(now);
        let come = |days: &&u32| left <= Duration::from_secs(u64::from(**days) * 86_400);
        match TOLD_AT_DAYS.iter().rev().find(come) {
            Some(days) => Self::Ending { within_days: *days },
            None => Self::Ample,
        }
    }

    /// Whether a person who was told `told` last should be told this, too. An improvement is no news.
    pub fn is_news_after(self, told: Option<Self>) -> bool {
        self != Self::Ample && told.is_none_or(|told| self.rank() > told.rank())
    }

    fn rank(self) -> u32 {
        match self {
            Self::Ample => 0,
            Self::Ending { within_days } => 1000_u32.saturating_sub(within_days),
            Self::Over => 1001,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Timestamp = Timestamp(1_800_000_000_000);

    fn before(days: f64) -> Validity {
        Validity::at(END - Duration::from_secs_f64(days * 86_400.0), END)
    }

    #[test]
    fn the_nearest_of_the_days_to_tell_at_is_named() {
        for (days, within) in [(30.0, 30), (14.1, 30), (14.0, 14), (6.9, 7), (1.1, 3), (0.01, 1)] {
            assert_eq!(before(days), Validity::Ending { within_days: within }, "{days}");
        }
        assert_eq!((before(30.01), before(0.0)), (Validity::Ample, Validity::Over));
    }

    #[test]
    fn each_step_is_told_once_and_the_way_back_never() {
        let mut told = None;
        let mut news = 0;
        for hours in (0..40 * 24).rev() {
            let now = before(f64::from(hours) / 24.0);
            if now.is_news_after(told) {
                told = Some(now);
                news += 1;
            }
        }
        assert_eq!(news, 6, "five warnings and the end");
        assert!(!before(20.0).is_news_after(Some(before(10.0))));
        assert!(!Validity::Ample.is_news_after(None));
    }
}
