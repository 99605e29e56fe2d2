//! Whether sick traffic costs healthy traffic anything. Each seed is a world that runs three times: its
//! healthy part alone, everything in health, and everything with its sick part sick. Bounds compare the
//! healthy part's fate in the third run with the worse of the other two.

mod blind;
mod bounds;
mod busy;
mod channel;
mod draw;
mod full;
mod invariants;
mod network;
mod plan;
mod run;
mod seeds;
mod sick;
mod traffic;
mod variants;

use std::fmt;
use std::sync::Arc;

use anyhow::Result;

pub use bounds::{BrokenBound, WaitFigures};
use bounds::{HarmRuns, MeasuredBreach};
use plan::{HarmPlan, HarmRunKind};
use run::run_world;
pub use seeds::harm_seeds;
use variants::PlanVariant;

/// Other random numbers of the rules with which a world that breaks a bound runs again. One of the two has to show the
/// same: then it is two of three.
const CHANCES: [u64; 2] = [1, 2];

/// What a seed has shown.
pub struct HarmReport {
    pub seed: u64,
    /// How its world was changed, if it was.
    pub variant: Option<&'static str>,
    /// The world in words.
    pub world: String,
    /// Of the healthy part: alone, with all well, with some sick.
    pub figures: [WaitFigures; 3],
    pub broken: Vec<BrokenBound>,
    /// What held healthy deliveries while some were sick, most often first, and how often.
    pub held_by: Vec<(String, usize)>,
}

/// Runs the world of a seed three times and compares.
pub fn harm(seed: u64) -> HarmReport {
    harm_of(HarmPlan::draw(seed), None)
}

/// The same, in which the rules draw other random numbers.
pub fn harm_by_chance(seed: u64, chance: u64) -> HarmReport {
    harm_of(HarmPlan::draw(seed).with_chance(chance), None)
}

/// The same for a world in which all share little.
pub fn harm_dense(seed: u64, chance: u64) -> HarmReport {
    harm_of(HarmPlan::draw_dense(seed).with_chance(chance), None)
}

/// Runs the world of a seed, and if it breaks no bound, the same world changed in ways that change no
/// bound. The first that breaks one is reported.
pub fn harm_changed(seed: u64) -> HarmReport {
    let plan = HarmPlan::draw(seed);
    let variants = PlanVariant::ALL.into_iter().map(Some);
    let mut report = harm_of(plan.clone(), None);
    for variant in variants {
        if !report.broken.is_empty() {
            break;
        }
        report = harm_of(plan.clone(), variant);
    }
    report
}

fn harm_of(plan: HarmPlan, variant: Option<PlanVariant>) -> HarmReport {
    let plan = Arc::new(variant.map_or_else(|| plan.clone(), |variant| variant.of(&plan)));
    let (seed, world) = (plan.seed, plan.to_string());
    let (figures, broken, held_by) = compare(&plan).unwrap_or_else(|error| {
        let detail = format!("{error:#}");
        let broken = BrokenBound { bound: "the simulation itself runs", detail };
        (Default::default(), vec![broken], vec![])
    });
    let variant = variant.map(PlanVariant::name);
    HarmReport { seed, variant, world, figures, broken, held_by }
}

/// Figures, broken bounds, and what held healthy work.
type Comparison = ([WaitFigures; 3], Vec<BrokenBound>, Vec<(String, usize)>);

/// A bound on what is measured that is just not kept is broken if it is so with most of the random numbers that are
/// tried.
fn compare(plan: &Arc<HarmPlan>) -> Result<Comparison> {
    let runs = three_runs(plan)?;
    let (mut broken, mut measured) = (runs.check_always(), runs.check_measured());
    if measured.iter().any(MeasuredBreach::is_near) {
        let mut others = Vec::new();
        for chance in CHANCES {
            let other = Arc::new(plan.with_chance(plan.chance + chance));
            let measured = three_runs(&other)?.check_measured();
            others.extend(measured.iter().map(|breach| breach.broken.bound));
        }
        measured.retain(|breach| !breach.is_near() || others.contains(&breach.broken.bound));
    }
    broken.extend(measured.into_iter().map(|breach| breach.broken));
    Ok((runs.figures(), broken, runs.sick.held_by))
}

fn three_runs(plan: &Arc<HarmPlan>) -> Result<HarmRuns<'_>> {
    Ok(HarmRuns {
        alone: run_world(plan, HarmRunKind::HealthyAlone)?,
        well: run_world(plan, HarmRunKind::AllWell)?,
        sick: run_world(plan, HarmRunKind::SomeSick)?,
        plan,
    })
}

impl fmt::Display for HarmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [alone, well, sick] = self.figures.map(|wait| format!("{}/{}", wait.p50, wait.p99));
        write!(f, "seed {}", self.seed)?;
        self.variant.map_or(Ok(()), |variant| write!(f, " {variant}"))?;
        writeln!(f, ": {}", self.world)?;
        write!(f, "    p50/p99 in ms: alone {alone}, all well {well}, some sick {sick}")?;
        let broken = &mut self.broken.iter();
        broken
            .try_for_each(|broken| write!(f, "\n  BROKEN {}: {}", broken.bound, broken.detail))?;
        let mut held_by = self.held_by.iter();
        held_by.try_for_each(|(by, times)| write!(f, "\n    held {times} times by {by}"))
    }
}
