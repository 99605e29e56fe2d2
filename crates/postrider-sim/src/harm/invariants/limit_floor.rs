//! The limit of an origin that answers, and never refused a call, is at least 8. After it was down, it begins with few
//! calls.

use postrider_dispatch::lanes::LaneReport;

use crate::harm::bounds::BrokenBound;
use crate::harm::network::OriginSeen;

const LIMIT_MIN: usize = 8;
/// An origin that has not answered for so long is unproven: it starts with few calls.
const PROVEN_MS: i64 = 55_000;

pub(super) fn check(
    seen: &OriginSeen,
    was_down: bool,
    report: &LaneReport,
    now: i64,
) -> Option<BrokenBound> {
    let is_proven = seen.accepted_at.is_some_and(|at| now - at < PROVEN_MS);
    if seen.has_refused || was_down || !is_proven || report.provider_limit >= LIMIT_MIN {
        return None;
    }
    let detail = format!("{} at {now} ms", report.provider_limit);
    Some(BrokenBound { bound: "the limit is 8 at least", detail })
}
