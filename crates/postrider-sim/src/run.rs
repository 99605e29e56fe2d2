//! One seed, from the first life of its process to the last.

use std::sync::Arc;

use anyhow::Result;

use crate::driver::End;
use crate::home::{Home, StoreKind};
use crate::life::live;
use crate::plan::Plan;
use crate::trace::Event;
use crate::world::{Violation, World};

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Run {
    pub seed: u64,
    pub store: StoreKind,
    /// Over everything that happened, in order.
    pub hash: u64,
    pub events: u64,
    pub deliveries: usize,
    pub calls: u64,
    pub lives: u32,
    pub virtual_ms: i64,
    pub failure: Option<Failure>,
}

#[derive(Debug, Clone)]
pub struct Failure {
    pub invariant: String,
    pub detail: String,
    /// The last of what happened.
    pub trace: Vec<Event>,
}

/// More lives than any plan has crashes.
const LIVES_MAX: u32 = 100;

pub fn run(seed: u64, store: StoreKind, loud: bool) -> Run {
    let world = World::new(Plan::draw(seed), loud);
    let ended = lives(&world, store);
    let state = world.state();
    let violation = match ended {
        Ok(()) => state.violation.clone(),
        Err(error) => {
            let detail = format!("{error:#}");
            Some(Violation { invariant: "the simulation itself goes on", detail })
        }
    };
    Run {
        seed,
        store,
        hash: state.trace.hash(),
        events: state.trace.count(),
        deliveries: state.oracle.deliveries.len(),
        calls: state.oracle.deliveries.iter().map(|known| u64::from(known.reached)).sum(),
        lives: state.oracle.life,
        virtual_ms: state.elapsed(),
        failure: violation.map(|violation| Failure {
            invariant: violation.invariant.to_owned(),
            detail: violation.detail,
            trace: state.trace.last().copied().collect(),
        }),
    }
}

fn lives(world: &Arc<World>, store: StoreKind) -> Result<()> {
    let clock = world.clock.clone();
    let home = Arc::new(Home::new(store, clock, world.plan.lane_window)?);
    let mut next_act = 0;
    for _ in 0..LIVES_MAX {
        world.with(|state| {
            state.oracle.new_life();
            state.note("life", state.oracle.life as usize, "", 0);
        });
        let down_ms = match live(world, &home, &mut next_act)? {
            End::Crashed { down_ms, torn } => {
                let part = world.with(|state| {
                    state.note("crash", 0, if torn { "torn" } else { "" }, down_ms);
                    (state.chance.below(1_000) as f64) / 1_000.0
                });
                home.crash(torn.then_some(part))?;
                down_ms
            }
            End::Restarted { down_ms } => {
                home.close();
                down_ms
            }
            End::Over => return Ok(()),
        };
        world.clock.pass(down_ms);
    }
    anyhow::bail!("more than {LIVES_MAX} lives")
}
