//! Fresh worlds, one after the other, each in four runs, and the table of them, until so many were judged as were asked
//! for. The four runs go at the same time, each with a server and a provider of its own; where the machine has no time
//! for that, one after the other.

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

/// Of so many times the asked worlds, enough have to be good for a judgement.
const DRAWN_TIMES: u64 = 2;

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
        "{} worlds of {seconds} s that are not void{}; again with --from {from} --seeds {} --seconds {seconds}",
        options.seeds,
        options.engine.as_ref().map_or(String::new(), |engine| {
            format!(", {} servers over {engine}", options.nodes())
        }),
        options.seeds
    ));
    println!("p50/p99 of the healthy part: alone | all well | all well again | some sick");
    let drawn = draw_until_judged(options.seeds, from, |seed| {
        let world = HarmWorld::draw(seed, seconds);
        let runs = compare(options, &world)?;
        let finding = judge(&runs);
        println!("{}", row(seed, &world, &runs, &finding));
        Ok(finding)
    })?;
    drawn.conclude(options.seeds, from)
}

/// What the worlds have shown that were drawn.
#[derive(Debug, Default, PartialEq, Eq)]
struct DrawnWorlds {
    held: u64,
    broken: Vec<u64>,
    void: Vec<u64>,
}

/// Draws worlds from this seed on until so many were judged. A void one is drawn and does not count.
fn draw_until_judged(
    asked: u64,
    from: u64,
    mut run: impl FnMut(u64) -> Result<WorldFinding>,
) -> Result<DrawnWorlds> {
    let mut drawn = DrawnWorlds::default();
    let mut seeds = from..from.saturating_add(asked.saturating_mul(DRAWN_TIMES));
    while drawn.judged() < asked
        && let Some(seed) = seeds.next()
    {
        match run(seed)? {
            WorldFinding::Held => drawn.held += 1,
            WorldFinding::Broken(_) => drawn.broken.push(seed),
            WorldFinding::Void(_) => drawn.void.push(seed),
        }
    }
    Ok(drawn)
}

impl DrawnWorlds {
    fn judged(&self) -> u64 {
        self.held + self.broken.len() as u64
    }

    /// An error if a bound broke, or if too few worlds could be judged.
    fn conclude(&self, asked: u64, from: u64) -> Result<()> {
        let (judged, void) = (self.judged(), &self.void);
        if !void.is_empty() {
            eprintln!(
                "\n{} more worlds are void and do not count, because the machine was too uneven: {void:?}",
                void.len()
            );
        }
        if !self.broken.is_empty() {
            bail!("bounds broke in {} of {judged} worlds: {:?}", self.broken.len(), self.broken);
        }
        if judged < asked {
            bail!(
                "only {judged} of {asked} worlds could be judged, {} are void; repeat on a machine with nothing else to do",
                void.len()
            );
        }
        eprintln!("\nProven in {judged} worlds from seed {from} on.");
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Judges worlds from seed 100 on, of which each is void for which this is so.
    fn drawn(asked: u64, is_void: impl Fn(u64) -> bool) -> (DrawnWorlds, Vec<u64>) {
        let mut run = Vec::new();
        let drawn = draw_until_judged(asked, 100, |seed| {
            run.push(seed);
            Ok(match is_void(seed) {
                true => WorldFinding::Void("uneven".into()),
                false => WorldFinding::Held,
            })
        });
        (drawn.unwrap(), run)
    }

    #[test]
    fn for_each_void_world_another_one_is_drawn() {
        let (worlds, run) = drawn(4, |seed| seed == 100 || seed == 103);
        assert_eq!(run, [100, 101, 102, 103, 104, 105]);
        assert_eq!(worlds, DrawnWorlds { held: 4, broken: Vec::new(), void: vec![100, 103] });
        assert!(worlds.conclude(4, 100).is_ok());
    }

    #[test]
    fn nothing_is_proven_if_too_few_of_twice_as_many_worlds_can_be_judged() {
        let (worlds, run) = drawn(4, |seed| seed < 105);
        assert_eq!((worlds.held, run.len()), (3, 8));
        let why = worlds.conclude(4, 100).unwrap_err().to_string();
        assert!(why.starts_with("only 3 of 4 worlds could be judged, 5 are void"), "{why}");
    }

    #[test]
    fn a_world_that_breaks_a_bound_counts_as_judged_and_proves_nothing() {
        let broken = |seed| match seed {
            101 => WorldFinding::Broken(vec!["p50".into()]),
            _ => WorldFinding::Held,
        };
        let worlds = draw_until_judged(2, 100, |seed| Ok(broken(seed))).unwrap();
        assert_eq!(worlds, DrawnWorlds { held: 1, broken: vec![101], void: Vec::new() });
        let why = worlds.conclude(2, 100).unwrap_err().to_string();
        assert_eq!(why, "bounds broke in 1 of 2 worlds: [101]");
    }
}
