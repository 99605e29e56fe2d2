//! What one answer says and what follows from it: for the provider, the address and the delivery.
//! Settles nothing.

use std::time::Duration;

use postrider_core::model::decision::Decision;
use postrider_core::policy::decide::{AttemptProgress, decide};
use postrider_core::policy::ttl;
use postrider_core::{Finished, Outcome, Report, Signal, TimeBounds, Timestamp};

use super::{CLOCK_PAUSE, DeliveryJob, LaneWork};
use crate::lanes::{CallEffect, CallResult};

/// The channel reads the system's clock, the dispatcher its own: they may differ by so much.
const ROUNDING: Duration = Duration::from_secs(1);

/// Why the end of an attempt is not known although the server runs, or runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnansweredCause {
    /// The channel returned without a report.
    NoReport,
    /// The channel panicked.
    Panic,
    /// The server stopped.
    Shutdown,
    /// The server crashed.
    Crash,
}

impl UnansweredCause {
    pub(super) fn report(self) -> Report {
        Report::new(Outcome::Ambiguous).code(match self {
            Self::NoReport => "no_report",
            Self::Panic => "panic",
            Self::Shutdown => "shutdown",
            Self::Crash => "crash",
        })
    }
}

impl LaneWork {
    /// What an answer says about the provider.
    pub(super) fn call_result(&self, job: &DeliveryJob, finished: &Finished) -> CallResult {
        let report = &finished.report;
        let unopened = report.is_unopened;
        // Waiting for a connection of ours says nothing about the provider.
        let answered_ms = finished.latency_ms.saturating_sub(finished.waited_ms);
        let elsewhere = report.is_of_other_account;
        CallResult {
            signal: match elsewhere {
                true => Signal::Nothing,
                false => Signal::of(&report.outcome, report.status),
            },
            gone: report.outcome == Outcome::Gone && !report.is_certain && !elsewhere,
            wait: match report.outcome {
                _ if elsewhere => None,
                Outcome::RetryAfter { after, scope } | Outcome::Hold { after, scope } => {
                    Some((scope, after))
                }
                _ => None,
            },
            latency_ms: if unopened { finished.latency_ms } else { answered_ms },
            is_retry: job.is_retry(),
            unopened,
            target: job.target(),
            tenant_credential: self.traits.tenant_credential,
            counts_for_breaker: !elsewhere,
        }
    }

    /// What follows for the delivery.
    pub(super) fn decide(
        &self,
        job: &DeliveryJob,
        report: &Report,
        effect: CallEffect,
        now: Timestamp,
    ) -> Decision {
        let leased = &job.leased;
        let progress = AttemptProgress {
            attempts: leased.attempts + 1,
            last_delay: leased.last_delay,
            resigned: job.resigned,
            replays: job.replays,
            address_age: leased.address_since.map(|since| now.since(since)),
            excused: effect.excused,
            doubted: effect.doubted,
            retries_max: report.terms.retries_max,
        };
        let (rules, random) = (self.rules(leased), self.context.random.next());
        // The system's clock was set while the attempt was under way.
        let TimeBounds { earliest, latest } = self.context.clock.bounds();
        let is_over = ttl::is_over(leased.expires_at, earliest + ROUNDING);
        if report.outcome == Outcome::Expired && !is_over {
            return Decision::Park { after: CLOCK_PAUSE };
        }
        match decide(&report.outcome, &progress, &rules, now.min(latest + ROUNDING), random) {
            Decision::Again { .. } if now >= job.again_until => {
                Decision::Retry { after: Duration::ZERO, counted: false }
            }
            decision => decision,
        }
    }

    /// Remembers the attempt and tells it.
    pub(super) fn record(
        &self,
        job: &mut DeliveryJob,
        finished: Finished,
        decision: &Decision,
        now: Timestamp,
    ) {
        job.log_attempt(finished.report, finished.latency_ms, decision, now);
        if let Some(record) = job.log.last() {
            self.context.observer.attempted(&self.lane, &job.leased, record);
        }
    }
}
