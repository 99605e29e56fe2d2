//! Holds the lane to the pace that was learned from its provider's complaints.

use postrider_core::{Gate, LaneState};

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
        let Some(per_s) = lane.gates.pace.per_s() else { return Vec::new() };
        let until = lane.gates.pace.next(lane.now);
        let digits = usize::from(per_s < 10.0);
        let detail = format!("the provider seems to take {per_s:.digits$} calls per second");
        vec![GateVerdict::until(Gate::Pace, until, detail)]
    }

    fn take(&self, lane: &mut LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let available = lane.gates.pace.available(want, lane.now);
        let calls = available.map_err(|until| LaneState::Waiting { on: Gate::Pace, until })?;
        lane.gates.pace.take(calls, lane.now);
        Ok(calls)
    }

    fn give_back(&self, lane: &mut LaneContext<'_>, calls: usize) {
        lane.gates.pace.refund(calls, lane.now);
    }

    fn learn(&self, lane: &mut LaneContext<'_>, call: &CallResult, effect: &mut CallEffect) {
        lane.gates.pace.report(call.signal_of_provider(), effect.is_of_one_address, lane.now);
    }
}
