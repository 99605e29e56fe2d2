//! What a job is, and how far it is.

use postrider_core::policy::backoff::RetryPolicy;
use postrider_core::{DeliveryId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::api::delivery_filter::DeliveryFilterBody;

/// What a job without a rate does per second.
pub(crate) const RATE_DEFAULT: f64 = 100.0;
pub(crate) const RATE_MAX: f64 = 10_000.0;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub(crate) enum $name { $(#[serde(rename = $text)] $variant),* }

        impl $name {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant),*];

            pub(crate) fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            pub(crate) fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.name() == text)
            }

            pub(crate) fn names() -> String {
                Self::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ")
            }
        }
    };
}

named! {
    JobKind { Replay = "replay", Discard = "discard", Cancel = "cancel", Export = "export" }
}

named! {
    JobState {
        Queued = "queued",
        Running = "running",
        Paused = "paused",
        Done = "done",
        Failed = "failed",
        Aborted = "aborted",
    }
}

named! {
    ExportFormat { Ndjson = "ndjson", Csv = "csv" }
}

impl JobKind {
    /// Whether it acts on dead letters.
    pub(crate) fn is_of_dead_letters(self) -> bool {
        matches!(self, Self::Replay | Self::Discard)
    }
}

impl JobState {
    pub(crate) fn is_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Aborted)
    }
}

/// A job as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) id: String,
    pub(crate) kind: JobKind,
    pub(crate) state: JobState,
    /// Absent for an export of all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<TenantId>,
    pub(crate) filter: DeliveryFilterBody,
    pub(crate) rate_per_s: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_s: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<RetryPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) format: Option<ExportFormat>,
    /// Only what was there at this time is meant.
    pub(crate) created_at: Timestamp,
    pub(crate) created_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(default)]
    pub(crate) progress: JobProgress,
}

/// How far a job is. Only the server that runs it writes this.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct JobProgress {
    /// A random number of the run that works on it. Another run that finds a newer one stops.
    pub(crate) run: u64,
    pub(crate) done: u64,
    /// Those that had changed when their turn came.
    pub(crate) failed: u64,
    /// Absent until they are counted.
    pub(crate) total: Option<u64>,
    /// Where the search goes on: newest first.
    pub(crate) cursor: Option<DeliveryId>,
    /// What is being done, or was when the server ended.
    pub(crate) step: Option<JobStep>,
}

/// A step is noted before it is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobStep {
    /// Where the search goes on behind it; absent at the end.
    pub(crate) next: Option<DeliveryId>,
    pub(crate) count: u64,
}

impl JobRecord {
    /// Seconds until it is done, if it goes on.
    pub(crate) fn eta_s(&self) -> Option<u64> {
        let going = matches!(self.state, JobState::Queued | JobState::Running);
        let total = self.progress.total.filter(|_| going && self.kind != JobKind::Export)?;
        Some(takes_s(total.saturating_sub(self.progress.done), self.rate_per_s))
    }

    pub(crate) fn end(&mut self, state: JobState, now: Timestamp) {
        self.state = state;
        self.ended_at = Some(now);
    }
}

/// How long so many take.
pub(crate) fn takes_s(count: u64, rate_per_s: f64) -> u64 {
    (count as f64 / rate_per_s.max(0.001)).ceil() as u64
}
