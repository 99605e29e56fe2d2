//! What becomes of due deliveries whose provider's or credential's breaker is open, where their class does
//! not let them wait. Makes no call and burns no attempt.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::class::WhenOpen;
use postrider_core::policy::decide::when_shut;
use postrider_core::ports::store::Leased;
use postrider_core::{Class, Gate, LaneKey, LaneState};

use crate::launch::{Bench, may_be_sent};

/// What has nowhere to go is looked at again between these.
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Whether deliveries of the class leave a lane that is held up so.
pub(crate) fn leaves(class: &Class, held: LaneState) -> bool {
    let on = match held {
        LaneState::Waiting { on, .. } | LaneState::Blocked { on } => on,
        LaneState::Ready => return false,
    };
    class.when_open != WhenOpen::Wait
        && matches!(on, Gate::Breaker | Gate::Credential | Gate::MassGone)
}

/// Ends the lease of each as its class says.
pub(crate) fn turn_away(
    bench: &Bench,
    lane: &Arc<LaneKey>,
    leased: Vec<Leased>,
    class: &Class,
    held: LaneState,
) {
    let now = bench.clock.now();
    let again_after = match held {
        LaneState::Waiting { until, .. } => until.since(now).clamp(PAUSE_MIN, PAUSE_MAX),
        _ => PAUSE_MIN,
    };
    for leased in leased {
        if may_be_sent(bench, lane, &leased, class, now) {
            let decision = when_shut(class.when_open, !leased.alternatives.is_empty(), again_after);
            bench.settle(lane, &leased, Vec::new(), decision);
        }
    }
}
