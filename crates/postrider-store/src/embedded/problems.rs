//! What is wrong in the store while it goes on. Each problem is logged when it begins and when it ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use postrider_core::Timestamp;
use postrider_core::ports::store::StoreProblem;

/// More than this many problems of one kind say no more than the first ones.
const PER_CODE_MAX: usize = 20;

#[derive(Default)]
pub(crate) struct ProblemList(Mutex<KnownProblems>);

#[derive(Default)]
struct KnownProblems {
    /// By code and subject, such as a lane.
    listed: BTreeMap<(&'static str, u64), StoreProblem>,
    /// Codes of which there are more than are listed.
    cut_off: BTreeSet<&'static str>,
}

impl ProblemList {
    /// A problem that exists once in the store.
    pub(crate) fn report(&self, code: &'static str, now: Timestamp, what: String) {
        self.report_about(code, 0, now, what);
    }

    /// Adds a problem, or changes the text of a known one.
    pub(crate) fn report_about(
        &self,
        code: &'static str,
        subject: u64,
        now: Timestamp,
        what: String,
    ) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.listed.get_mut(&(code, subject)) {
            known.what = what;
            return;
        }
        if all.listed.range((code, 0)..=(code, u64::MAX)).count() < PER_CODE_MAX {
            tracing::error!(code, what, "the store has a problem and goes on");
            all.listed.insert((code, subject), StoreProblem { code, since: now, what });
        } else if all.cut_off.insert(code) {
            tracing::error!(code, what, "the store has more such problems than are listed");
        }
    }

    pub(crate) fn resolve(&self, code: &'static str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.listed.remove(&(code, 0)).is_some() {
            tracing::info!(code, "a problem of the store is solved");
        }
    }

    pub(crate) fn all(&self) -> Vec<StoreProblem> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.listed.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_keeps_its_beginning_until_it_is_solved_and_many_are_cut_off() {
        let list = ProblemList::default();
        list.report("journal_blocked", Timestamp(1), "100 MiB".into());
        list.report("journal_blocked", Timestamp(9), "200 MiB".into());
        let all = list.all();
        assert_eq!((all.len(), all[0].since, &*all[0].what), (1, Timestamp(1), "200 MiB"));
        list.resolve("journal_blocked");
        assert!(list.all().is_empty());
        for lane in 0..100 {
            list.report_about("lane_unreadable", lane, Timestamp(1), format!("lane {lane}"));
        }
        assert_eq!(list.all().len(), PER_CODE_MAX);
    }
}
