//! The disk under the simulated store: slow, failing, full, or gone with the process.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::ports::store::{StoreError, StoreResult};
use tokio::time::sleep;

use crate::blocking::{StoreWaiters, block_on};
use crate::plan::{DiskFaultKind, PlannedCrash};
use crate::storage::SimStorage;
use crate::world::{World, WorldState};

pub(crate) struct FaultyDisk {
    pub(crate) world: Arc<World>,
    pub(crate) storage: Arc<SimStorage>,
    pub(crate) waiters: StoreWaiters,
}

/// A kind of store call, as far as faults treat them differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreOp {
    Accept,
    Look,
    Lease,
    Settle,
}

/// The fault that follows once the store has done its work.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct FaultAfterCall {
    slow_ms: u64,
    fails: bool,
    /// The process dies here.
    dies: bool,
    /// Only a part of the write reaches the disk.
    pub(crate) torn: bool,
}

impl FaultyDisk {
    /// Applies the faults that come before the store call.
    pub(crate) async fn enter(&self, op: StoreOp) -> StoreResult<FaultAfterCall> {
        if !self.world.with(WorldState::count_store_call) {
            return std::future::pending().await;
        }
        let (slow_ms, fault) = self.world.with(|state| draw_fault(state, op));
        if slow_ms > 0 {
            sleep(Duration::from_millis(slow_ms)).await;
        }
        if self.world.is_dead() {
            return std::future::pending().await;
        }
        let after = fault?;
        let is_write = matches!(op, StoreOp::Accept | StoreOp::Settle);
        match self.world.with(|state| if is_write { take_due_crash(state) } else { None }) {
            Some(PlannedCrash::BeforeWrite { .. }) => self.die().await,
            Some(PlannedCrash::TornWrite { .. }) if self.storage.save_files() => {
                Ok(FaultAfterCall { dies: true, torn: true, ..after })
            }
            Some(PlannedCrash::TornWrite { .. }) => self.die().await,
            Some(_) => Ok(FaultAfterCall { dies: true, ..after }),
            None => Ok(after),
        }
    }

    /// Applies the faults that come after the store call.
    pub(crate) async fn leave<T>(&self, after: FaultAfterCall, answer: T) -> StoreResult<T> {
        if after.dies {
            return self.die().await;
        }
        if after.slow_ms > 0 {
            sleep(Duration::from_millis(after.slow_ms)).await;
        }
        if after.fails {
            Err(StoreError::Io { what: "a simulated fault".into(), cause: None })
        } else {
            Ok(answer)
        }
    }

    async fn die<T>(&self) -> T {
        self.world.with(|state| {
            state.note("dies", 0, "", 0);
            state.dead = true;
        });
        self.world.stop.notify_one();
        std::future::pending().await
    }

    /// Calls the store while virtual time stands still.
    pub(crate) fn ask<T>(&self, answer: impl Future<Output = T>) -> T {
        let frozen = self.world.clock.freeze();
        let answer = block_on(answer);
        drop(frozen);
        self.waiters.wake_marked();
        answer
    }
}

/// Draws the delay and the result of the disk.
fn draw_fault(state: &mut WorldState, op: StoreOp) -> (u64, StoreResult<FaultAfterCall>) {
    let elapsed = state.elapsed();
    let Some((_, fault)) = state.disk.fault.filter(|(until, _)| elapsed < *until) else {
        return (0, Ok(FaultAfterCall::default()));
    };
    if !state.rng.chance(fault.share) {
        return (0, Ok(FaultAfterCall::default()));
    }
    let failed = |what: &str| Err(StoreError::Io { what: what.to_owned(), cause: None });
    match fault.kind {
        DiskFaultKind::Slow { ms } => {
            let before = state.rng.below(ms + 1);
            (before, Ok(FaultAfterCall { slow_ms: ms - before, ..FaultAfterCall::default() }))
        }
        DiskFaultKind::FailsBefore => (0, failed("a simulated fault")),
        DiskFaultKind::FailsAfter if op == StoreOp::Look => (0, failed("a simulated fault")),
        DiskFaultKind::FailsAfter => {
            (0, Ok(FaultAfterCall { fails: true, ..FaultAfterCall::default() }))
        }
        DiskFaultKind::Full if op == StoreOp::Accept => {
            (0, Err(StoreError::Full { what: "simulated".into(), cause: None }))
        }
        DiskFaultKind::Full => (0, Ok(FaultAfterCall::default())),
    }
}

/// Counts a write down; returns the crash if the process dies at this one.
fn take_due_crash(state: &mut WorldState) -> Option<PlannedCrash> {
    let (crash, _) = state.disk.crash.as_mut()?;
    let nth = match crash {
        PlannedCrash::BeforeWrite { nth }
        | PlannedCrash::AfterWrite { nth }
        | PlannedCrash::TornWrite { nth } => nth,
        PlannedCrash::Soon { .. } => return None,
    };
    *nth = nth.saturating_sub(1);
    if *nth > 0 {
        return None;
    }
    state.disk.died = state.disk.crash.take();
    state.disk.died.map(|(crash, _)| crash)
}
