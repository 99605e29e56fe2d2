//! Checks the retry budget of each lane with its own counts.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::policy::budget::BudgetPolicy;
use postrider_core::policy::window::STEPS;

use super::{CheckResult, check};

/// Tenant, provider, class.
type LaneIndex = (usize, usize, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallKind {
    First,
    Retry,
    Earned,
}

pub(super) struct BudgetCheck {
    policy: BudgetPolicy,
    lanes: BTreeMap<LaneIndex, VecDeque<(Timestamp, CallKind)>>,
    latest: Timestamp,
    /// No checks until then: after the clock went back, windows stand still.
    blind_until: Timestamp,
}

impl BudgetCheck {
    pub(super) fn new(policy: BudgetPolicy) -> Self {
        let (latest, blind_until) = (Timestamp::default(), Timestamp::default());
        Self { policy, lanes: BTreeMap::new(), latest, blind_until }
    }

    pub(super) fn process_started(&mut self) {
        *self = Self::new(self.policy);
    }

    pub(super) fn jumped(&mut self, now: Timestamp) {
        self.lanes.clear();
        self.blind_until = self.latest.max(now) + self.window();
    }

    pub(super) fn earned(&mut self, lane: LaneIndex, at: Timestamp) {
        self.note(lane, at, CallKind::Earned);
    }

    /// A call whose lease was given at `at`. `ahead` counts the lane's first attempts that are leased and
    /// not yet called: the budget is charged for a whole lease at once.
    pub(super) fn called(
        &mut self,
        lane: LaneIndex,
        retry: bool,
        at: Timestamp,
        ahead: impl FnOnce() -> usize,
    ) -> CheckResult {
        self.note(lane, at, if retry { CallKind::Retry } else { CallKind::First });
        if !retry || at < self.blind_until {
            return Ok(());
        }
        // The real window forgets in steps: it may be one step shorter than configured.
        let (window, step) = (self.window(), self.window() / STEPS);
        let Some(seen) = self.lanes.get(&lane) else { return Ok(()) };
        let count = |what, within: Duration| {
            seen.iter().filter(|(then, w)| *w == what && at.since(*then) <= within).count() as f64
        };
        let retries = count(CallKind::Retry, window.saturating_sub(step));
        let floor = self.policy.floor_per_s * window.as_secs_f64();
        let firsts = count(CallKind::First, window + step);
        let earned = count(CallKind::Earned, window + step);
        let mut allowed = floor + self.policy.share * firsts + earned;
        if retries > allowed {
            allowed += self.policy.share * ahead() as f64;
        }
        check(retries <= allowed.max(1.0) + 1e-9, "no retry beyond the budget", || {
            format!("{retries} retries in {window:?}, {allowed:.1} are allowed")
        })
    }

    fn note(&mut self, lane: LaneIndex, at: Timestamp, what: CallKind) {
        self.latest = self.latest.max(at);
        let window = self.window() * 2;
        let seen = self.lanes.entry(lane).or_default();
        while seen.front().is_some_and(|(then, _)| at.since(*then) > window) {
            seen.pop_front();
        }
        seen.push_back((at, what));
    }

    fn window(&self) -> Duration {
        Duration::from_secs(self.policy.window_s.into())
    }
}
