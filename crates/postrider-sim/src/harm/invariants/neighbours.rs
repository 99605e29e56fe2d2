//! What is wrong for one tenant at an origin closes no check for another tenant there, unless connections
//! cannot be opened.

use postrider_core::Gate;
use postrider_dispatch::lanes::{BreakerScope, LaneEvent, LaneReport};

use crate::harm::bounds::BrokenBound;
use crate::harm::traffic::Arrival;

const BOUND: &str = "one tenant's answers hold no other";

/// A look at a healthy lane where one other tenant is sick at the most.
pub(super) fn check(arrival: &Arrival, report: &LaneReport, now: i64) -> Option<BrokenBound> {
    let learned = |gate| matches!(gate, Gate::RetryAfter | Gate::Breaker | Gate::Pace);
    let closed = report.gates.iter().find(|verdict| !verdict.open && learned(verdict.gate))?;
    let Arrival { tenant, origin, .. } = arrival;
    let detail = format!(
        "t{tenant} at o{origin} held at {now} ms: {}: {}",
        closed.gate.name(),
        closed.detail
    );
    Some(BrokenBound { bound: BOUND, detail })
}

/// The origin as a whole is found failing though one tenant only finds it so.
pub(super) fn event(
    origin: &str,
    event: LaneEvent,
    is_of_one_tenant: impl Fn(&str) -> bool,
) -> Option<BrokenBound> {
    let LaneEvent::BreakerOpened { scope: BreakerScope::Provider, .. } = event else { return None };
    let detail = format!("{origin} shut for all");
    is_of_one_tenant(origin).then_some(BrokenBound { bound: BOUND, detail })
}
