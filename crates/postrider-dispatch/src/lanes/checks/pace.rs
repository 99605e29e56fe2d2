//! Holds the lane to the pace that was learned from its provider's complaints to its tenant.

use postrider_core::{Gate, LaneState, Signal};

use super::{LaneCheck, LaneContext};
use crate::lanes::call::{CallEffect, CallResult};
use crate::lanes::report::GateVerdict;

pub(super) struct PaceCheck;

impl LaneCheck for PaceCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::Pace]
    }

    /// Only where something was learned.
    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let pace = lane.gates.known_trouble(&lane.lane.tenant).map(|own| &own.pace);
        let Some((pace, per_s)) = pace.and_then(|pace| Some((pace, pace.per_s()?))) else {
            return Vec::new();
        };
        let until = pace.next(lane.now);
        let digits = usize::from(per_s < 10.0);
        let detail = format!("the provider seems to take {per_s:.digits$} calls per second");
        vec![GateVerdict::until(Gate::Pace, until, detail)]
    }

    fn take(&self, lane: &mut LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let now = lane.now;
        let Some(own) = lane.gates.known_trouble_mut(&lane.lane.tenant) else { return Ok(want) };
        let available = own.pace.available(want, now);
        let calls = available.map_err(|until| LaneState::Waiting { on: Gate::Pace, until })?;
        own.pace.take(calls, now);
        Ok(calls)
    }

    fn give_back(&self, lane: &mut LaneContext<'_>, calls: usize) {
        let now = lane.now;
        if let Some(own) = lane.gates.known_trouble_mut(&lane.lane.tenant) {
            own.pace.refund(calls, now);
        }
    }

    fn learn(&self, lane: &mut LaneContext<'_>, call: &CallResult, effect: &mut CallEffect) {
        let now = lane.now;
        let Some(own) = lane.gates.known_trouble_mut(&lane.lane.tenant) else { return };
        // Where most addresses work, an overloaded one is no matter of the pace.
        let of_address = call.signal == Signal::Overloaded
            && (own.health.addresses.is_sick(call.target)
                || own.pace.per_s().is_none() && own.health.do_most_work(now));
        if !effect.is_own_wish && !of_address {
            own.pace.report(call.signal_of_provider(), effect.is_of_one_address, now);
        }
    }
}
