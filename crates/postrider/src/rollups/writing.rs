//! Writes what was counted, every second. After a crash at most the counts since the last write are missing.

use std::time::Duration;

use postrider_core::policy::breaker::BreakerState;
use postrider_core::{Gate, LaneKey, Timestamp};
use postrider_dispatch::Lanes;

use crate::api::SharedState;

const EVERY: Duration = Duration::from_secs(1);
/// A breaker that is due to be tried for so long has nothing to try.
const UNTRIED: Duration = Duration::from_secs(60);
/// How long a shutdown waits for the last counts.
const AT_END: Duration = Duration::from_secs(1);

pub(crate) async fn write_every_second(app: SharedState) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut is_failing = false;
    loop {
        every.tick().await;
        let now = app.clock.now();
        app.rollups.count_held(|lane, cause| held_by(&app.lanes, lane, cause, now));
        let is_written = write(&app).await;
        if !is_written && !is_failing {
            tracing::warn!("counts for the history are written later");
        }
        is_failing = !is_written;
    }
}

pub(crate) async fn write_at_end(app: &SharedState) {
    if tokio::time::timeout(AT_END, write(app)).await != Ok(true) {
        tracing::warn!("the last counts for the history could not be written");
    }
}

/// False if the store took nothing.
async fn write(app: &SharedState) -> bool {
    let parts = app.rollups.news();
    if parts.is_empty() {
        return true;
    }
    let written = app.store.put_rollups(parts.clone()).await;
    app.metrics.rollups_written(parts.len(), written.is_ok());
    match written {
        Ok(()) => {
            app.rollups.forget_written();
            true
        }
        Err(error) => {
            tracing::debug!(%error, "counts for the history could not be written");
            app.rollups.write_again(&parts);
            false
        }
    }
}

/// What holds the lane at this moment.
fn held_by(
    lanes: &Lanes,
    lane: &LaneKey,
    cause: &'static str,
    now: Timestamp,
) -> Option<&'static str> {
    let report = lanes.report(lane);
    let is_closed = |gate| report.gates.iter().any(|verdict| verdict.gate == gate && !verdict.open);
    // One that nobody tries any more, because nothing is pending, holds nobody.
    let is_open = match report.breaker {
        BreakerState::Open { until } => until + UNTRIED > now,
        BreakerState::ForcedOpen => true,
        _ => false,
    };
    if is_closed(Gate::Credential) {
        return Some("credential");
    }
    if is_closed(Gate::MassGone) {
        return Some("mass_gone");
    }
    let by_breaker = if cause == "retry_storm" { cause } else { "breaker" };
    is_open.then_some(by_breaker)
}
