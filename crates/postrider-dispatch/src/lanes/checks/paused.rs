//! Holds the lane while an operator has paused it or its tenant.

use postrider_core::{Gate, LaneState};

use super::{LaneCheck, LaneContext};
use crate::lanes::operator::OperatorOrder;
use crate::lanes::report::GateVerdict;

pub(super) struct PausedCheck;

impl LaneCheck for PausedCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::TenantPaused, Gate::Paused]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let (tenant, own) = lane.lanes.operator.pauses_of(lane.lane, lane.now);
        let verdict = |gate, order: Option<OperatorOrder>| GateVerdict {
            gate,
            open: order.is_none(),
            until: order.as_ref().and_then(|order| order.until),
            detail: order.map_or("running".into(), |order| format!("paused {order}")),
        };
        vec![verdict(Gate::TenantPaused, tenant), verdict(Gate::Paused, own)]
    }

    fn room(&self, lane: &LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        lane.lanes.operator.pause_state(lane.lane, lane.now).map_or(Ok(want), Err)
    }
}
