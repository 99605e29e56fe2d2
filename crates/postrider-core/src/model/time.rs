//! Points in time, in milliseconds since the Unix epoch. Never reads a clock: a [`Clock`] is handed in.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const MAX: Self = Self(i64::MAX);

    pub fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    pub fn as_secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

/// RFC 3339 in UTC with milliseconds, e.g. `2026-11-15T06:00:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0.div_euclid(86_400_000);
        let ms = self.0.rem_euclid(86_400_000);
        let (year, month, day) = civil_from_days(days);
        let (h, m, s, milli) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
        write!(f, "{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{milli:03}Z")
    }
}

/// The Gregorian date of a day number counted from the epoch.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    (yoe + era * 400 + i64::from(month <= 2), month, day)
}

/// The inverse of [`civil_from_days`].
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let mp = i64::from(if month > 2 { month - 3 } else { month + 9 });
    let doy = (153 * mp + 2) / 5 + i64::from(day) - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 719_468
}

/// What is known of the present. Both are the same unless the system's clock is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeBounds {
    /// Only what is over by this time is ended, deleted or forgotten.
    pub earliest: Timestamp,
    /// Nothing is sent that is over by this time.
    pub latest: Timestamp,
}

/// Why the system's clock is in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockDoubt {
    /// It differs from our time by so many milliseconds; positive if it is ahead.
    Differs(i64),
    /// At the start it was so many milliseconds after everything stored, and it is not confirmed yet.
    AfterGap(i64),
}

/// Where the present comes from: the system's clock in production, a hand-set one in tests.
pub trait Clock: Send + Sync + 'static {
    /// The time that everything is stored, scheduled and measured by. A clock in production does not follow steps of
    /// the system's clock.
    fn now(&self) -> Timestamp;

    /// The present as the start of a wait, rounded up where the clock knows more than a timestamp says:
    /// who is asked to wait two seconds must not come after 1.9995.
    fn now_rounded_up(&self) -> Timestamp {
        self.now()
    }

    /// How far the system's clock is ahead of `now`.
    fn wall_offset_ms(&self) -> i64 {
        0
    }

    /// The time of the system's clock, for what others compare with their clocks: signatures, tokens, dates.
    fn wall(&self) -> Timestamp {
        Timestamp(self.now().0.saturating_add(self.wall_offset_ms()))
    }

    fn bounds(&self) -> TimeBounds {
        let now = self.now();
        TimeBounds { earliest: now, latest: now }
    }

    /// Tells the clock the newest time that is stored: it does not start before that.
    fn start_after(&self, _newest: Timestamp) {}

    fn doubt(&self) -> Option<ClockDoubt> {
        None
    }

    /// Asks to be called whenever time is moved by hand, so that whoever sleeps until a time looks
    /// again. A real clock moves by itself and never calls.
    fn on_move(&self, _wake: std::sync::Arc<dyn Fn() + Send + Sync>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_rfc_3339() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(1_794_722_400_123).to_string(), "2026-11-15T06:00:00.123Z");
        assert_eq!(Timestamp(-1).to_string(), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn civil_dates_round_trip() {
        for day in -800_000..800_000 {
            let (y, m, d) = civil_from_days(day);
            assert_eq!(days_from_civil(y, m, d), day);
        }
    }
}
