//! Everything that outlives the simulated process: clock, providers, disk faults, trace and oracle.
//! One lock guards it; one thread uses it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::{Clock, Timestamp};
use tokio::sync::Notify;

use crate::clock::SimClock;
use crate::oracle::Oracle;
use crate::plan::{DiskFault, PlannedCrash, SimPlan};
use crate::provider::SimProvider;
use crate::rng::SimRng;
use crate::trace::{SimTrace, TraceEvent};

/// An invariant that did not hold.
#[derive(Debug, Clone)]
pub(crate) struct BrokenInvariant {
    /// Its name.
    pub invariant: &'static str,
    pub detail: String,
}

/// More store calls in one millisecond than any plan has work for.
const CALLS_PER_MS_MAX: u32 = 50_000;

pub(crate) struct World {
    pub plan: SimPlan,
    pub clock: Arc<SimClock>,
    /// Wakes the driver when the process must die or an invariant was broken.
    pub stop: Notify,
    state: Mutex<WorldState>,
}

pub(crate) struct WorldState {
    pub trace: SimTrace,
    pub oracle: Oracle,
    pub providers: Vec<SimProvider>,
    pub disk: SimDisk,
    pub rng: SimRng,
    /// Tenants whose credential no provider accepts.
    pub lost_credentials: BTreeSet<usize>,
    /// The process is dead: tasks that still run have no effect.
    pub dead: bool,
    pub violation: Option<BrokenInvariant>,
    /// Store calls in the current millisecond.
    calls_in_ms: (i64, u32),
    now: (i64, Timestamp),
}

/// Faults of the disk.
#[derive(Debug, Default)]
pub(crate) struct SimDisk {
    pub fault: Option<(i64, DiskFault)>,
    /// The process will die at a later write and stay down for so many milliseconds.
    pub crash: Option<(PlannedCrash, i64)>,
    /// The crash that happened.
    pub died: Option<(PlannedCrash, i64)>,
}

impl World {
    pub(crate) fn new(plan: SimPlan, loud: bool) -> Arc<Self> {
        let clock = Arc::new(SimClock::new());
        let mut rng = plan.rng.clone();
        let providers = plan.providers.iter().map(|p| SimProvider::new(p.clone(), rng.fork()));
        let state = WorldState {
            trace: SimTrace::new(loud),
            oracle: Oracle::new(&plan),
            providers: providers.collect(),
            disk: SimDisk::default(),
            rng,
            lost_credentials: BTreeSet::new(),
            dead: false,
            violation: None,
            calls_in_ms: (0, 0),
            now: (0, clock.now()),
        };
        Arc::new(Self { plan, clock, stop: Notify::new(), state: Mutex::new(state) })
    }

    /// The state, with the current time stored in it.
    pub(crate) fn state(&self) -> MutexGuard<'_, WorldState> {
        let now = (self.clock.elapsed(), self.clock.now());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = now;
        state
    }

    /// Changes the state, then wakes the driver if an invariant was broken.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut WorldState) -> T) -> T {
        let mut state = self.state();
        let before = state.violation.is_some();
        let result = change(&mut state);
        if state.violation.is_some() != before {
            self.stop.notify_one();
        }
        result
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead
    }
}

impl WorldState {
    /// The wall clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.now.1
    }

    /// True time in milliseconds.
    pub(crate) fn elapsed(&self) -> i64 {
        self.now.0
    }

    pub(crate) fn note(&mut self, what: &'static str, which: usize, how: &'static str, more: i64) {
        self.trace.push(TraceEvent { at: self.now.0, what, which: which as u64, how, more });
    }

    /// Counts a store call. Returns false if calls repeat without end in one millisecond.
    pub(crate) fn count_store_call(&mut self) -> bool {
        let elapsed = self.now.0;
        let before = if self.calls_in_ms.0 == elapsed { self.calls_in_ms.1 } else { 0 };
        self.calls_in_ms = (elapsed, before + 1);
        let passes = before < CALLS_PER_MS_MAX;
        self.report_violation(crate::oracle::check(passes, "the dispatcher does not loop", || {
            format!("the store was called {before} times in the same millisecond")
        }));
        passes
    }

    /// Keeps the first broken invariant.
    pub(crate) fn report_violation(&mut self, result: Result<(), BrokenInvariant>) {
        if let Err(violation) = result
            && self.violation.is_none()
            && !self.dead
        {
            self.note("VIOLATION", 0, violation.invariant, 0);
            self.violation = Some(violation);
        }
    }
}
