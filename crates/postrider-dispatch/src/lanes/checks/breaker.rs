//! Holds the lane while its provider's breaker is open: the provider fails as a whole, or retries storm it.

use postrider_core::policy::breaker::{BreakerCause, BreakerChange, BreakerOverride, BreakerState};
use postrider_core::{Gate, LaneState, Timestamp};

use super::{LaneCheck, LaneContext, held_by};
use crate::lanes::call::{CallEffect, CallResult, LaneEvent};
use crate::lanes::provider::ProviderGates;
use crate::lanes::provider_key;
use crate::lanes::report::GateVerdict;

pub(super) struct BreakerCheck;

impl LaneCheck for BreakerCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::Breaker]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let breaker = &lane.gates.breaker;
        let detail = match lane.lanes.operator.forced(&provider_key(lane.lane)) {
            Some((BreakerOverride::Open, order)) => format!("forced open {order}"),
            Some((BreakerOverride::Closed, order)) => format!("forced closed {order}"),
            None => in_words(breaker.state(), breaker.cause(), lane.now),
        };
        vec![GateVerdict::of(Gate::Breaker, self.room(lane, 1).err(), detail)]
    }

    fn room(&self, lane: &LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let passed = lane.gates.breaker.may_pass(lane.now);
        passed.map(|()| want).map_err(|refusal| held_by(Gate::Breaker, refusal))
    }

    fn take(&self, lane: &mut LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let permit = lane.gates.breaker.admit(want, lane.now);
        let permit = permit.map_err(|refusal| held_by(Gate::Breaker, refusal))?;
        lane.epochs.breaker = permit.epoch;
        Ok(permit.calls)
    }

    fn give_back(&self, lane: &mut LaneContext<'_>, calls: usize) {
        lane.gates.breaker.hand_back(calls, lane.epochs.breaker);
    }

    fn learn(&self, lane: &mut LaneContext<'_>, call: &CallResult, effect: &mut CallEffect) {
        let (epoch, now, random) = (lane.epochs.breaker, lane.now, lane.random);
        let gates = &mut *lane.gates;
        let signal = call.signal_of_provider();
        let mut change = gates.breaker.report(signal, epoch, now, random);
        let storms = gates.storm.count(signal, call.is_retry, now);
        if storms && gates.breaker.state() == BreakerState::Closed {
            change = Some(gates.breaker.open(BreakerCause::Storm, now, random));
        }
        // That the breaker opened says more than that the provider wants to be left alone.
        effect.event = event(gates, change).or(effect.event);
        effect.eased |= change.is_some_and(BreakerChange::is_easing);
        effect.excused = gates.breaker.excuses(signal);
    }
}

fn event(gates: &mut ProviderGates, change: Option<BreakerChange>) -> Option<LaneEvent> {
    match change? {
        BreakerChange::Opened { until } => {
            gates.storm.clear();
            Some(match gates.breaker.cause() {
                BreakerCause::Storm => LaneEvent::RetryStorm { until },
                _ => LaneEvent::BreakerOpened { until },
            })
        }
        BreakerChange::Closed => Some(LaneEvent::BreakerClosed),
        BreakerChange::Eased => None,
    }
}

fn in_words(breaker: BreakerState, cause: BreakerCause, now: Timestamp) -> String {
    match breaker {
        BreakerState::Closed => "closed: the provider works".into(),
        BreakerState::Open { until } if until > now && cause == BreakerCause::Storm => {
            format!("open: retries hardly succeed; one call tries again at {until}")
        }
        BreakerState::Open { until } if until > now => {
            format!("open: the provider fails; one call tries again at {until}")
        }
        BreakerState::Open { .. } => "open: the next call tries whether the provider works".into(),
        BreakerState::Recovering { allowed: 1 } => {
            "half open: one call tries whether the provider works".into()
        }
        BreakerState::Recovering { allowed } => {
            format!("half open: the provider comes back, {allowed} calls at once")
        }
        BreakerState::ForcedOpen => "forced open by an operator".into(),
        BreakerState::ForcedClosed => "forced closed by an operator".into(),
    }
}
