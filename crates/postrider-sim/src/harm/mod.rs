//! Whether sick traffic costs healthy traffic anything. Each seed is a world that runs three times: its
//! healthy part alone, everything in health, and everything with its sick part sick. Bounds compare the
//! healthy part's fate in the third run with the worse of the other two.

mod bounds;
mod draw;
mod network;
mod plan;
mod run;
mod seeds;
mod sick;
mod traffic;

use std::fmt;
use std::sync::Arc;

use anyhow::Result;

use bounds::HarmRuns;
pub use bounds::{BrokenBound, WaitFigures};
use plan::{HarmPlan, HarmRunKind};
use run::run_world;
pub use seeds::harm_seeds;

/// What a seed has shown.
pub struct HarmReport {
    pub seed: u64,
    /// The world in words.
    pub world: String,
    /// Of the healthy part: alone, with all well, with some sick.
    pub figures: [WaitFigures; 3],
    pub broken: Vec<BrokenBound>,
}

/// Runs the world of a seed three times and compares.
pub fn harm(seed: u64) -> HarmReport {
    let plan = Arc::new(HarmPlan::draw(seed));
    let world = plan.to_string();
    match compare(&plan) {
        Ok((figures, broken)) => HarmReport { seed, world, figures, broken },
        Err(error) => {
            let detail = format!("{error:#}");
            let broken = vec![BrokenBound { bound: "the simulation itself runs", detail }];
            HarmReport { seed, world, figures: Default::default(), broken }
        }
    }
}

fn compare(plan: &Arc<HarmPlan>) -> Result<([WaitFigures; 3], Vec<BrokenBound>)> {
    let runs = HarmRuns {
        alone: run_world(plan, HarmRunKind::HealthyAlone)?,
        well: run_world(plan, HarmRunKind::AllWell)?,
        sick: run_world(plan, HarmRunKind::SomeSick)?,
        plan,
    };
    Ok((runs.figures(), runs.check()))
}

impl fmt::Display for HarmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [alone, well, sick] = self.figures.map(|wait| format!("{}/{}", wait.p50, wait.p99));
        writeln!(f, "seed {}: {}", self.seed, self.world)?;
        write!(f, "    p50/p99 in ms: alone {alone}, all well {well}, some sick {sick}")?;
        let broken = &mut self.broken.iter();
        broken.try_for_each(|broken| write!(f, "\n  BROKEN {}: {}", broken.bound, broken.detail))
    }
}
