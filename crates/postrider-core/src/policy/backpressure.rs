//! Backpressure: how much may be pending, and how long a caller who finds no room is asked to wait,
//! from how fast work drains. Counts nothing itself, reads no clock, draws no number.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::ports::store::Load;

/// How much may be pending; 0 is no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capacity {
    pub deliveries_max: u64,
    pub bytes_max: u64,
}

impl Capacity {
    /// By how much the load would exceed the capacity, if it does.
    pub fn excess(&self, pending: Load, more: Load) -> Option<Load> {
        let over = |max: u64, sum: u64| if max == 0 { 0 } else { sum.saturating_sub(max) };
        let excess = Load {
            deliveries: over(
                self.deliveries_max,
                pending.deliveries.saturating_add(more.deliveries),
            ),
            bytes: over(self.bytes_max, pending.bytes.saturating_add(more.bytes)),
        };
        (excess != Load::default()).then_some(excess)
    }

    /// How full it is, by whichever is fuller; 1 is full.
    pub fn fill(&self, pending: Load) -> f64 {
        let share = |max: u64, n: u64| if max == 0 { 0.0 } else { n as f64 / max as f64 };
        share(self.deliveries_max, pending.deliveries).max(share(self.bytes_max, pending.bytes))
    }
}

/// How fast work drains, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Speed {
    pub deliveries: f64,
    pub bytes: f64,
}

/// A wait where nothing was measured yet.
const WAIT_UNKNOWN: Duration = Duration::from_secs(5);
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Callers who were refused together must not come back together.
const SPREAD: f64 = 0.25;

/// How long until so much has drained. `random` is in `0.0..1.0`.
pub fn retry_after(excess: Load, drain: Option<Speed>, random: f64) -> Duration {
    let until = |excess: u64, per_s: f64| match excess {
        0 => 0.0,
        _ if per_s <= 0.0 => WAIT_MAX.as_secs_f64(),
        _ => (excess as f64 / per_s).min(WAIT_MAX.as_secs_f64()),
    };
    let wait = drain.map_or(WAIT_UNKNOWN.as_secs_f64(), |drain| {
        until(excess.deliveries, drain.deliveries).max(until(excess.bytes, drain.bytes))
    });
    let spread = wait * (1.0 + SPREAD * random) + random;
    Duration::from_secs_f64(spread).clamp(WAIT_MIN, WAIT_MAX)
}

/// Measures how fast work drains, over the last ten to twenty seconds in which it was asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Drain {
    old: Option<DrainSample>,
    young: Option<DrainSample>,
    speed: Option<Speed>,
}

#[derive(Debug, Clone, Copy)]
struct DrainSample {
    at: Timestamp,
    /// Accepted so far less what is pending: grows by what drains, from wherever it began.
    deliveries: i128,
    bytes: i128,
}

const WINDOW: Duration = Duration::from_secs(10);
/// Without a sample for so long, older ones say nothing about now.
const FORGET: Duration = Duration::from_secs(60);
/// Too short to tell.
const LOOK_MIN: Duration = Duration::from_secs(1);

impl Drain {
    /// `accepted` counts all that was ever taken in.
    pub fn observe(&mut self, accepted: Load, pending: Load, now: Timestamp) {
        let mark = DrainSample {
            at: now,
            deliveries: i128::from(accepted.deliveries) - i128::from(pending.deliveries),
            bytes: i128::from(accepted.bytes) - i128::from(pending.bytes),
        };
        let (Some(old), Some(young)) = (self.old, self.young) else {
            (self.old, self.young) = (Some(mark), Some(mark));
            return;
        };
        if now < young.at || now.since(young.at) > FORGET {
            *self = Self { old: Some(mark), young: Some(mark), speed: None };
            return;
        }
        let passed = now.since(old.at);
        if passed >= LOOK_MIN {
            let per_s = |from: i128, to: i128| (to - from).max(0) as f64 / passed.as_secs_f64();
            self.speed = Some(Speed {
                deliveries: per_s(old.deliveries, mark.deliveries),
                bytes: per_s(old.bytes, mark.bytes),
            });
        }
        if now.since(young.at) >= WINDOW {
            (self.old, self.young) = (self.young, Some(mark));
        }
    }

    /// Nothing while it is not known.
    pub fn speed(&self) -> Option<Speed> {
        self.speed
    }
}

/// Says once when a capacity is nearly used up, and once when it is not any more.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alarm {
    raised: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossing {
    NearlyFull,
    Eased,
}

/// From this share on it is nearly full.
pub const ALARM_AT: f64 = 0.8;
/// Below this it is not any more.
const EASED_AT: f64 = 0.7;

impl Alarm {
    pub fn look(&mut self, fill: f64) -> Option<Crossing> {
        let (raised, crossing) = match self.raised {
            false if fill >= ALARM_AT => (true, Crossing::NearlyFull),
            true if fill < EASED_AT => (false, Crossing::Eased),
            _ => return None,
        };
        self.raised = raised;
        Some(crossing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn load(deliveries: u64, bytes: u64) -> Load {
        Load { deliveries, bytes }
    }

    fn speed(deliveries: f64, bytes: f64) -> Option<Speed> {
        Some(Speed { deliveries, bytes })
    }

    #[test]
    fn what_fits_exactly_fits_and_one_more_does_not() {
        let capacity = Capacity { deliveries_max: 10, bytes_max: 100 };
        assert_eq!(capacity.excess(load(9, 90), load(1, 10)), None);
        assert_eq!(capacity.excess(load(9, 90), load(2, 10)), Some(load(1, 0)));
        assert_eq!(capacity.excess(load(0, 90), load(1, 20)), Some(load(0, 10)));
        assert_eq!(capacity.excess(load(u64::MAX, 0), load(u64::MAX, 0)).map(|e| e.bytes), Some(0));
    }

    #[test]
    fn zero_is_no_bound() {
        let capacity = Capacity { deliveries_max: 0, bytes_max: 0 };
        assert_eq!(capacity.excess(load(u64::MAX, u64::MAX), load(1, 1)), None);
        assert_eq!(capacity.fill(load(u64::MAX, 1)), 0.0);
    }

    #[test]
    fn the_wait_is_how_long_the_excess_takes_to_drain() {
        let wait = |excess, drain| retry_after(excess, drain, 0.0).as_secs();
        assert_eq!(wait(load(1_000, 0), speed(100.0, 0.0)), 10);
        assert_eq!(wait(load(1_000, 5_000), speed(100.0, 100.0)), 50, "the slower of the two");
        assert_eq!(wait(load(1, 0), speed(1e6, 0.0)), 1, "never less than a second");
        assert_eq!(wait(load(1_000_000, 0), speed(1.0, 1.0)), 300, "never more than five minutes");
        assert_eq!(wait(load(1, 0), speed(0.0, 0.0)), 300, "nothing drains");
        assert_eq!(wait(load(1, 0), None), 5, "nothing was measured");
    }

    #[test]
    fn those_who_are_refused_together_do_not_come_back_together() {
        let at = |random| retry_after(load(1_000, 0), speed(100.0, 0.0), random).as_secs_f64();
        assert_eq!((at(0.0), at(1.0)), (10.0, 13.5));
    }

    #[test]
    fn the_drain_is_measured_also_while_more_is_accepted() {
        let mut drain = Drain::default();
        for second in 0..60 {
            // 50 accepted and 80 drained per second, of a backlog of 10 000.
            let accepted = load(50 * second, 500 * second);
            let pending = load(10_000 - 30 * second, 100_000 - 300 * second);
            drain.observe(accepted, pending, NOW + Duration::from_secs(second));
        }
        assert_eq!(drain.speed(), speed(80.0, 800.0));
    }

    #[test]
    fn a_drain_that_stops_is_noticed_within_twenty_seconds_and_an_old_look_says_nothing() {
        let mut drain = Drain::default();
        for second in 0..60 {
            let drained = 10 * second.min(30);
            drain.observe(load(0, 0), load(1_000 - drained, 0), NOW + Duration::from_secs(second));
        }
        assert_eq!(drain.speed(), speed(0.0, 0.0));
        drain.observe(load(0, 0), load(0, 0), NOW + Duration::from_secs(3_600));
        assert_eq!(drain.speed(), None);
    }

    #[test]
    fn an_alarm_is_given_once_per_crossing() {
        let mut alarm = Alarm::default();
        let told: Vec<_> = [0.5, 0.79, 0.8, 0.9, 0.75, 0.85, 0.69, 0.75, 0.81]
            .into_iter()
            .filter_map(|fill| alarm.look(fill))
            .collect();
        assert_eq!(told, [Crossing::NearlyFull, Crossing::Eased, Crossing::NearlyFull]);
    }
}
