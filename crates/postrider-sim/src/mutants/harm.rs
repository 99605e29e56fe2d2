//! Changes rules in a copy of the tree and counts the worlds that break a bound with the change and do not
//! without it: old rules that must be found, and rules that are taken out to see what they are for.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};

use super::ablations::ablations;
use super::harm_mutants::HARM_MUTANTS;
use super::tree::{MutantPatch, MutantTree};

/// A rule that is replaced or taken out.
pub(super) struct RuleChange {
    pub(super) name: &'static str,
    /// The rule put in its place, or the rule taken out.
    pub(super) rule: &'static str,
    pub(super) patches: &'static [MutantPatch],
}

/// The worlds that are run.
#[derive(Debug, Clone, Copy)]
pub struct HarmSeeds {
    pub from: u64,
    pub seeds: u64,
    /// Worlds in which all share little.
    pub dense: bool,
    /// So many that break a bound are enough.
    pub enough: Option<usize>,
}

/// The bounds that each seed breaks.
type BrokenSeeds = BTreeMap<u64, Vec<String>>;

/// How the worlds with a change differ from those without it.
struct ChangeEffect {
    newly_broken: Vec<u64>,
    no_longer: usize,
    /// In the newly broken worlds, most often first.
    bounds: Vec<(String, usize)>,
}

const FIRST_FRESH: u64 = 1_000_000;

/// Builds the named old rule (`all` for every one) and requires that more of the seeds break a bound with
/// it than without it.
pub fn mutate_harm(name: &str, worlds: HarmSeeds) -> Result<()> {
    let Some(chosen) = choose(name, HARM_MUTANTS.iter())? else { return Ok(()) };
    let HarmSeeds { from, seeds, .. } = worlds;
    println!("{seeds} seeds from {from} on");
    let (tree, reference) = reference(worlds)?;
    let mut survivors = Vec::new();
    for mutants in chosen {
        let effect = effect_of(&mutants, &tree, &reference, worlds)?;
        let rule = mutants.iter().map(|mutant| mutant.rule).collect::<Vec<_>>().join("; ");
        if effect.newly_broken.len() <= effect.no_longer {
            survivors.push(rule);
            continue;
        }
        let (found, first) = (effect.newly_broken.len(), effect.newly_broken[0]);
        println!("found: {rule:<52} by {found} seeds, first {first}; {effect}");
    }
    tree.restore()?;
    ensure!(survivors.is_empty(), "{seeds} seeds did not find: {}", survivors.join("; "));
    Ok(())
}

/// Takes the named rule out (`all` for each in turn, rules joined by `+` at the same time) and prints what breaks
/// without it, as a table.
pub fn ablate_harm(name: &str, worlds: HarmSeeds) -> Result<()> {
    let Some(chosen) = choose(name, ablations())? else { return Ok(()) };
    let HarmSeeds { from, seeds, .. } = worlds;
    let (tree, reference) = reference(worlds)?;
    println!(
        "Of {seeds} seeds from {from} on, {} break a bound with all rules.\n",
        reference.len()
    );
    println!(
        "| rule taken out | newly broken | no longer | most often broken |\n|---|--:|--:|---|"
    );
    for group in chosen {
        let rules: Vec<_> = group.iter().map(|change| change.rule).collect();
        let rules = rules.join("; ");
        match effect_of(&group, &tree, &reference, worlds) {
            Ok(effect) => {
                let (newly, no_longer) = (effect.newly_broken.len(), effect.no_longer);
                println!("| {rules} | {newly} | {no_longer} | {effect} |");
                eprintln!("newly broken: {:?}", effect.newly_broken);
            }
            Err(error) => println!("| {rules} | does not run: {error:#} | | |"),
        }
    }
    tree.restore()
}

/// Rules that are changed at the same time.
type RuleGroup = Vec<&'static RuleChange>;

/// Nothing if the names were only to be listed. Groups are separated by commas, the names of a group by `+`.
fn choose(
    name: &str,
    list: impl Iterator<Item = &'static RuleChange>,
) -> Result<Option<Vec<RuleGroup>>> {
    let list: RuleGroup = list.collect();
    match name {
        "list" => {
            list.iter().for_each(|change| println!("{:<18} {}", change.name, change.rule));
            return Ok(None);
        }
        "all" => return Ok(Some(list.into_iter().map(|change| vec![change]).collect())),
        _ => {}
    }
    let find = |name: &str| {
        let found = list.iter().copied().find(|change| change.name == name);
        found.with_context(|| format!("no rule is called {name:?}; `list` prints their names"))
    };
    name.split(',')
        .map(|group| group.split('+').map(find).collect())
        .collect::<Result<_>>()
        .map(Some)
}

/// What the unchanged tree breaks, in all worlds.
fn reference(worlds: HarmSeeds) -> Result<(MutantTree, BrokenSeeds)> {
    let tree = MutantTree::open();
    tree.restore()?;
    let reference = run(&tree, HarmSeeds { enough: None, ..worlds })?;
    Ok((tree, reference))
}

fn effect_of(
    changes: &[&RuleChange],
    tree: &MutantTree,
    reference: &BrokenSeeds,
    worlds: HarmSeeds,
) -> Result<ChangeEffect> {
    let patches: Vec<_> = changes.iter().flat_map(|change| change.patches).collect();
    tree.apply(&patches)?;
    // Worlds that break anyway do not count.
    let enough = worlds.enough.map(|enough| enough + reference.len());
    let names = || changes.iter().map(|change| change.name).collect::<Vec<_>>().join("+");
    let broken = run(tree, HarmSeeds { enough, ..worlds }).with_context(names)?;
    Ok(ChangeEffect::new(&broken, reference))
}

fn run(tree: &MutantTree, worlds: HarmSeeds) -> Result<BrokenSeeds> {
    let HarmSeeds { from, seeds, dense, enough } = worlds;
    let output = Command::new(tree.build_simulator()?)
        .args(["harm", "--from", &from.to_string(), "--seeds", &seeds.to_string()])
        .args(dense.then_some("--dense"))
        .args(enough.map(|enough| format!("--enough={enough}")))
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let ended = text.lines().last().is_some_and(|line| line.contains(" broke a bound: "));
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(ended, "the simulator stopped: {}", errors.lines().next().unwrap_or_default());
    Ok(parse(&text))
}

/// Reads the reports of worlds that broke a bound.
fn parse(text: &str) -> BrokenSeeds {
    let mut broken = BrokenSeeds::new();
    let mut seed = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("seed ") {
            seed = rest.split([':', ' ']).next().and_then(|number| number.parse().ok());
        } else if let (Some(rest), Some(seed)) = (line.strip_prefix("  BROKEN "), seed) {
            let bound = rest.split(": ").next().unwrap_or(rest);
            broken.entry(seed).or_default().push(bound.to_owned());
        }
    }
    broken
}

impl HarmSeeds {
    /// Seeds that hardly anybody has used before; those of the tests are left out.
    pub fn fresh_start() -> Result<u64> {
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        Ok(FIRST_FRESH + now.as_micros() as u64 % 1_000_000_000_000)
    }
}

impl ChangeEffect {
    fn new(broken: &BrokenSeeds, reference: &BrokenSeeds) -> Self {
        let newly: Vec<_> =
            broken.iter().filter(|(seed, _)| !reference.contains_key(seed)).collect();
        let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
        for (_, bounds) in &newly {
            bounds.iter().for_each(|bound| *counts.entry(bound).or_default() += 1);
        }
        let mut bounds: Vec<_> =
            counts.into_iter().map(|(bound, seeds)| (bound.clone(), seeds)).collect();
        bounds.sort_by_key(|(_, seeds)| std::cmp::Reverse(*seeds));
        Self {
            newly_broken: newly.into_iter().map(|(seed, _)| *seed).collect(),
            no_longer: reference.keys().filter(|seed| !broken.contains_key(seed)).count(),
            bounds,
        }
    }
}

/// The bounds that broke most often.
impl std::fmt::Display for ChangeEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let most = self.bounds.iter().take(3).map(|(bound, seeds)| format!("{bound} ({seeds})"));
        f.write_str(&most.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harm::{BrokenBound, HarmReport};

    fn report(seed: u64, bounds: &[&'static str]) -> String {
        let broken = |bound: &&'static str| BrokenBound { bound, detail: "5 ms: too long".into() };
        let report = HarmReport {
            seed,
            variant: None,
            world: "2 tenants: some sick".into(),
            figures: Default::default(),
            broken: bounds.iter().map(broken).collect(),
            held_by: vec![("a gate".into(), 1)],
        };
        format!("{report}\n")
    }

    #[test]
    fn a_report_is_read_as_it_is_printed() {
        let text = [report(7, &["p50 of the wait", "dead letters"]), report(8, &[])].concat();
        let bounds = vec!["p50 of the wait".to_owned(), "dead letters".to_owned()];
        assert_eq!(parse(&text), BrokenSeeds::from([(7, bounds)]));
    }

    #[test]
    fn only_worlds_that_hold_without_the_change_count() {
        let with = parse(&[report(1, &["a"]), report(2, &["a", "b"]), report(4, &["b"])].concat());
        let without = parse(&[report(1, &["a"]), report(3, &["a"])].concat());
        let effect = ChangeEffect::new(&with, &without);
        assert_eq!((&*effect.newly_broken, effect.no_longer), (&[2, 4][..], 1));
        assert_eq!(effect.to_string(), "b (2), a (1)");
    }
}
