//! Holds the lane while its provider wants to be left alone: as a whole, or by the tenant's credential.

use std::time::Duration;

use postrider_core::policy::throttle::reach;
use postrider_core::{Gate, LaneState, Scope, Signal, Timestamp};

use super::{LaneCheck, LaneContext};
use crate::lanes::call::{CallEffect, CallResult, LaneEvent};
use crate::lanes::report::GateVerdict;

pub(super) struct RetryAfterCheck;

impl LaneCheck for RetryAfterCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::RetryAfter]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let host = lane.gates.pause.until(lane.now);
        let until = paused_until(lane);
        let whom = if until == host { "" } else { " by this tenant's credential" };
        let detail = until.map_or("it takes calls".into(), |until| {
            format!("the provider asked to be left alone{whom} until {until}")
        });
        vec![GateVerdict::until(Gate::RetryAfter, until, detail)]
    }

    fn room(&self, lane: &LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let hold = |until| Err(LaneState::Waiting { on: Gate::RetryAfter, until });
        paused_until(lane).map_or(Ok(want), hold)
    }

    fn learn(&self, lane: &mut LaneContext<'_>, call: &CallResult, effect: &mut CallEffect) {
        let now = lane.now;
        let spread = &mut lane.gates.spread;
        spread.count(call.signal, now);
        let is_busy = call.signal == Signal::Busy;
        let repeats = is_busy && spread.repeats(call.target, now);
        // Without a scope, the answer applies to the whole host.
        effect.is_of_one_address = !repeats && call.wait.is_some();
        if let Some((scope, wait)) = call.wait.filter(|(s, _)| is_busy || *s != Scope::Target) {
            let (scope, event) = leave_alone(lane, scope, wait, call.target);
            effect.is_of_one_address &= scope == Scope::Target;
            effect.event = event;
        }
    }
}

fn paused_until(lane: &LaneContext<'_>) -> Option<Timestamp> {
    let own = lane.gates.tenants.get(&lane.lane.tenant);
    lane.gates.pause.until(lane.now).max(own.and_then(|own| own.pause.until(lane.now)))
}

/// Says how far the wish turned out to reach.
fn leave_alone(
    lane: &mut LaneContext<'_>,
    scope: Scope,
    after: Duration,
    target: u64,
) -> (Scope, Option<LaneEvent>) {
    let (now, gates) = (lane.now, &mut *lane.gates);
    let (scope, after) = reach(scope, after, target, &mut gates.spread, now);
    let until = now + after;
    let pause = match scope {
        Scope::Target => return (scope, None),
        Scope::Credential => &mut gates.tenant(&lane.lane.tenant, now).pause,
        Scope::Host => &mut gates.pause,
    };
    let is_news = pause.until(now).is_none();
    pause.extend(until);
    (scope, is_news.then_some(LaneEvent::LeftAlone { scope, until }))
}
