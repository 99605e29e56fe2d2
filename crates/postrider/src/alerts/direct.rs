//! The way past the queue: calls the place of a route once, when the store has no room for an alert. Goes through the
//! channel and its rules for targets as every delivery does. Keeps and repeats nothing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider_core::{Outcome, TenantId};
use postrider_dispatch::Submission;

use super::TENANT;
use crate::api::SharedState;

/// Other alerts wait meanwhile.
const CALL_MAX: Duration = Duration::from_secs(10);

pub(super) async fn call(app: &SharedState, submission: &Submission) -> Result<(), String> {
    let attempt = app.intake.unstored_attempt(&TenantId::new(TENANT), submission, CALL_MAX).await;
    let attempt = attempt.map_err(|refusal| refusal.detail)?;
    let kind = attempt.target.channel();
    let channel = app.channels.iter().find(|channel| channel.kind() == kind);
    let channel = channel.ok_or("the channel of the route is not there")?;
    let report = Mutex::new(None);
    let note = |finished: postrider_core::Finished| {
        *report.lock().unwrap_or_else(PoisonError::into_inner) = Some(finished.report);
    };
    let called = tokio::time::timeout(CALL_MAX, channel.deliver(vec![attempt], &note)).await;
    called.map_err(|_| "it did not answer in time")?;
    match report.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(report) if report.outcome == Outcome::Accepted => Ok(()),
        Some(report) => Err(report.outcome.kind().name().to_owned()),
        None => Err("the channel gave no answer".to_owned()),
    }
}
