//! The store as the simulated process sees it: the real one, whose answers the oracle reads first and
//! which can be slow, fail, be full or be the last thing that the process ever asked.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::ports::store::{Store, StoreError, StoreResult};
use tokio::time::sleep;

use crate::home::Home;
use crate::patience::{Bells, wait_for};
use crate::plan::{Crash, DiskTrouble};
use crate::world::{State, World};

pub(crate) struct Watched {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) world: Arc<World>,
    pub(crate) home: Arc<Home>,
    pub(crate) bells: Bells,
}

/// What is asked of the store, as far as faults tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Accept,
    Look,
    Lease,
    Settle,
}

/// What is to go wrong once the store has done what it was asked.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Aftermath {
    slow_ms: u64,
    fails: bool,
    /// The process dies here.
    dies: bool,
    /// And what the store does now is on disk in part only.
    pub(crate) torn: bool,
}

impl Watched {
    /// What happens before the store is reached.
    pub(crate) async fn enter(&self, op: Op) -> StoreResult<Aftermath> {
        if !self.world.with(State::goes_on) {
            return std::future::pending().await;
        }
        let (slow_ms, verdict) = self.world.with(|state| foresee(state, op));
        if slow_ms > 0 {
            sleep(Duration::from_millis(slow_ms)).await;
        }
        if self.world.is_dead() {
            return std::future::pending().await;
        }
        let after = verdict?;
        let is_write = matches!(op, Op::Accept | Op::Settle);
        match self.world.with(|state| if is_write { doom(state) } else { None }) {
            Some(Crash::BeforeWrite { .. }) => self.die().await,
            Some(Crash::TornWrite { .. }) if self.home.remember() => {
                Ok(Aftermath { dies: true, torn: true, ..after })
            }
            Some(Crash::TornWrite { .. }) => self.die().await,
            Some(_) => Ok(Aftermath { dies: true, ..after }),
            None => Ok(after),
        }
    }

    /// What happens once the store has answered.
    pub(crate) async fn leave<T>(&self, after: Aftermath, answer: T) -> StoreResult<T> {
        if after.dies {
            return self.die().await;
        }
        if after.slow_ms > 0 {
            sleep(Duration::from_millis(after.slow_ms)).await;
        }
        if after.fails { Err(StoreError::Io("a simulated fault".into())) } else { Ok(answer) }
    }

    async fn die<T>(&self) -> T {
        self.world.with(|state| {
            state.note("dies", 0, "", 0);
            state.dead = true;
        });
        self.world.stop.notify_one();
        std::future::pending().await
    }

    /// The answer of the store, while time stands still.
    pub(crate) fn ask<T>(&self, answer: impl Future<Output = T>) -> T {
        let frozen = self.world.clock.freeze();
        let answer = wait_for(answer);
        drop(frozen);
        self.bells.ring();
        answer
    }
}

/// How long the disk takes, and what it then says.
fn foresee(state: &mut State, op: Op) -> (u64, StoreResult<Aftermath>) {
    let elapsed = state.elapsed();
    let Some((_, fault)) = state.disk.fault.filter(|(until, _)| elapsed < *until) else {
        return (0, Ok(Aftermath::default()));
    };
    if !state.chance.chance(fault.share) {
        return (0, Ok(Aftermath::default()));
    }
    let failed = |what: &str| Err(StoreError::Io(what.to_owned()));
    match fault.kind {
        DiskTrouble::Slow { ms } => {
            let before = state.chance.below(ms + 1);
            (before, Ok(Aftermath { slow_ms: ms - before, ..Aftermath::default() }))
        }
        DiskTrouble::FailsBefore => (0, failed("a simulated fault")),
        DiskTrouble::FailsAfter if op == Op::Look => (0, failed("a simulated fault")),
        DiskTrouble::FailsAfter => (0, Ok(Aftermath { fails: true, ..Aftermath::default() })),
        DiskTrouble::Full if op == Op::Accept => (0, Err(StoreError::Full("simulated".into()))),
        DiskTrouble::Full => (0, Ok(Aftermath::default())),
    }
}

/// Whether this write is the one at which the process dies.
fn doom(state: &mut State) -> Option<Crash> {
    let (crash, _) = state.disk.crash.as_mut()?;
    let nth = match crash {
        Crash::BeforeWrite { nth } | Crash::AfterWrite { nth } | Crash::TornWrite { nth } => nth,
        Crash::Soon { .. } => return None,
    };
    *nth = nth.saturating_sub(1);
    if *nth > 0 {
        return None;
    }
    state.disk.died = state.disk.crash.take();
    state.disk.died.map(|(crash, _)| crash)
}
