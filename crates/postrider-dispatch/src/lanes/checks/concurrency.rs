//! Holds the lane while as many calls are under way as its provider seems to take. A slot is taken when
//! a call begins and freed when it ends ([`CallSlots`](crate::lanes::slots::CallSlots)).

use postrider_core::{Gate, LaneState};

use super::{LaneCheck, LaneContext};
use crate::lanes::call::{CallEffect, CallResult};
use crate::lanes::report::GateVerdict;

pub(super) struct ConcurrencyCheck;

impl LaneCheck for ConcurrencyCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::Concurrency]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let slots = &lane.provider.slots;
        let (in_flight, limit) = (slots.in_flight(), slots.limit());
        let mut detail = format!("{in_flight} of {limit} calls under way to the provider");
        if in_flight < limit && lane.free_slots == 0 {
            detail.push_str("; the other places are kept for urgent classes");
        }
        vec![GateVerdict::of(Gate::Concurrency, self.room(lane, 1).err(), detail)]
    }

    fn room(&self, lane: &LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        match lane.free_slots {
            0 => Err(LaneState::Blocked { on: Gate::Concurrency }),
            free => Ok(want.min(free)),
        }
    }

    fn learn(&self, lane: &mut LaneContext<'_>, call: &CallResult, _effect: &mut CallEffect) {
        let slots = &lane.provider.slots;
        let concurrency = &mut lane.gates.concurrency;
        let before = concurrency.limit();
        concurrency.report(call.signal, call.latency_ms, slots.in_flight(), lane.now);
        let limit = concurrency.limit();
        if limit != before {
            slots.set_limit(limit);
        }
    }
}
