//! The answers that a person ordered for the next requests of a kind. They go before scripts and fault profiles.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::fakes::{FAKES, FakeKind};
use crate::fault::Fault;

/// Answers that wait, per kind.
pub(crate) const ORDERED_MAX: usize = 100;

#[derive(Default)]
pub(crate) struct NextAnswers {
    /// By the place of the kind in the list of fakes.
    ordered: Mutex<[VecDeque<Fault>; FAKES.len()]>,
    /// How many wait, so that a request without them takes no lock.
    waiting: AtomicUsize,
}

impl NextAnswers {
    /// Replaces what was ordered for this kind.
    pub(crate) fn set(&self, kind: FakeKind, answers: Vec<Fault>) {
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        ordered[kind.index()] = answers.into();
        let waiting = ordered.iter().map(VecDeque::len).sum();
        self.waiting.store(waiting, Ordering::Release);
    }

    pub(crate) fn of(&self, kind: FakeKind) -> Vec<Fault> {
        let ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        ordered[kind.index()].iter().copied().collect()
    }

    /// The answer to the request that comes now.
    pub(crate) fn take(&self, kind: FakeKind) -> Option<Fault> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = ordered[kind.index()].pop_front()?;
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordered_answer_is_given_once_and_to_its_kind_only() {
        let (next, kinds) = (NextAnswers::default(), FakeKind::all().collect::<Vec<_>>());
        let busy = Fault::Status { code: 503, retry_after_s: None };
        next.set(kinds[1], vec![busy, Fault::Hang]);
        assert_eq!(next.take(kinds[0]), None);
        assert_eq!([next.take(kinds[1]), next.take(kinds[1])], [Some(busy), Some(Fault::Hang)]);
        assert_eq!(next.take(kinds[1]), None);
        next.set(kinds[1], vec![busy]);
        next.set(kinds[1], Vec::new());
        assert_eq!((next.take(kinds[1]), next.of(kinds[1])), (None, Vec::new()));
    }
}
