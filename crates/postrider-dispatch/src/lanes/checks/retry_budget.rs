//! Keeps retries to their share of the lane's traffic. Which of the calls are retries is known once they
//! are leased: the dispatcher spends the budget then ([`Lanes::spend`](crate::Lanes)).

use postrider_core::{Gate, Signal};

use super::{LaneCheck, LaneContext};
use crate::lanes::call::{CallEffect, CallResult};
use crate::lanes::report::GateVerdict;

pub(super) struct RetryBudgetCheck;

impl LaneCheck for RetryBudgetCheck {
    fn gates(&self) -> &'static [Gate] {
        &[Gate::RetryBudget]
    }

    fn verdicts(&self, lane: &LaneContext<'_>) -> Vec<GateVerdict> {
        let (left, more_at) = lane.lanes.budgets.left(lane.lane, lane.now).unzip();
        let detail = match left {
            None => "no retries lately".into(),
            Some(0) => "retries have taken their share of the lane's traffic".into(),
            Some(left) => format!("{left} retries left at this moment"),
        };
        // First attempts go on, so the lane is not held.
        let until = more_at.filter(|_| left == Some(0));
        vec![GateVerdict { gate: Gate::RetryBudget, open: true, until, detail }]
    }

    fn learn(&self, lane: &mut LaneContext<'_>, call: &CallResult, effect: &mut CallEffect) {
        let earns = call.is_retry && call.signal == Signal::Well;
        effect.refills_budget = earns && lane.lanes.budgets.earn(lane.lane, lane.now);
    }
}
