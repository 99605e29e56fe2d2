//! The share of retries of each lane, counted beside its budget.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::policy::budget::BudgetPolicy;
use postrider_core::policy::window::STEPS;

use super::{Judged, promise};

/// Tenant, provider, class.
type Lane = (usize, usize, usize);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    First,
    Retry,
    Earned,
}

pub(super) struct Budgets {
    policy: BudgetPolicy,
    lanes: BTreeMap<Lane, VecDeque<(Timestamp, What)>>,
    latest: Timestamp,
    /// After the clock went back the windows stand still until it has caught up.
    blind_until: Timestamp,
}

impl Budgets {
    pub(super) fn new(policy: BudgetPolicy) -> Self {
        let (latest, blind_until) = (Timestamp::default(), Timestamp::default());
        Self { policy, lanes: BTreeMap::new(), latest, blind_until }
    }

    pub(super) fn new_life(&mut self) {
        *self = Self::new(self.policy);
    }

    pub(super) fn jumped(&mut self, now: Timestamp) {
        self.lanes.clear();
        self.blind_until = self.latest.max(now) + self.window();
    }

    pub(super) fn earned(&mut self, lane: Lane, at: Timestamp) {
        self.note(lane, at, What::Earned);
    }

    /// A call whose lease was given at `at`. `ahead` are the lane's first attempts that are leased and
    /// not yet called: a lease is paid for as a whole, whatever of it goes first.
    pub(super) fn called(
        &mut self,
        lane: Lane,
        retry: bool,
        at: Timestamp,
        ahead: impl FnOnce() -> usize,
    ) -> Judged {
        self.note(lane, at, if retry { What::Retry } else { What::First });
        if !retry || at < self.blind_until {
            return Ok(());
        }
        // The real window forgets in steps: it is at most one step shorter than its name says.
        let (window, step) = (self.window(), self.window() / STEPS);
        let Some(seen) = self.lanes.get(&lane) else { return Ok(()) };
        let count = |what, within: Duration| {
            seen.iter().filter(|(then, w)| *w == what && at.since(*then) <= within).count() as f64
        };
        let retries = count(What::Retry, window.saturating_sub(step));
        let floor = self.policy.floor_per_s * window.as_secs_f64();
        let firsts = count(What::First, window + step);
        let earned = count(What::Earned, window + step);
        let mut allowed = floor + self.policy.share * firsts + earned;
        if retries > allowed {
            allowed += self.policy.share * ahead() as f64;
        }
        promise(retries <= allowed.max(1.0) + 1e-9, "no retry beyond the budget", || {
            format!("{retries} retries in {window:?}, {allowed:.1} are allowed")
        })
    }

    fn note(&mut self, lane: Lane, at: Timestamp, what: What) {
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
