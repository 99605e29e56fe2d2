//! What is believed of the system's clock. Our time runs with monotonic time and never follows a step: a step would end
//! leases and pauses, move retries and expire what is pending. Reads no clock; all numbers are milliseconds.

use crate::model::time::{ClockDoubt, TimeBounds, Timestamp};

/// Differences up to this are followed, slowly. Larger ones are steps.
pub const FOLLOWED_MS: i64 = 60_000;
/// Our time runs faster or slower by this part while it follows.
const FOLLOWED_PART: i64 = 20;
/// The longest time of which a part is followed at once.
const FOLLOWED_AT_ONCE_MS: i64 = 1_000;
/// If the newest stored time is longer ago at the start, the clock has to prove itself.
pub const GAP_MS: i64 = 86_400_000;
/// For so long.
pub const CONFIRMED_AFTER_MS: i64 = 600_000;
/// No right clock is before this time, the start of 2025: it was not set yet.
pub const EARLIEST_MS: i64 = 1_735_689_600_000;

/// Our time, derived from monotonic time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteadyTime {
    /// How far our time is ahead of monotonic time.
    ahead: i64,
    /// The monotonic time of the last comparison.
    compared_at: i64,
    start: ClockStart,
}

/// What the system's clock said at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClockStart {
    /// A time that fits to what is stored. Since then, monotonic time is believed more than the clock.
    Fitting,
    /// A time before what is stored. Nobody knows which of the two was wrong.
    Before,
    /// A time long after what is stored: the server was off, or the clock is wrong.
    AfterGap {
        gap: i64,
        /// The monotonic time at which the clock is confirmed.
        until: i64,
    },
}

impl SteadyTime {
    pub fn new(monotonic: i64, wall: i64) -> Self {
        let ahead = wall.max(EARLIEST_MS).saturating_sub(monotonic);
        Self { ahead, compared_at: monotonic, start: ClockStart::Fitting }
    }

    /// How far our time is ahead of monotonic time.
    pub fn ahead(&self) -> i64 {
        self.ahead
    }

    /// At the start: `newest` is the newest time that is stored, 0 if there is none.
    pub fn start_after(&mut self, newest: i64, monotonic: i64) {
        let now = monotonic.saturating_add(self.ahead);
        if newest > now {
            self.ahead = newest.saturating_sub(monotonic);
            self.start = ClockStart::Before;
        } else if newest > 0 && now - newest > GAP_MS {
            let until = monotonic.saturating_add(CONFIRMED_AFTER_MS);
            self.start = ClockStart::AfterGap { gap: now - newest, until };
        }
    }

    /// Follows small differences, and learns what the clock was worth at the start. To be called every second or so.
    pub fn compare(&mut self, monotonic: i64, wall: i64) {
        let elapsed = (monotonic - self.compared_at).clamp(0, FOLLOWED_AT_ONCE_MS);
        self.compared_at = monotonic;
        let offset = self.offset(monotonic, wall);
        self.start = match self.start {
            // It was wrong at the start, and was put right before anything was ended.
            ClockStart::AfterGap { .. } if offset < -FOLLOWED_MS => ClockStart::Before,
            ClockStart::AfterGap { until, .. } if monotonic >= until => ClockStart::Fitting,
            ClockStart::Before if offset >= 0 => ClockStart::Fitting,
            same => same,
        };
        if offset.abs() <= FOLLOWED_MS {
            let most = elapsed / FOLLOWED_PART;
            self.ahead += offset.clamp(-most, most);
        }
    }

    /// How far the system's clock is ahead of our time.
    pub fn offset(&self, monotonic: i64, wall: i64) -> i64 {
        wall.saturating_sub(monotonic.saturating_add(self.ahead))
    }

    pub fn bounds(&self, monotonic: i64, wall: i64) -> TimeBounds {
        let now = monotonic.saturating_add(self.ahead);
        // A clock that was never set says nothing. One that differs little is followed.
        let is_ignored = wall < EARLIEST_MS || wall.saturating_sub(now).abs() <= FOLLOWED_MS;
        let wall = if is_ignored { now } else { wall.min(now) };
        let (earliest, latest) = match self.start {
            ClockStart::Fitting => (wall, now),
            ClockStart::Before => (wall, wall),
            ClockStart::AfterGap { gap, .. } => (wall.min(now - gap), now),
        };
        TimeBounds { earliest: Timestamp(earliest), latest: Timestamp(latest) }
    }

    pub fn doubt(&self, monotonic: i64, wall: i64) -> Option<ClockDoubt> {
        let offset = self.offset(monotonic, wall);
        if offset.abs() > FOLLOWED_MS {
            return Some(ClockDoubt::Differs(offset));
        }
        match self.start {
            ClockStart::AfterGap { gap, .. } => Some(ClockDoubt::AfterGap(gap)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_800_000_000_000;
    const YEAR: i64 = 365 * 86_400_000;
    const DAY: i64 = 86_400_000;

    fn bounds(time: &SteadyTime, monotonic: i64, wall: i64) -> (i64, i64) {
        let TimeBounds { earliest, latest } = time.bounds(monotonic, wall);
        (earliest.0 - START, latest.0 - START)
    }

    /// Compares every second, with a clock that is off by `off`.
    fn run(time: &mut SteadyTime, from: i64, to: i64, off: i64) {
        for monotonic in (from..=to).step_by(1_000) {
            time.compare(monotonic, START + monotonic + off);
        }
    }

    #[test]
    fn a_step_moves_our_time_in_neither_direction() {
        for off in [YEAR, -DAY, -START, 3_600_000, -FOLLOWED_MS - 1] {
            let mut time = SteadyTime::new(0, START);
            run(&mut time, 0, 3_600_000, off);
            assert_eq!(time.ahead(), START, "{off}");
            assert_eq!(time.doubt(DAY, START + DAY + off), Some(ClockDoubt::Differs(off)));
            assert_eq!(time.doubt(DAY, START + DAY), None, "it was set right again");
        }
    }

    #[test]
    fn a_small_difference_is_followed_by_a_twentieth() {
        for off in [FOLLOWED_MS, -FOLLOWED_MS, 10] {
            let mut time = SteadyTime::new(0, START);
            run(&mut time, 0, 60_000, off);
            let followed = (60_000 / FOLLOWED_PART).min(off.abs()) * off.signum();
            assert_eq!(time.ahead(), START + followed);
            run(&mut time, 60_000, 1_300_000, off);
            assert_eq!(time.ahead(), START + off);
        }
    }

    #[test]
    fn work_ends_only_if_both_clocks_say_so() {
        let time = SteadyTime::new(0, START);
        assert_eq!(bounds(&time, 5_000, START + 5_000 + YEAR), (5_000, 5_000));
        assert_eq!(bounds(&time, 5_000, START + 5_000 - DAY), (5_000 - DAY, 5_000));
        assert_eq!(bounds(&time, 5_000, 5_000), (5_000, 5_000), "1970 says nothing");
    }

    #[test]
    fn a_clock_before_what_is_stored_goes_on_where_it_ended() {
        for wall in [1_000, START - DAY] {
            let mut time = SteadyTime::new(0, wall);
            time.start_after(START, 0);
            assert_eq!(time.ahead(), START);
            let offset = wall - START;
            assert_eq!(time.doubt(0, wall), Some(ClockDoubt::Differs(offset)));
        }
        let mut time = SteadyTime::new(0, START - DAY);
        time.start_after(START, 0);
        assert_eq!(bounds(&time, 5_000, START - DAY + 5_000), (5_000 - DAY, 5_000 - DAY));
        time.compare(10_000, START + 10_000);
        assert_eq!(bounds(&time, 10_000, START + 10_000), (10_000, 10_000));
    }

    #[test]
    fn a_clock_long_after_what_is_stored_ends_nothing_until_it_is_confirmed() {
        let mut time = SteadyTime::new(0, START);
        time.start_after(START - YEAR, 0);
        assert_eq!(bounds(&time, 5_000, START + 5_000), (5_000 - YEAR, 5_000));
        assert_eq!(time.doubt(5_000, START + 5_000), Some(ClockDoubt::AfterGap(YEAR)));
        run(&mut time, 0, CONFIRMED_AFTER_MS - 1_000, 0);
        assert!(time.doubt(0, START).is_some());
        run(&mut time, CONFIRMED_AFTER_MS - 1_000, CONFIRMED_AFTER_MS, 0);
        assert_eq!(bounds(&time, 700_000, START + 700_000), (700_000, 700_000));
        assert_eq!(time.doubt(700_000, START + 700_000), None);
    }

    #[test]
    fn a_wrong_start_that_is_put_right_ends_nothing() {
        let mut time = SteadyTime::new(0, START + YEAR);
        time.start_after(START - 2 * DAY, 0);
        run(&mut time, 0, 30_000, YEAR);
        run(&mut time, 30_000, 2_000_000, 0);
        assert_eq!(bounds(&time, 2_000_000, START + 2_000_000), (2_000_000, 2_000_000));
    }

    #[test]
    fn a_new_folder_starts_with_any_clock() {
        let mut time = SteadyTime::new(0, 1_000);
        time.start_after(0, 0);
        assert_eq!(time.ahead(), EARLIEST_MS);
        let mut time = SteadyTime::new(0, START);
        time.start_after(0, 0);
        assert_eq!((time.ahead(), time.doubt(0, START)), (START, None));
    }
}
