//! Parts of a rate that several nodes share: each part is an interval in which calls may be made, and no two parts
//! overlap. So no window of time ever has more calls than the rate and its burst allow. Pure.

use std::time::Duration;

use super::limiter::Rate;
use crate::model::time::Timestamp;

/// Nobody gets calls of a later time than this from now, so that nobody keeps them from the others for long.
const AHEAD_US: f64 = 1_000_000.0;

/// Calls that one node may make by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSlice {
    pub calls: u32,
    /// The first call may be made from this time on, which may be over, and each further one an equal time later.
    /// Without any calls: when there are some again.
    pub from: Timestamp,
    /// When the call after the last one could be made.
    pub until: Timestamp,
}

impl RateSlice {
    /// When its nth call may be made, counted from 0.
    pub fn at(&self, n: u32) -> Timestamp {
        let step = self.until.since(self.from).as_secs_f64() / f64::from(self.calls.max(1));
        self.from + Duration::from_secs_f64(step * f64::from(n))
    }
}

/// The state of a shared rate.
#[derive(Debug, Clone, Copy, Default)]
pub struct SharedRate {
    /// When the first call may be made that nobody has yet, in microseconds.
    next_us: f64,
}

impl SharedRate {
    /// A state that was stored.
    pub fn at(next_us: f64) -> Self {
        Self { next_us }
    }

    pub fn next_us(&self) -> f64 {
        self.next_us
    }

    /// From this time on, a new state would give out the same.
    pub fn idle_at(&self, rate: Rate) -> Timestamp {
        let unused = 1_000.0 * f64::from(rate.burst) / rate.per_s.max(f64::MIN_POSITIVE);
        Timestamp((self.next_us / 1_000.0 + unused).ceil() as i64)
    }

    /// Gives out at most `want` calls.
    pub fn grant(&mut self, rate: Rate, want: u32, now: Timestamp) -> RateSlice {
        let step = 1_000_000.0 / rate.per_s.max(f64::MIN_POSITIVE);
        let now_us = now.0 as f64 * 1_000.0;
        let unused = step * f64::from(rate.burst.saturating_sub(1));
        let first = self.next_us.max(now_us - unused);
        let room = ((now_us + AHEAD_US - first) / step).floor().max(0.0);
        // A slow rate has at most one call per second and more, which somebody must get.
        let room = if first <= now_us { room.max(1.0) } else { room };
        let calls = if room >= f64::from(want) { want } else { room as u32 };
        self.next_us = first + step * f64::from(calls);
        let at = |us: f64| Timestamp((us / 1_000.0).ceil() as i64);
        RateSlice { calls, from: at(first), until: at(self.next_us) }
    }

    /// Whether nobody has calls of a time to come: a new state would give out the same.
    pub fn is_idle(&self, rate: Rate, now: Timestamp) -> bool {
        let unused = 1_000.0 * f64::from(rate.burst) / rate.per_s.max(f64::MIN_POSITIVE);
        self.next_us / 1_000.0 + unused < now.0 as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_790_000_000_000;

    fn rate(per_s: f64, burst: u32) -> Rate {
        Rate { per_s, burst, ramp_s: 0 }
    }

    /// Several nodes ask for random amounts at random times, and make each call as early as they may.
    #[test]
    fn no_window_has_more_calls_than_rate_and_burst_allow() {
        let mut random = 7u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..200 {
            let rate = rate((1 + draw(500)) as f64 / 3.0, 1 + draw(50) as u32);
            let (mut shared, mut now, mut calls) = (SharedRate::default(), NOW, Vec::new());
            for _ in 0..200 {
                now += draw(100) as i64;
                let slice = shared.grant(rate, draw(40) as u32, Timestamp(now));
                calls.extend((0..slice.calls).map(|n| slice.at(n).0.max(now)));
            }
            calls.sort_unstable();
            for (i, first) in calls.iter().enumerate() {
                for (n, last) in calls[i..].iter().enumerate().step_by(7) {
                    // One millisecond at each end, because times are rounded.
                    let seconds = (last - first + 2) as f64 / 1_000.0;
                    let allowed = rate.per_s * seconds + f64::from(rate.burst) + 1e-6;
                    assert!(
                        (n + 1) as f64 <= allowed.floor() + 1.0,
                        "{rate:?}: {n} in {seconds} s"
                    );
                }
            }
        }
    }

    #[test]
    fn the_whole_rate_is_given_out() {
        let (rate, mut shared) = (rate(100.0, 10), SharedRate::default());
        let calls: u32 = (0..100)
            .map(|second| shared.grant(rate, 1_000, Timestamp(NOW + second * 1_000)).calls)
            .sum();
        assert!((10_000..=10_210).contains(&calls), "{calls}");
    }

    #[test]
    fn a_rate_below_one_per_second_gives_one_at_a_time_and_says_when() {
        let (rate, mut shared) = (rate(0.1, 1), SharedRate::default());
        assert_eq!(shared.grant(rate, 5, Timestamp(NOW)).calls, 1);
        let none = shared.grant(rate, 5, Timestamp(NOW + 1));
        assert_eq!((none.calls, none.from), (0, Timestamp(NOW + 10_000)));
        assert_eq!(shared.grant(rate, 5, none.from).calls, 1);
    }
}
