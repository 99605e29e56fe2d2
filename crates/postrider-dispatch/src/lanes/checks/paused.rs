//! Holds the lane while an operator has paused it, its tenant, or the provider or account that its calls go to.

use postrider_core::{Gate, LaneState};

use super::{LaneCheck, LaneContext};
use crate::lanes::operator::OperatorOrder;
use crate::lanes::report::GateVerdict;

pub(super) struct PausedCheck;

impl LaneCheck for PausedCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::TenantPaused, Gate::Paused, Gate::ProviderPaused]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let orders = lane.lanes.operator.pauses_of(lane.lane, lane.provider.key(), lane.now);
        let verdict = |(gate, order): (Gate, Option<OperatorOrder>)| GateVerdict {
            gate,
            open: order.is_none(),
            until: order.as_ref().and_then(|order| order.until),
            detail: order.map_or("running".into(), |order| format!("paused {order}")),
        };
        orders.map(verdict).to_vec()
    }

    fn room(&self, lane: &LaneContext<'_>, want: usize) -> Result<usize, LaneState> {
        let orders = &lane.lanes.operator;
        orders.pause_state(lane.lane, lane.provider.key(), lane.now).map_or(Ok(want), Err)
    }
}
