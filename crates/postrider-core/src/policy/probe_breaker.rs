//! Stops calls to somebody who fails, and finds out by a few probes when they work again. Others decide
//! that it opens; one probe that succeeds closes it. Reads no clock, draws no number.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::breaker::{
    BreakerCause, BreakerChange, BreakerOverride, BreakerPolicy, BreakerRefusal, BreakerState,
    Permit,
};
use crate::policy::signal::Signal;

/// Calls that try at once whether it works again.
const PROBES: usize = 3;
/// A probe without an answer after this time has failed.
const PROBE_MAX: Duration = Duration::from_secs(10);
/// Opened again within this time after it closed, it is the same trouble.
const IN_A_ROW: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct ProbeBreaker {
    policy: BreakerPolicy,
    phase: ProbePhase,
    epoch: u32,
    /// Openings in a row.
    openings: u32,
    /// When it opened after it was last closed.
    opened_at: Timestamp,
    closed_at: Timestamp,
    cause: BreakerCause,
    forced: Option<BreakerOverride>,
}

#[derive(Debug, Clone, Copy, Default)]
enum ProbePhase {
    #[default]
    Closed,
    Open {
        until: Timestamp,
    },
    Probing {
        /// When the first of the probes under way began.
        since: Timestamp,
        left: usize,
        under_way: usize,
    },
}

impl ProbeBreaker {
    pub fn new(policy: &BreakerPolicy) -> Self {
        Self {
            policy: *policy,
            phase: ProbePhase::default(),
            epoch: 0,
            openings: 0,
            opened_at: Timestamp::default(),
            closed_at: Timestamp::default(),
            cause: BreakerCause::default(),
            forced: None,
        }
    }

    /// Applies other times from its next opening on.
    pub fn adopt(&mut self, policy: &BreakerPolicy) {
        self.policy = *policy;
    }

    /// Whether at least one call could be made now. Changes nothing.
    pub fn may_pass(&self, now: Timestamp) -> Result<(), BreakerRefusal> {
        match (self.forced, self.phase) {
            (Some(BreakerOverride::Open), _) => Err(BreakerRefusal::Forced),
            (Some(BreakerOverride::Closed), _) | (None, ProbePhase::Closed) => Ok(()),
            (None, ProbePhase::Open { until }) if now < until => Err(BreakerRefusal::Until(until)),
            (None, ProbePhase::Probing { since, left: 0, .. }) if now < since + PROBE_MAX => {
                Err(BreakerRefusal::Until(since + PROBE_MAX))
            }
            (None, _) => Ok(()),
        }
    }

    /// Ends a round with a probe that was not answered in time. A round that waits for more calls goes on: nothing is
    /// known yet. To be called before [`admit`](Self::admit). `random` is a random number in `0.0..1.0`.
    pub fn end_round(&mut self, now: Timestamp, random: f64) -> Option<BreakerChange> {
        let ProbePhase::Probing { since, under_way: 1.., .. } = self.phase else { return None };
        let is_over = self.forced.is_none() && now >= since + PROBE_MAX;
        // It opened when their time was over, whoever asks, and whenever.
        is_over.then(|| self.open(self.cause, since + PROBE_MAX, random))
    }

    /// Asks for `want` calls. What is not used is to be [handed back](Self::hand_back).
    pub fn admit(&mut self, want: usize, now: Timestamp) -> Result<Permit, BreakerRefusal> {
        self.may_pass(now)?;
        if self.forced.is_some() {
            return Ok(Permit { calls: want, epoch: self.epoch });
        }
        if let ProbePhase::Open { .. } = self.phase {
            self.epoch = self.epoch.wrapping_add(1);
            self.phase = ProbePhase::Probing { since: now, left: PROBES, under_way: 0 };
        }
        let calls = match &mut self.phase {
            ProbePhase::Probing { since, left, under_way } => {
                let calls = want.min(*left);
                if *under_way == 0 {
                    *since = now;
                }
                *left -= calls;
                *under_way += calls;
                calls
            }
            _ => want,
        };
        Ok(Permit { calls, epoch: self.epoch })
    }

    /// Calls that were permitted and not made.
    pub fn hand_back(&mut self, calls: usize, epoch: u32) {
        if let ProbePhase::Probing { left, under_way, .. } = &mut self.phase
            && epoch == self.epoch
        {
            *under_way = under_way.saturating_sub(calls);
            *left = (*left + calls).min(PROBES);
        }
    }

    /// The end of a call that was permitted under this epoch.
    pub fn report(
        &mut self,
        signal: Signal,
        epoch: u32,
        now: Timestamp,
        random: f64,
    ) -> Option<BreakerChange> {
        let ProbePhase::Probing { left, under_way, .. } = &mut self.phase else { return None };
        if epoch != self.epoch {
            return None;
        }
        *under_way = under_way.saturating_sub(1);
        if signal == Signal::Well {
            self.phase = ProbePhase::Closed;
            self.closed_at = now;
            return Some(BreakerChange::Closed);
        }
        let failed =
            signal.is_failure() || (signal == Signal::Busy && self.cause == BreakerCause::Storm);
        if !failed {
            // It says nothing: another call may try.
            *left = (*left + 1).min(PROBES);
            return Some(BreakerChange::Eased);
        }
        match (*under_way, *left) {
            (0, 0) => Some(self.open(self.cause, now, random)),
            // Not all probes were made: those of another lane may succeed.
            (0, _) => Some(BreakerChange::Eased),
            _ => None,
        }
    }

    pub fn open(&mut self, cause: BreakerCause, now: Timestamp, random: f64) -> BreakerChange {
        let again =
            !matches!(self.phase, ProbePhase::Closed) || now.since(self.closed_at) < IN_A_ROW;
        self.openings = if again { self.openings.saturating_add(1) } else { 1 };
        if matches!(self.phase, ProbePhase::Closed) {
            self.opened_at = now;
        }
        let until = now + self.policy.open_for(self.openings.saturating_sub(1), random);
        self.cause = cause;
        self.epoch = self.epoch.wrapping_add(1);
        self.phase = ProbePhase::Open { until };
        BreakerChange::Opened { until }
    }

    /// Sets an operator's order; `None` takes it back.
    pub fn force(&mut self, forced: Option<BreakerOverride>) {
        if self.forced == Some(BreakerOverride::Closed) {
            // Answers of the forced time do not count; it starts anew.
            self.epoch = self.epoch.wrapping_add(1);
            self.phase = ProbePhase::Closed;
            self.openings = 0;
        }
        self.forced = forced;
    }

    /// Whether a few calls try at this moment, or may, whether it works again.
    pub fn is_probing(&self) -> bool {
        self.forced.is_none() && !matches!(self.phase, ProbePhase::Closed)
    }

    pub fn state(&self) -> BreakerState {
        match (self.forced, self.phase) {
            (Some(BreakerOverride::Open), _) => BreakerState::ForcedOpen,
            (Some(BreakerOverride::Closed), _) => BreakerState::ForcedClosed,
            (None, ProbePhase::Closed) => BreakerState::Closed,
            (None, ProbePhase::Open { until }) => BreakerState::Open { until },
            (None, ProbePhase::Probing { .. }) => BreakerState::Recovering { allowed: PROBES },
        }
    }

    /// Since when it has not been closed, if it is not.
    pub fn open_since(&self) -> Option<Timestamp> {
        (!matches!(self.phase, ProbePhase::Closed)).then_some(self.opened_at)
    }

    /// Why it opened last.
    pub fn cause(&self) -> BreakerCause {
        self.cause
    }

    /// Whether a failure says nothing about the delivery that met it. Asked after it was reported.
    pub fn excuses(&self, signal: Signal) -> bool {
        let is_storm = self.cause == BreakerCause::Storm && signal == Signal::Busy;
        self.is_probing() && (signal.is_failure() || is_storm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn at(s: u64) -> Timestamp {
        NOW + Duration::from_secs(s)
    }

    fn opened() -> ProbeBreaker {
        let mut breaker = ProbeBreaker::new(&BreakerPolicy::default());
        breaker.open(BreakerCause::Failures, NOW, 0.0);
        breaker
    }

    #[test]
    fn after_its_time_three_probes_go_and_no_fourth() {
        let mut breaker = opened();
        assert_eq!(breaker.admit(9, at(4)), Err(BreakerRefusal::Until(at(5))));
        assert_eq!(breaker.admit(9, at(5)).map(|permit| permit.calls), Ok(3));
        assert!(breaker.admit(9, at(5)).is_err());
    }

    #[test]
    fn one_good_probe_of_three_closes_it() {
        let mut breaker = opened();
        let epoch = breaker.admit(3, at(5)).map_or(0, |permit| permit.epoch);
        assert_eq!(breaker.report(Signal::Failing, epoch, at(6), 0.0), None);
        let change = breaker.report(Signal::Well, epoch, at(6), 0.0);
        assert_eq!(change, Some(BreakerChange::Closed));
        assert_eq!(breaker.admit(99, at(6)).map(|permit| permit.calls), Ok(99));
    }

    #[test]
    fn without_a_good_probe_it_opens_for_longer_up_to_a_minute() {
        let mut breaker = opened();
        let (mut now, mut rests) = (at(5), Vec::new());
        for _ in 0..6 {
            let epoch = breaker.admit(3, now).map_or(0, |permit| permit.epoch);
            let mut fails = || breaker.report(Signal::Failing, epoch, now, 0.0);
            assert_eq!([fails(), fails()], [None, None]);
            let Some(BreakerChange::Opened { until }) = fails() else { panic!("it opens") };
            rests.push(until.since(now).as_secs());
            now = until;
        }
        assert_eq!(rests, [10, 20, 40, 60, 60, 60]);
    }

    #[test]
    fn after_one_probe_that_failed_two_more_may_go_however_late() {
        let mut breaker = opened();
        let epoch = breaker.admit(1, at(5)).map_or(0, |permit| permit.epoch);
        let change = breaker.report(Signal::Failing, epoch, at(6), 0.0);
        assert_eq!(change, Some(BreakerChange::Eased));
        assert_eq!(breaker.end_round(at(60), 0.0), None, "nobody had anything to send");
        assert_eq!(breaker.admit(9, at(60)).map(|permit| permit.calls), Ok(2));
        assert_eq!(breaker.end_round(at(69), 0.0), None);
        let change = breaker.end_round(at(70), 0.0);
        assert_eq!(change, Some(BreakerChange::Opened { until: at(80) }));
    }

    #[test]
    fn a_probe_without_an_answer_has_failed_after_ten_seconds() {
        let mut breaker = opened();
        assert!(breaker.admit(3, at(5)).is_ok());
        assert_eq!(breaker.admit(1, at(14)), Err(BreakerRefusal::Until(at(15))));
        let change = breaker.end_round(at(15), 0.0);
        assert_eq!(change, Some(BreakerChange::Opened { until: at(25) }));
        assert_eq!(breaker.admit(1, at(15)), Err(BreakerRefusal::Until(at(25))));
    }

    #[test]
    fn answers_to_calls_from_before_it_opened_do_not_decide_about_the_probe() {
        let mut breaker = ProbeBreaker::new(&BreakerPolicy::default());
        let before = breaker.admit(1, NOW).map_or(9, |permit| permit.epoch);
        breaker.open(BreakerCause::Failures, NOW, 0.0);
        assert_eq!(breaker.report(Signal::Well, before, at(1), 0.0), None);
        assert!(breaker.may_pass(at(1)).is_err());
    }

    #[test]
    fn an_operator_can_open_and_close_it_and_take_the_word_back() {
        let mut breaker = opened();
        breaker.force(Some(BreakerOverride::Closed));
        assert!(breaker.may_pass(NOW).is_ok());
        breaker.force(Some(BreakerOverride::Open));
        assert_eq!(breaker.may_pass(at(999)), Err(BreakerRefusal::Forced));
        breaker.force(None);
        assert!(breaker.may_pass(NOW).is_ok());
    }
}
