//! Builds known bugs into a copy of the tree and checks that the simulation finds them. Never changes
//! the tree itself.

mod ablations;
mod harm;
mod harm_mutants;
mod list;
mod tree;

use anyhow::{Result, bail, ensure};

pub use harm::{HarmSeeds, ablate_harm, mutate_harm};
use list::{MUTANTS, SimMutant};
use tree::MutantTree;

/// Builds the named bug (`all` for every one) and requires that `seeds` seeds find it.
pub fn mutate(name: &str, seeds: u64) -> Result<()> {
    if name == "list" {
        MUTANTS.iter().for_each(|mutant| println!("{:<12} {}", mutant.name, mutant.bug));
        return Ok(());
    }
    let chosen: Vec<_> = MUTANTS.iter().filter(|m| name == "all" || m.name == name).collect();
    let names: Vec<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    ensure!(!chosen.is_empty(), "no bug is called {name:?}; known: all, {}", names.join(", "));
    let tree = MutantTree::open();
    let mut survivors = Vec::new();
    for mutant in chosen {
        tree.apply(&mutant.patches.iter().collect::<Vec<_>>())?;
        for store in mutant.stores {
            match find(mutant, store, &tree, seeds)? {
                Some(found) => println!("found: {:<42} {found}", mutant.bug),
                None => survivors.push(format!("{} (over {store})", mutant.bug)),
            }
        }
    }
    tree.restore()?;
    ensure!(survivors.is_empty(), "{seeds} seeds did not find: {}", survivors.join("; "));
    Ok(())
}

/// The line that names seed and invariant; none if the bug was not found.
fn find(mutant: &SimMutant, store: &str, tree: &MutantTree, seeds: u64) -> Result<Option<String>> {
    let output = tree
        .cargo(&["run", "--quiet", "-p", "postrider-sim", "--", "--once"])
        .args(["--seeds", &seeds.to_string(), "--store", store])
        .output()?;
    if output.status.success() {
        return Ok(None);
    }
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    let Some(line) =
        answer.lines().find(|line| line.starts_with("seed ") && line.contains(" broke: "))
    else {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{} does not build or run:\n{error}", mutant.name);
    };
    Ok(Some(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;

    use super::ablations::ablations;
    use super::harm_mutants::HARM_MUTANTS;
    use super::*;

    #[test]
    fn every_line_to_change_occurs_once() {
        let of_harm = HARM_MUTANTS.iter().chain(ablations()).flat_map(|change| change.patches);
        let mut others = Vec::new();
        for patch in MUTANTS.iter().flat_map(|mutant| mutant.patches).chain(of_harm) {
            let text = fs::read_to_string(tree::root().join(patch.file)).expect(patch.file);
            let count = text.matches(patch.from).count();
            if count != 1 {
                others.push(format!("{}: {count} times: {}", patch.file, patch.from));
            }
            assert_ne!(patch.from, patch.to, "{}", patch.file);
        }
        assert!(others.is_empty(), "{}", others.join("\n"));
    }

    #[test]
    fn no_two_changes_have_the_same_name() {
        let lists = [HARM_MUTANTS.iter().collect::<Vec<_>>(), ablations().collect()];
        for list in lists {
            let names: HashSet<_> = list.iter().map(|change| change.name).collect();
            assert_eq!(names.len(), list.len());
        }
    }
}
