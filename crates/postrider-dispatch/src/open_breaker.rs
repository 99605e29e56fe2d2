//! Due deliveries whose provider's or credential's breaker is open, where their class does not let them
//! wait. Makes no call and uses up no attempt.

use std::time::Duration;

use postrider_core::model::class::WhenOpen;
use postrider_core::policy::decide::when_shut;
use postrider_core::ports::store::LeasedDelivery;
use postrider_core::{Class, Gate, LaneState};

use crate::attempt::LaneWork;

/// A delivery that cannot leave is looked at again between these.
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Whether deliveries of the class leave a lane that is held so.
pub(crate) fn leaves(class: &Class, held: LaneState) -> bool {
    let by_breaker = matches!(held.gate(), Some(Gate::Breaker | Gate::Credential | Gate::MassGone));
    by_breaker && class.when_open != WhenOpen::Wait
}

/// Ends the lease of each as its class says.
pub(crate) fn settle_as_class_says(work: &LaneWork, leased: Vec<LeasedDelivery>, held: LaneState) {
    let now = work.context.clock.now();
    let again_after = match held {
        LaneState::Waiting { until, .. } => until.since(now).clamp(PAUSE_MIN, PAUSE_MAX),
        _ => PAUSE_MIN,
    };
    for leased in leased {
        work.settle_unattempted(leased, now, |leased| {
            when_shut(work.class.when_open, !leased.alternatives.is_empty(), again_after)
        });
    }
}
