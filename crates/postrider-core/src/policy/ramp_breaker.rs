//! A breaker that comes back step by step: after its time it lets one call through; if that goes well two, four,
//! and so on until it is closed again; if not, it opens for longer. Others decide that it opens. For a credential,
//! where a single good answer proves little. Reads no clock, draws no number.

use crate::model::time::Timestamp;
use crate::policy::breaker::{
    BreakerCause, BreakerChange, BreakerPolicy, BreakerRefusal, BreakerState, Permit,
};
use crate::policy::signal::Signal;

#[derive(Debug, Clone)]
enum RampPhase {
    Closed,
    Open { until: Timestamp },
    Recovering { allowed: usize, under_way: usize, good: usize, bad: usize },
}

/// From this many calls at once on, it is closed.
const RAMP_END: usize = 64;

#[derive(Debug, Clone)]
pub struct RampBreaker {
    policy: BreakerPolicy,
    phase: RampPhase,
    epoch: u32,
    /// Openings without a full recovery between them.
    in_a_row: u32,
    cause: BreakerCause,
}

impl RampBreaker {
    pub fn new(policy: BreakerPolicy) -> Self {
        let cause = BreakerCause::default();
        Self { policy, phase: RampPhase::Closed, epoch: 0, in_a_row: 0, cause }
    }

    /// Applies other times from its next opening on.
    pub fn adopt(&mut self, policy: BreakerPolicy) {
        self.policy = policy;
    }

    /// The same with nothing known; calls under way no longer count.
    pub fn fresh(&self) -> Self {
        Self { epoch: self.epoch.wrapping_add(1), ..Self::new(self.policy) }
    }

    /// Asks for `want` calls. What is not used is to be [handed back](Self::hand_back).
    pub fn admit(&mut self, want: usize, now: Timestamp) -> Result<Permit, BreakerRefusal> {
        self.may_pass(now)?;
        if matches!(self.phase, RampPhase::Open { .. }) {
            self.epoch = self.epoch.wrapping_add(1);
            self.phase = RampPhase::Recovering { allowed: 1, under_way: 0, good: 0, bad: 0 };
        }
        let calls = match &mut self.phase {
            RampPhase::Recovering { allowed, under_way, .. } => {
                let calls = want.min(allowed.saturating_sub(*under_way));
                *under_way += calls;
                calls
            }
            _ => want,
        };
        Ok(Permit { calls, epoch: self.epoch })
    }

    /// Whether at least one call could be made now. Changes nothing.
    pub fn may_pass(&self, now: Timestamp) -> Result<(), BreakerRefusal> {
        match self.phase {
            RampPhase::Open { until } if now < until => Err(BreakerRefusal::Until(until)),
            RampPhase::Recovering { allowed, under_way, .. } if under_way >= allowed => {
                Err(BreakerRefusal::Probing)
            }
            _ => Ok(()),
        }
    }

    /// Calls that were permitted and not made.
    pub fn hand_back(&mut self, calls: usize, epoch: u32) {
        if let RampPhase::Recovering { under_way, .. } = &mut self.phase
            && epoch == self.epoch
        {
            *under_way = under_way.saturating_sub(calls);
        }
    }

    /// The end of a call. `random` is a random number in `0.0..1.0`.
    pub fn report(
        &mut self,
        signal: Signal,
        epoch: u32,
        now: Timestamp,
        random: f64,
    ) -> Option<BreakerChange> {
        let RampPhase::Recovering { allowed, under_way, good, bad } = &mut self.phase else {
            return None;
        };
        if epoch != self.epoch {
            return None;
        }
        *under_way = under_way.saturating_sub(1);
        *good += usize::from(signal == Signal::Well);
        *bad += usize::from(signal.is_failure());
        // A single probe must succeed; of more calls, a few may fail.
        let too_bad = *bad > 0 && (*bad * 5 >= *good + *bad || *allowed == 1);
        if too_bad {
            return Some(self.open(self.cause, now, random));
        }
        if *good < *allowed {
            return Some(BreakerChange::Eased);
        }
        (*allowed, *good, *bad) = (*allowed * 2, 0, 0);
        if *allowed < RAMP_END {
            return Some(BreakerChange::Eased);
        }
        self.phase = RampPhase::Closed;
        self.in_a_row = 0;
        Some(BreakerChange::Closed)
    }

    pub fn open(&mut self, cause: BreakerCause, now: Timestamp, random: f64) -> BreakerChange {
        self.cause = cause;
        let until = now + self.policy.open_for(self.in_a_row, random);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.epoch = self.epoch.wrapping_add(1);
        self.phase = RampPhase::Open { until };
        BreakerChange::Opened { until }
    }

    pub fn state(&self) -> BreakerState {
        match self.phase {
            RampPhase::Closed => BreakerState::Closed,
            RampPhase::Open { until } => BreakerState::Open { until },
            RampPhase::Recovering { allowed, .. } => BreakerState::Recovering { allowed },
        }
    }

    /// Why it opened last.
    pub fn cause(&self) -> BreakerCause {
        self.cause
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn at(s: u64) -> Timestamp {
        NOW + Duration::from_secs(s)
    }

    fn opened() -> RampBreaker {
        let mut breaker = RampBreaker::new(BreakerPolicy::default());
        breaker.open(BreakerCause::Refused, NOW, 0.0);
        breaker
    }

    #[test]
    fn after_its_time_one_probe_goes_through_and_no_second_one() {
        let mut breaker = opened();
        assert_eq!(breaker.admit(64, at(4)).unwrap_err(), BreakerRefusal::Until(at(5)));
        let permit = breaker.admit(64, at(5)).unwrap();
        assert_eq!(permit.calls, 1);
        assert_eq!(breaker.admit(64, at(5)).unwrap_err(), BreakerRefusal::Probing);
        breaker.hand_back(1, permit.epoch);
        assert_eq!(breaker.admit(64, at(5)).unwrap().calls, 1, "an unused probe is not lost");
    }

    #[test]
    fn it_comes_back_exponentially_and_closes() {
        let mut breaker = opened();
        let mut steps = Vec::new();
        while breaker.state() != BreakerState::Closed {
            let permit = breaker.admit(1_000, at(5)).unwrap();
            steps.push(permit.calls);
            for _ in 0..permit.calls {
                breaker.report(Signal::Well, permit.epoch, at(5), 0.0);
            }
        }
        assert_eq!(steps, [1, 2, 4, 8, 16, 32]);
        assert_eq!(breaker.admit(1_000, at(5)).unwrap().calls, 1_000);
    }

    #[test]
    fn a_failed_probe_opens_it_for_longer_up_to_a_limit_and_with_jitter() {
        let mut breaker = opened();
        let (mut now, mut waits) = (at(5), Vec::new());
        for _ in 0..5 {
            let permit = breaker.admit(1, now).unwrap();
            let change = breaker.report(Signal::Failing, permit.epoch, now, 0.0);
            let Some(BreakerChange::Opened { until }) = change else { panic!("{change:?}") };
            waits.push(until.since(now).as_secs());
            now = until;
        }
        assert_eq!(waits, [10, 20, 40, 60, 60]);
        let late = opened().open(BreakerCause::Refused, NOW, 0.999);
        assert_eq!(late, BreakerChange::Opened { until: NOW + Duration::from_millis(12_497) });
    }

    #[test]
    fn answers_to_calls_from_before_it_opened_do_not_decide_about_the_probe() {
        let mut breaker = RampBreaker::new(BreakerPolicy::default());
        let early = breaker.admit(100, NOW).unwrap();
        breaker.open(BreakerCause::Refused, NOW, 0.0);
        let probe = breaker.admit(1, at(5)).unwrap();
        assert_eq!(breaker.report(Signal::Failing, early.epoch, at(5), 0.0), None);
        assert_eq!(breaker.report(Signal::Well, early.epoch, at(5), 0.0), None);
        let eased = breaker.report(Signal::Well, probe.epoch, at(5), 0.0);
        assert_eq!(eased, Some(BreakerChange::Eased));
        assert_eq!(breaker.admit(9, at(5)).unwrap().calls, 2);
    }
}
