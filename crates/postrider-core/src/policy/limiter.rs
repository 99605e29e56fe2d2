//! Rate limits by GCRA (the leaky bucket without a bucket): one number of state per limit, exact to the
//! nanosecond, and it says when there is room again. Reads no clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::time::Timestamp;

/// So much per second, so much of it at once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub per_s: f64,
    /// How much may come at once after a rest; at least 1.
    pub burst: u32,
    /// After a rest of this length or more, the rate grows from a tenth to the whole within it; 0 for at
    /// once.
    pub ramp_s: u32,
}

/// Where calls of a rate are taken from; [`Limiter`] says what its parts mean.
pub trait RateSource {
    fn rate(&self) -> Rate;
    fn available(&mut self, want: usize, now: Timestamp) -> usize;
    fn take(&mut self, count: usize, now: Timestamp);
    fn refund(&mut self, count: usize, now: Timestamp);
    fn next(&self, now: Timestamp) -> Timestamp;
}

/// One limit.
#[derive(Debug, Clone)]
pub struct Limiter {
    rate: Rate,
    /// When everything that was taken will have been earned, in nanoseconds since the epoch.
    earned_at: i128,
    ramping_since: Option<Timestamp>,
}

const SECOND: f64 = 1e9;
const RAMP_FROM: f64 = 0.1;

impl Limiter {
    pub fn new(rate: Rate) -> Self {
        Self { rate, earned_at: 0, ramping_since: None }
    }

    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// The rate, as far as it has ramped up.
    pub fn present_rate(&self, now: Timestamp) -> Rate {
        let ramp = self.ramp(now);
        let burst = (f64::from(self.rate.burst) * ramp).max(1.0) as u32;
        Rate { per_s: self.rate.per_s * ramp, burst, ..self.rate }
    }

    /// Another rate from now on. What was taken and is not earned yet is owed at the new rate.
    pub fn adopt(&mut self, rate: Rate, now: Timestamp) {
        let before = self.interval(now);
        self.rate = rate;
        let owed = (self.earned_at - nanos(now)).max(0) as f64 / before as f64;
        if owed > 0.0 {
            self.earned_at = nanos(now) + (owed * self.interval(now) as f64) as i128;
        }
    }

    /// How much of `want` could be taken now.
    pub fn available(&mut self, want: usize, now: Timestamp) -> usize {
        self.watch_the_ramp(now);
        let each = self.interval(now);
        let room = nanos(now) + self.depth(now) - self.earned_at.max(nanos(now));
        usize::try_from(room / each).unwrap_or(0).min(want)
    }

    /// Takes it, whether it is available or not: ask first.
    pub fn take(&mut self, count: usize, now: Timestamp) {
        let each = self.interval(now);
        self.earned_at = self.earned_at.max(nanos(now)) + each * count as i128;
    }

    /// Gives back what was taken and not used.
    pub fn refund(&mut self, count: usize, now: Timestamp) {
        self.earned_at -= self.interval(now) * count as i128;
    }

    /// When one more can be taken; now or earlier if it can be already.
    pub fn next(&self, now: Timestamp) -> Timestamp {
        let at = self.earned_at + self.interval(now) - self.depth(now);
        // Rounded up: a wake-up before its time would be for nothing.
        Timestamp(i64::try_from((at + 999_999).div_euclid(1_000_000)).unwrap_or(i64::MAX))
    }

    /// Nothing is owed.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.earned_at <= nanos(now)
    }

    fn interval(&self, now: Timestamp) -> i128 {
        (SECOND / (self.rate.per_s * self.ramp(now)).max(1e-6)).max(1.0) as i128
    }

    fn depth(&self, now: Timestamp) -> i128 {
        let burst = f64::from(self.rate.burst.max(1)) * self.ramp(now);
        self.interval(now) * (burst.max(1.0) as i128)
    }

    fn ramp(&self, now: Timestamp) -> f64 {
        let Some(since) = self.ramping_since else { return 1.0 };
        let done = now.since(since).as_secs_f64() / f64::from(self.rate.ramp_s.max(1));
        (RAMP_FROM + (1.0 - RAMP_FROM) * done).min(1.0)
    }

    fn watch_the_ramp(&mut self, now: Timestamp) {
        if self.rate.ramp_s == 0 {
            return;
        }
        let rest = Duration::from_secs(self.rate.ramp_s.into()).as_nanos() as i128;
        if nanos(now) - self.earned_at >= rest && !self.is_ramping(now) {
            self.ramping_since = Some(now);
        }
    }

    fn is_ramping(&self, now: Timestamp) -> bool {
        self.ramping_since.is_some() && self.ramp(now) < 1.0
    }
}

impl RateSource for Limiter {
    fn rate(&self) -> Rate {
        self.rate()
    }

    fn available(&mut self, want: usize, now: Timestamp) -> usize {
        self.available(want, now)
    }

    fn take(&mut self, count: usize, now: Timestamp) {
        self.take(count, now);
    }

    fn refund(&mut self, count: usize, now: Timestamp) {
        self.refund(count, now);
    }

    fn next(&self, now: Timestamp) -> Timestamp {
        self.next(now)
    }
}

fn nanos(at: Timestamp) -> i128 {
    i128::from(at.0) * 1_000_000
}

/// Asks several limits for the same, all or none: how much all of them have, or which of them has
/// nothing and until when.
pub fn available(
    levels: &mut [&mut dyn RateSource],
    want: usize,
    now: Timestamp,
) -> Result<usize, (usize, Timestamp)> {
    let mut count = want;
    let mut none: Option<(usize, Timestamp)> = None;
    for (index, level) in levels.iter_mut().enumerate() {
        let here = level.available(want, now);
        count = count.min(here);
        if here == 0 && want > 0 {
            let at = level.next(now).max(Timestamp(now.0 + 1));
            none = none.filter(|(_, until)| *until >= at).or(Some((index, at)));
        }
    }
    none.map_or(Ok(count), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn limiter(per_s: f64, burst: u32, ramp_s: u32) -> Limiter {
        Limiter::new(Rate { per_s, burst, ramp_s })
    }

    fn sent_within(limiter: &mut Limiter, ms: u64) -> usize {
        sent_within_from(limiter, 0, ms)
    }

    #[test]
    fn it_gives_exactly_its_rate_and_one_burst() {
        assert_eq!(sent_within(&mut limiter(100.0, 1, 0), 10_000), 1_000);
        assert_eq!(sent_within(&mut limiter(100.0, 50, 0), 10_000), 1_049);
        assert_eq!(sent_within(&mut limiter(3.0, 1, 0), 60_000), 180);
    }

    #[test]
    fn it_says_exactly_when_there_is_room_again() {
        let mut limiter = limiter(3.0, 1, 0);
        limiter.take(limiter.clone().available(9, NOW), NOW);
        let next = limiter.next(NOW);
        assert_eq!(next.since(NOW), Duration::from_millis(334));
        assert_eq!(limiter.available(9, Timestamp(next.0 - 1)), 0);
        assert_eq!(limiter.available(9, next), 1);
    }

    #[test]
    fn what_is_not_used_is_not_lost() {
        let mut limiter = limiter(10.0, 5, 0);
        limiter.take(5, NOW);
        assert_eq!(limiter.available(9, NOW), 0);
        limiter.refund(3, NOW);
        assert_eq!(limiter.available(9, NOW), 3);
    }

    #[test]
    fn a_rate_ramps_up_after_a_rest() {
        let mut limiter = limiter(100.0, 1, 60);
        let first = sent_within(&mut limiter, 1_000);
        assert!((8..=13).contains(&first), "{first} in the first second");
        let all = sent_within_from(&mut limiter, 1_000, 60_000);
        assert!((3_000..=3_600).contains(&all), "{all}: about half of the whole on the way up");
        let then = sent_within_from(&mut limiter, 60_000, 70_000);
        assert!((950..=1_001).contains(&then), "{then}");
    }

    fn sent_within_from(limiter: &mut Limiter, from_ms: u64, to_ms: u64) -> usize {
        let mut sent = 0;
        for passed in from_ms..to_ms {
            let now = NOW + Duration::from_millis(passed);
            let count = limiter.available(64, now);
            limiter.take(count, now);
            sent += count;
        }
        sent
    }

    #[test]
    fn another_rate_holds_at_once_and_forgives_nothing() {
        let mut limiter = limiter(10.0, 10, 0);
        limiter.take(10, NOW);
        limiter.adopt(Rate { per_s: 100.0, burst: 10, ramp_s: 0 }, NOW);
        assert_eq!(limiter.available(64, NOW), 0);
        assert_eq!(limiter.available(64, NOW + Duration::from_millis(50)), 5);
        limiter.adopt(Rate { per_s: 1.0, burst: 10, ramp_s: 0 }, NOW + Duration::from_millis(50));
        assert_eq!(limiter.available(64, NOW + Duration::from_millis(1_050)), 6);
    }

    #[test]
    fn of_several_limits_the_narrowest_decides_and_none_pays_for_a_refusal() {
        let (mut wide, mut narrow) = (limiter(100.0, 50, 0), limiter(10.0, 2, 0));
        assert_eq!(available(&mut [&mut wide, &mut narrow], 64, NOW), Ok(2));
        narrow.take(2, NOW);
        let (which, until) = available(&mut [&mut wide, &mut narrow], 64, NOW).unwrap_err();
        assert_eq!((which, until.since(NOW)), (1, Duration::from_millis(100)));
        assert_eq!(wide.available(64, NOW), 50);
    }
}
