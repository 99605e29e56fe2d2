//! What was down is found well again in time: where a delivery is due to an address that was served
//! before, and all is well there.

use postrider_core::Gate;
use postrider_core::policy::breaker::BreakerState;
use postrider_dispatch::lanes::{GateVerdict, LaneReport};

use crate::harm::bounds::BrokenBound;
use crate::harm::traffic::Arrival;

pub(super) const WITHIN_MS: i64 = 66_000;
/// A probe that was sent before may take so long until it counts as failed.
pub(super) const PROBE_MS: i64 = 10_000;

pub(super) fn check(
    arrival: &Arrival,
    is_due: bool,
    report: &LaneReport,
    now: i64,
) -> Option<BrokenBound> {
    // A provider that asked to be left alone for longer is not called before.
    let is_asked = |verdict: &GateVerdict| verdict.gate == Gate::RetryAfter && !verdict.open;
    let is_due = is_due && !report.gates.iter().any(is_asked);
    let is_open = matches!(report.breaker, BreakerState::Open { .. });
    let Arrival { tenant, origin, .. } = arrival;
    let detail = format!("t{tenant} at o{origin} still shut at {now} ms: {:?}", report.breaker);
    (is_due && is_open).then_some(BrokenBound { bound: "what was down is found well", detail })
}
