//! Runs one seed, from the first start of its process to the last.

use std::sync::Arc;

use anyhow::Result;

use crate::driver::ProcessEnd;
use crate::plan::SimPlan;
use crate::process::run_process;
use crate::storage::{SimStorage, StoreKind};
use crate::trace::TraceEvent;
use crate::world::{BrokenInvariant, World};

/// The result of a run.
#[derive(Debug, Clone)]
pub struct SimRun {
    pub seed: u64,
    pub store: StoreKind,
    /// Hash over all events, in order.
    pub hash: u64,
    pub events: u64,
    pub deliveries: usize,
    pub calls: u64,
    pub starts: u32,
    pub virtual_ms: i64,
    pub failure: Option<SimFailure>,
}

#[derive(Debug, Clone)]
pub struct SimFailure {
    pub invariant: String,
    pub detail: String,
    /// The last events.
    pub trace: Vec<TraceEvent>,
}

/// More starts than any plan has crashes.
const STARTS_MAX: u32 = 100;

pub fn run(seed: u64, store: StoreKind, loud: bool) -> SimRun {
    let world = World::new(SimPlan::draw(seed), loud);
    let ended = run_to_the_end(&world, store);
    let state = world.state();
    let violation = match ended {
        Ok(()) => state.violation.clone(),
        Err(error) => {
            let detail = format!("{error:#}");
            Some(BrokenInvariant { invariant: "the simulation itself runs", detail })
        }
    };
    SimRun {
        seed,
        store,
        hash: state.trace.hash(),
        events: state.trace.count(),
        deliveries: state.oracle.deliveries.len(),
        calls: state.oracle.deliveries.iter().map(|record| u64::from(record.reached)).sum(),
        starts: state.oracle.process_starts,
        virtual_ms: state.elapsed(),
        failure: violation.map(|violation| SimFailure {
            invariant: violation.invariant.to_owned(),
            detail: violation.detail,
            trace: state.trace.last().copied().collect(),
        }),
    }
}

fn run_to_the_end(world: &Arc<World>, store: StoreKind) -> Result<()> {
    let clock = world.clock.clone();
    let storage = Arc::new(SimStorage::new(store, clock, world.plan.lane_window)?);
    let mut next_action = 0;
    for _ in 0..STARTS_MAX {
        world.with(|state| {
            state.oracle.process_started();
            state.note("start", state.oracle.process_starts as usize, "", 0);
        });
        let down_ms = match run_process(world, &storage, &mut next_action)? {
            ProcessEnd::Crashed { down_ms, torn } => {
                let part = world.with(|state| {
                    state.note("crash", 0, if torn { "torn" } else { "" }, down_ms);
                    (state.rng.below(1_000) as f64) / 1_000.0
                });
                storage.crash(torn.then_some(part))?;
                down_ms
            }
            ProcessEnd::Restarted { down_ms } => {
                storage.close();
                down_ms
            }
            ProcessEnd::Over => return Ok(()),
        };
        world.clock.pass(down_ms);
    }
    anyhow::bail!("more than {STARTS_MAX} process starts")
}
