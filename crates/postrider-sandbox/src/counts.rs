//! Running totals of what arrived; reading them costs nothing that grows with the number of ids.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::fakes::{FAKES, FakeKind};
use super::received::AttemptEnding;

/// A check of the sandbox that a request did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckFailure {
    Signature,
    Vapid,
    Undecryptable,
    /// Headers, size, encoding: anything that has no count of its own.
    Request,
}

#[derive(Default)]
pub struct RequestCounts {
    total: AtomicU64,
    /// By the place of the kind in the list of fakes.
    by_kind: [AtomicU64; FAKES.len()],
    accepted: AtomicU64,
    accepted_unanswered: AtomicU64,
    duplicates: AtomicU64,
    duplicates_after_reset: AtomicU64,
    unprocessed: AtomicU64,
    retry_after_violations: AtomicU64,
    failures: [AtomicU64; 4],
    unverified: AtomicU64,
    /// Milliseconds since the start, plus one; zero means never.
    first_ms: AtomicU64,
    last_ms: AtomicU64,
    /// By status.
    refused: Mutex<BTreeMap<u16, u64>>,
}

impl RequestCounts {
    pub fn arrived(&self, kind: FakeKind, since_start_ms: u64, early: bool) {
        self.total.fetch_add(1, Relaxed);
        self.by_kind[kind.index()].fetch_add(1, Relaxed);
        if early {
            self.retry_after_violations.fetch_add(1, Relaxed);
        }
        if self.first_ms.load(Relaxed) == 0 {
            let _ = self.first_ms.compare_exchange(0, since_start_ms + 1, Relaxed, Relaxed);
        }
        self.last_ms.fetch_max(since_start_ms + 1, Relaxed);
    }

    /// A request that was refused before it could be told which delivery it belongs to.
    pub fn failed(&self, kind: FakeKind, since_start_ms: u64, failure: CheckFailure, status: u16) {
        self.arrived(kind, since_start_ms, false);
        self.failures[failure as usize].fetch_add(1, Relaxed);
        self.refuse(status);
    }

    pub fn unverified(&self) {
        self.unverified.fetch_add(1, Relaxed);
    }

    /// `earlier` says whether the same id was accepted before, and if so, whether that
    /// acceptance stayed unanswered.
    pub fn ended(&self, ending: AttemptEnding, earlier: Option<bool>) {
        match ending {
            AttemptEnding::Refused { status, .. } => return self.refuse(status),
            AttemptEnding::Unprocessed => {
                self.unprocessed.fetch_add(1, Relaxed);
                return;
            }
            AttemptEnding::AcceptedUnanswered => {
                self.accepted_unanswered.fetch_add(1, Relaxed);
            }
            AttemptEnding::Accepted { .. } => {}
        }
        self.accepted.fetch_add(1, Relaxed);
        if let Some(was_unanswered) = earlier {
            let count =
                if was_unanswered { &self.duplicates_after_reset } else { &self.duplicates };
            count.fetch_add(1, Relaxed);
        }
    }

    pub fn clear(&self) {
        let single = [
            &self.total,
            &self.accepted,
            &self.accepted_unanswered,
            &self.duplicates,
            &self.duplicates_after_reset,
            &self.unprocessed,
            &self.retry_after_violations,
            &self.unverified,
            &self.first_ms,
            &self.last_ms,
        ];
        for counter in single.into_iter().chain(&self.by_kind).chain(&self.failures) {
            counter.store(0, Relaxed);
        }
        self.refused().clear();
    }

    pub fn summary(&self, ids: usize, started_at_ms: i64) -> Value {
        let n = |c: &AtomicU64| c.load(Relaxed);
        let at = |c: &AtomicU64| match n(c) {
            0 => Value::Null,
            ms => (started_at_ms + ms as i64 - 1).into(),
        };
        let (duplicates, after_reset) = (n(&self.duplicates), n(&self.duplicates_after_reset));
        let accepted = n(&self.accepted);
        json!({
            "total": n(&self.total),
            "ids": ids,
            "accepted": accepted,
            "distinct": accepted.saturating_sub(duplicates + after_reset),
            "duplicates": duplicates,
            "duplicates_after_reset": after_reset,
            "accepted_unanswered": n(&self.accepted_unanswered),
            "unprocessed": n(&self.unprocessed),
            "refused": *self.refused(),
            "retry_after_violations": n(&self.retry_after_violations),
            "bad_signature": n(&self.failures[CheckFailure::Signature as usize]),
            "bad_vapid": n(&self.failures[CheckFailure::Vapid as usize]),
            "undecryptable": n(&self.failures[CheckFailure::Undecryptable as usize]),
            "bad_request": n(&self.failures[CheckFailure::Request as usize]),
            "unverified": n(&self.unverified),
            "first_at": at(&self.first_ms),
            "last_at": at(&self.last_ms),
            "by_kind": FakeKind::all()
                .map(|kind| (kind.name(), n(&self.by_kind[kind.index()])))
                .collect::<BTreeMap<_, _>>(),
        })
    }

    fn refuse(&self, status: u16) {
        *self.refused().entry(status).or_default() += 1;
    }

    fn refused(&self) -> MutexGuard<'_, BTreeMap<u16, u64>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
