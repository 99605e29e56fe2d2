//! What a settlement does to a delivery's own fields. Pure; knows no store.

use std::time::Duration;

use postrider_core::delivery::{AttemptRecord, DeadReason};
use postrider_core::store::Change;
use postrider_core::{State, Timestamp};

/// Attempts kept in a delivery's history; the oldest make room.
pub(crate) const LOG_MAX: usize = 64;

/// The part of a delivery that settlements move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) state: State,
    pub(crate) reason: Option<DeadReason>,
    /// When it is due; meaningless once it is final.
    pub(crate) due: Timestamp,
    pub(crate) attempts: u32,
    pub(crate) tries: u32,
    pub(crate) last_delay: Duration,
    pub(crate) changed: Timestamp,
}

impl Progress {
    pub(crate) fn fresh(due: Timestamp, now: Timestamp) -> Self {
        Self {
            state: State::Queued,
            reason: None,
            due,
            attempts: 0,
            tries: 0,
            last_delay: Duration::ZERO,
            changed: now,
        }
    }

    pub(crate) fn settled(
        mut self,
        change: &Change,
        attempt: Option<&AttemptRecord>,
        now: Timestamp,
    ) -> Self {
        if let Some(attempt) = attempt {
            self.tries = self.tries.saturating_add(1);
            self.attempts = self.attempts.saturating_add(u32::from(attempt.counted));
        }
        match change {
            Change::Release => return self,
            Change::Finish(state) => self.state = *state,
            Change::Gone => self.state = State::Gone,
            Change::DeadLetter(reason) => {
                self.state = State::Failed;
                self.reason = Some(*reason);
            }
            Change::Retry { after } => {
                self.state = State::Retrying;
                self.due = now + *after;
                self.last_delay = *after;
            }
            Change::Park { after } => {
                self.state = State::Parked;
                self.due = now + *after;
            }
        }
        self.changed = now;
        self
    }

    pub(crate) fn replayed(self, due: Timestamp, now: Timestamp) -> Self {
        Self { tries: self.tries, ..Self::fresh(due, now) }
    }
}

/// Which holds a message's body back from being scrubbed: pending work, and a dead letter that
/// somebody may still replay.
pub(crate) fn needs_body(state: State, discarded: bool) -> bool {
    state.is_pending() || (state == State::Failed && !discarded)
}

/// Whether a prune may forget it.
pub(crate) fn may_forget(state: State, discarded: bool) -> bool {
    !needs_body(state, discarded)
}

/// When the `index`-th replayed delivery is due at a given pace.
pub(crate) fn paced(now: Timestamp, index: u64, rate_per_s: Option<f64>) -> Timestamp {
    match rate_per_s {
        Some(rate) if rate > 0.0 => {
            now + Duration::from_millis((index as f64 * 1000.0 / rate).min(1e15) as u64)
        }
        _ => now,
    }
}
