//! What outlives the simulated process: the clock, the providers, the disk's moods, the trace, and
//! the oracle that judges. One lock around all of it; one thread uses it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::{Clock, Timestamp};
use tokio::sync::Notify;

use crate::clock::SimClock;
use crate::oracle::Oracle;
use crate::plan::{Crash, DiskFault, Plan};
use crate::provider::Provider;
use crate::rng::Rng;
use crate::trace::{Event, Trace};

/// A broken promise.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    /// The promise, by name.
    pub invariant: &'static str,
    pub detail: String,
}

/// More calls of the store in one millisecond than any story has work for.
const ASKED_MAX: u32 = 50_000;

pub(crate) struct World {
    pub plan: Plan,
    pub clock: Arc<SimClock>,
    /// The process is to die, or a promise was broken: whoever drives it looks.
    pub stop: Notify,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub trace: Trace,
    pub oracle: Oracle,
    pub providers: Vec<Provider>,
    pub disk: Disk,
    pub chance: Rng,
    /// Tenants whose credential no provider accepts.
    pub lost_credentials: BTreeSet<usize>,
    /// The process is dead: nothing that still runs of it has any effect.
    pub dead: bool,
    pub violation: Option<Violation>,
    /// How often the store was asked without any time passing.
    asked: (i64, u32),
    now: (i64, Timestamp),
}

/// What is wrong with the disk.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub fault: Option<(i64, DiskFault)>,
    /// Armed: the process dies at a write to come, and is down for so long.
    pub crash: Option<(Crash, i64)>,
    /// It died so.
    pub died: Option<(Crash, i64)>,
}

impl World {
    pub(crate) fn new(plan: Plan, loud: bool) -> Arc<Self> {
        let clock = Arc::new(SimClock::new());
        let mut chance = plan.chance.clone();
        let providers = plan.providers.iter().map(|p| Provider::new(p.clone(), chance.fork()));
        let state = State {
            trace: Trace::new(loud),
            oracle: Oracle::new(&plan),
            providers: providers.collect(),
            disk: Disk::default(),
            chance,
            lost_credentials: BTreeSet::new(),
            dead: false,
            violation: None,
            asked: (0, 0),
            now: (0, clock.now()),
        };
        Arc::new(Self { plan, clock, stop: Notify::new(), state: Mutex::new(state) })
    }

    /// The state, with the present noted in it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let now = (self.clock.elapsed(), self.clock.now());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.now = now;
        state
    }

    /// Does something to the state, then lets the driver know if a promise turned out broken.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let before = state.violation.is_some();
        let result = act(&mut state);
        if state.violation.is_some() != before {
            self.stop.notify_one();
        }
        result
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state().dead
    }
}

impl State {
    /// The wall clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.now.1
    }

    /// True time in milliseconds.
    pub(crate) fn elapsed(&self) -> i64 {
        self.now.0
    }

    pub(crate) fn note(&mut self, what: &'static str, which: usize, how: &'static str, more: i64) {
        self.trace.push(Event { at: self.now.0, what, which: which as u64, how, more });
    }

    /// The store is asked for something. False if it is asked for ever and time never goes on.
    pub(crate) fn goes_on(&mut self) -> bool {
        let elapsed = self.now.0;
        let before = if self.asked.0 == elapsed { self.asked.1 } else { 0 };
        self.asked = (elapsed, before + 1);
        let goes_on = before < ASKED_MAX;
        self.blame(crate::oracle::promise(goes_on, "nobody runs in circles", || {
            format!("the store was asked {before} times in the same millisecond")
        }));
        goes_on
    }

    /// The first broken promise is the one that counts.
    pub(crate) fn blame(&mut self, judged: Result<(), Violation>) {
        if let Err(violation) = judged
            && self.violation.is_none()
            && !self.dead
        {
            self.note("VIOLATION", 0, violation.invariant, 0);
            self.violation = Some(violation);
        }
    }
}
