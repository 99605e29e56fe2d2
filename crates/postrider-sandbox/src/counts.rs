//! Running totals of what arrived. The cost of reading them does not grow with the number of ids.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::fakes::{FAKES, FakeKind};
use super::received::AttemptEnding;

/// A check of the sandbox that a request did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckFailure {
    Signature,
    Vapid,
    Undecryptable,
    /// Headers, size, encoding: anything that has no count of its own.
    Request,
}

#[derive(Default)]
pub(crate) struct RequestCounts(Mutex<RequestTotals>);

#[derive(Default)]
struct RequestTotals {
    total: u64,
    /// By the place of the kind in the list of fakes.
    by_kind: [u64; FAKES.len()],
    accepted: u64,
    accepted_unanswered: u64,
    duplicates: u64,
    duplicates_after_reset: u64,
    unprocessed: u64,
    retry_after_violations: u64,
    failures: [u64; 4],
    unverified: u64,
    /// In milliseconds since the start.
    first_ms: Option<u64>,
    last_ms: Option<u64>,
    /// By status.
    refused: BTreeMap<u16, u64>,
}

impl RequestCounts {
    pub(crate) fn arrived(&self, kind: FakeKind, since_start_ms: u64, early: bool) {
        let mut totals = self.lock();
        totals.total += 1;
        totals.by_kind[kind.index()] += 1;
        totals.retry_after_violations += u64::from(early);
        totals.first_ms.get_or_insert(since_start_ms);
        totals.last_ms = totals.last_ms.max(Some(since_start_ms));
    }

    /// Counts a request that was refused before its delivery was known.
    pub(crate) fn failed(
        &self,
        kind: FakeKind,
        since_start_ms: u64,
        failure: CheckFailure,
        status: u16,
    ) {
        self.arrived(kind, since_start_ms, false);
        let mut totals = self.lock();
        totals.failures[failure as usize] += 1;
        *totals.refused.entry(status).or_default() += 1;
    }

    pub(crate) fn unverified(&self) {
        self.lock().unverified += 1;
    }

    /// `earlier` says whether the same id was accepted before, and if so, whether that
    /// acceptance stayed unanswered.
    pub(crate) fn ended(&self, ending: AttemptEnding, earlier: Option<bool>) {
        let mut totals = self.lock();
        match ending {
            AttemptEnding::Refused { status, .. } => {
                *totals.refused.entry(status).or_default() += 1;
            }
            AttemptEnding::Unprocessed => totals.unprocessed += 1,
            AttemptEnding::AcceptedUnanswered | AttemptEnding::Accepted { .. } => {
                totals.accepted += 1;
                totals.accepted_unanswered +=
                    u64::from(ending == AttemptEnding::AcceptedUnanswered);
                match earlier {
                    Some(true) => totals.duplicates_after_reset += 1,
                    Some(false) => totals.duplicates += 1,
                    None => {}
                }
            }
        }
    }

    pub(crate) fn clear(&self) {
        *self.lock() = RequestTotals::default();
    }

    pub(crate) fn summary(&self, ids: usize, started_at_ms: i64) -> Value {
        let totals = &*self.lock();
        let at = |since_start_ms: Option<u64>| since_start_ms.map(|ms| started_at_ms + ms as i64);
        let failures = |failure: CheckFailure| totals.failures[failure as usize];
        let repeated = totals.duplicates + totals.duplicates_after_reset;
        json!({
            "total": totals.total,
            "ids": ids,
            "accepted": totals.accepted,
            "distinct": totals.accepted.saturating_sub(repeated),
            "duplicates": totals.duplicates,
            "duplicates_after_reset": totals.duplicates_after_reset,
            "accepted_unanswered": totals.accepted_unanswered,
            "unprocessed": totals.unprocessed,
            "refused": totals.refused,
            "retry_after_violations": totals.retry_after_violations,
            "bad_signature": failures(CheckFailure::Signature),
            "bad_vapid": failures(CheckFailure::Vapid),
            "undecryptable": failures(CheckFailure::Undecryptable),
            "bad_request": failures(CheckFailure::Request),
            "unverified": totals.unverified,
            "first_at": at(totals.first_ms),
            "last_at": at(totals.last_ms),
            "by_kind": FakeKind::all()
                .map(|kind| (kind.name(), totals.by_kind[kind.index()]))
                .collect::<BTreeMap<_, _>>(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, RequestTotals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
