//! After a time without calls that the other side asked for or that its failures brought about, calls begin
//! slowly: a few at first, half as many again in each step in which they were accepted, and ever more rarely
//! while they are not. Else all that waited would come in the same millisecond. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::signal::Signal;

/// The calls of the first step, and from how many on it is over.
const FIRST: usize = 4;
const LAST: usize = 1_024;
const STEP: Duration = Duration::from_millis(100);
const STEP_MAX: Duration = Duration::from_secs(5);
/// It is over, too, if so little was asked for.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Default)]
pub struct RestartRamp(Option<RampStep>);

#[derive(Debug, Clone, Copy)]
struct RampStep {
    began: Timestamp,
    ends: Timestamp,
    length: Duration,
    allowed: usize,
    taken: usize,
    well: bool,
    busy: bool,
}

impl RestartRamp {
    /// Calls begin again at this time.
    pub fn begin(&mut self, at: Timestamp) {
        let step = RampStep {
            began: at,
            ends: at + STEP,
            length: STEP,
            allowed: FIRST,
            taken: 0,
            well: false,
            busy: false,
        };
        self.0 = Some(step);
    }

    /// How many of `want` calls may be made now, or when the next one may; they count as made.
    pub fn take(&mut self, want: usize, now: Timestamp) -> Result<usize, Timestamp> {
        let Some(step) = &mut self.0 else { return Ok(want) };
        if now >= step.ends && !step.next(now) {
            self.0 = None;
            return Ok(want);
        }
        let calls = want.min(step.allowed - step.taken);
        if calls == 0 && want > 0 {
            return Err(step.ends);
        }
        step.taken += calls;
        Ok(calls)
    }

    /// Whether a call could be made now, or when. Changes nothing.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        self.0.filter(|step| now < step.ends && step.taken >= step.allowed).map(|step| step.ends)
    }

    /// Calls that were permitted and not made.
    pub fn give_back(&mut self, calls: usize) {
        if let Some(step) = &mut self.0 {
            step.taken = step.taken.saturating_sub(calls);
        }
    }

    /// The end of a call.
    pub fn report(&mut self, signal: Signal) {
        if let Some(step) = &mut self.0 {
            step.well |= signal == Signal::Well;
            step.busy |= signal == Signal::Busy || signal.is_failure();
        }
    }
}

impl RampStep {
    /// The next step. False if calls need not be held any longer.
    fn next(&mut self, now: Timestamp) -> bool {
        match (self.well, self.busy) {
            (true, false) if self.taken >= self.allowed => {
                (self.allowed, self.length) = (self.allowed + self.allowed.div_ceil(2), STEP);
            }
            (false, true) => {
                (self.began, self.length) = (now, (self.length * 2).min(STEP_MAX));
                self.allowed = (self.allowed / 2).max(1);
            }
            _ => {}
        }
        (self.ends, self.taken, self.well, self.busy) = (now + self.length, 0, false, false);
        self.allowed < LAST && now.since(self.began) < LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn at(ms: u64) -> Timestamp {
        NOW + Duration::from_millis(ms)
    }

    /// When something goes, and how much, if everything is answered so.
    fn steps(signal: Signal) -> Vec<(u64, usize)> {
        let mut ramp = RestartRamp::default();
        ramp.begin(NOW);
        let mut taken = Vec::new();
        for ms in (0..3_000).step_by(50) {
            if let Ok(calls) = ramp.take(10_000, at(ms)) {
                taken.push((ms, calls));
                ramp.report(signal);
            }
        }
        taken
    }

    #[test]
    fn more_calls_go_in_each_step_until_all_may() {
        let (times, calls): (Vec<_>, Vec<_>) = steps(Signal::Well).into_iter().unzip();
        assert_eq!(calls[..5], [4, 6, 9, 14, 21]);
        assert_eq!((times[14], calls[14]), (1_400, 10_000));
    }

    #[test]
    fn while_calls_are_refused_few_go_ever_more_rarely() {
        assert_eq!(steps(Signal::Busy), [(0, 4), (100, 2), (300, 1), (700, 1), (1_500, 1)]);
    }

    #[test]
    fn calls_that_were_not_made_are_not_counted_and_little_traffic_is_not_held_for_long() {
        let mut ramp = RestartRamp::default();
        ramp.begin(NOW);
        assert_eq!(ramp.take(4, NOW), Ok(4));
        assert_eq!((ramp.take(1, NOW), ramp.next(NOW)), (Err(at(100)), Some(at(100))));
        ramp.give_back(1);
        assert_eq!(ramp.take(9, NOW), Ok(1));
        assert_eq!(ramp.take(500, at(10_100)), Ok(500));
    }
}
