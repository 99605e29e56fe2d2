//! Fresh worlds, one after the other, each in four runs, and the table of them. The four runs go at the same time,
//! each with a server and a provider of its own; where the machine has no time for that, one after the other.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::super::nodes::engine::{self, EngineFixture, EngineTimes};
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
        "{} worlds of {seconds} s{}; again with --from {from} --seeds {} --seconds {seconds}",
        options.seeds,
        options.engine.as_ref().map_or(String::new(), |engine| {
            format!(", {} servers over {engine}", options.nodes())
        }),
        options.seeds
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

/// The four runs of a world: at the same time if they do not disturb each other.
fn compare<'a>(options: &HarmProofOptions, world: &'a HarmWorld) -> Result<ComparedRuns<'a>> {
    use RealRunKind::{AllWell, HealthyAlone, SomeSick};
    let kinds = [HealthyAlone, AllWell, AllWell, SomeSick];
    let stores = WorldStores::start(options)?;
    if !options.one_by_one {
        let runs = thread::scope(|scope| {
            let runs = kinds.map(|kind| {
                let store = stores.fresh();
                scope.spawn(move || run_one(options, world, kind, store))
            });
            runs.map(|run| run.join().ok().context("a run gave up").and_then(|run| run))
        });
        let runs = together(options, world, runs)?;
        match runs.disturbed().or_else(|| runs.void()) {
            None => return Ok(runs),
            Some(why) => eprintln!("   {why}: once more, one after the other"),
        }
    }
    together(options, world, kinds.map(|kind| run_one(options, world, kind, stores.fresh())))
}

/// An engine's server with a store for each run of a world; nothing if each server has a folder.
struct WorldStores {
    engine: Option<Box<dyn EngineFixture>>,
    given: Cell<usize>,
}

impl WorldStores {
    fn start(options: &HarmProofOptions) -> Result<Self> {
        let start = |name: &String| engine::start(name, &EngineTimes { snapshot: Duration::ZERO });
        let engine = options.engine.as_ref().map(start).transpose()?;
        Ok(Self { engine, given: Cell::new(0) })
    }

    /// The URL of a store that nobody used before.
    fn fresh(&self) -> Option<String> {
        self.given.set(self.given.get() + 1);
        let engine = self.engine.as_ref()?;
        Some(engine.store_url_of(&format!("harm{}", self.given.get())))
    }
}

fn run_one(
    options: &HarmProofOptions,
    world: &HarmWorld,
    kind: RealRunKind,
    store: Option<String>,
) -> Result<HealthyPart> {
    let messages = world.messages(kind);
    let faults = world.faults(kind, options.lead_ms());
    let setup = RunSetup { reads_attempts: true, store, ..RunSetup::new(options, faults) };
    let finished = setup.run(&messages)?;
    eprintln!("   {kind:?}: handed in {} late at p99", shown_wait(finished.late_p99_ms));
    Ok(HealthyPart::new(&messages, &finished))
}

fn together<'a>(
    options: &HarmProofOptions,
    world: &'a HarmWorld,
    runs: [Result<HealthyPart>; 4],
) -> Result<ComparedRuns<'a>> {
    let [alone, well, well_again, sick] = runs;
    Ok(ComparedRuns {
        alone: alone?,
        well: well?,
        well_again: well_again?,
        sick: sick?,
        length_ms: world.length_ms(),
        extra_ms: options.extra_ms(),
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
