//! Fresh worlds, one after the other, each in four runs, and the table of them.

use anyhow::{Result, bail};

use super::bounds::{ComparedRuns, HealthyPart};
use super::fixture::now_ms;
use super::options::HarmProofOptions;
use super::run::{RunSetup, shown_wait};
use super::world::{HarmWorld, RealRunKind};
use crate::shell;

const SECONDS: u64 = 60;

/// What a world has shown.
enum WorldFinding {
    Held,
    /// The same runs differ too much to compare anything with them.
    Void(String),
    Broken(Vec<String>),
}

pub(super) fn run(options: &HarmProofOptions) -> Result<()> {
    let from = options.from.unwrap_or_else(|| now_ms() % 1_000_000_000);
    let seconds = options.seconds(SECONDS);
    shell::heading(&format!(
        "{} worlds of {seconds} s; again with --from {from} --seeds {} --seconds {seconds}",
        options.seeds, options.seeds
    ));
    println!("p50/p99 of the healthy part: alone | all well | all well again | some sick");
    let (mut broken, mut void) = (Vec::new(), 0);
    for seed in from..from + options.seeds {
        let world = HarmWorld::draw(seed, seconds);
        let runs = compare(options, &world)?;
        let finding = judge(&runs);
        println!("{}", row(seed, &world, &runs, &finding));
        match finding {
            WorldFinding::Held => {}
            WorldFinding::Void(_) => void += 1,
            WorldFinding::Broken(_) => broken.push(seed),
        }
    }
    if void > 0 {
        eprintln!("\n{void} of {} worlds are void: the machine was too uneven.", options.seeds);
    }
    if !broken.is_empty() {
        bail!("bounds broke in {} of {} worlds: {broken:?}", broken.len(), options.seeds);
    }
    if void * 2 > options.seeds {
        bail!("most worlds are void; repeat on a machine with nothing else to do");
    }
    eprintln!("\nProven in {} worlds from seed {from} on.", options.seeds - void);
    Ok(())
}

fn compare<'a>(options: &HarmProofOptions, world: &'a HarmWorld) -> Result<ComparedRuns<'a>> {
    let run = |kind: RealRunKind| -> Result<HealthyPart> {
        let messages = world.messages(kind);
        let setup = RunSetup { reads_attempts: true, ..RunSetup::new(options, world.faults(kind)) };
        let finished = setup.run(&messages)?;
        eprintln!("   {kind:?}: handed in {} late at p99", shown_wait(finished.late_p99_ms));
        Ok(HealthyPart::new(&messages, &finished))
    };
    Ok(ComparedRuns {
        alone: run(RealRunKind::HealthyAlone)?,
        well: run(RealRunKind::AllWell)?,
        well_again: run(RealRunKind::AllWell)?,
        sick: run(RealRunKind::SomeSick)?,
        length_ms: world.length_ms(),
        since_onset: Box::new(|at| world.since_onset(at)),
    })
}

fn judge(runs: &ComparedRuns<'_>) -> WorldFinding {
    if let Some(why) = runs.void() {
        return WorldFinding::Void(why);
    }
    match runs.broken() {
        none if none.is_empty() => WorldFinding::Held,
        broken => WorldFinding::Broken(broken),
    }
}

fn row(seed: u64, world: &HarmWorld, runs: &ComparedRuns<'_>, finding: &WorldFinding) -> String {
    let parts = [&runs.alone, &runs.well, &runs.well_again, &runs.sick];
    let figures = parts.map(|part| format!("{}/{}", shown_wait(part.p50), shown_wait(part.p99)));
    let finding = match finding {
        WorldFinding::Held => "held".to_owned(),
        WorldFinding::Void(why) => format!("void: {why}"),
        WorldFinding::Broken(broken) => format!("BROKEN: {}", broken.join("; ")),
    };
    format!("{seed}  {}  {finding}\n    {world}", figures.join(" | "))
}
