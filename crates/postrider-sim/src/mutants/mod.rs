//! Builds known bugs into a copy of the tree and checks that the simulation finds them. Never changes
//! the tree itself.

mod list;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use list::{MUTANTS, SimMutant};

/// Builds the named bug (`all` for every one) and requires that `seeds` seeds find it.
pub fn mutate(name: &str, seeds: u64) -> Result<()> {
    if name == "list" {
        MUTANTS.iter().for_each(|mutant| println!("{:<12} {}", mutant.name, mutant.bug));
        return Ok(());
    }
    let chosen: Vec<_> = MUTANTS.iter().filter(|m| name == "all" || m.name == name).collect();
    let names: Vec<_> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    ensure!(!chosen.is_empty(), "no bug is called {name:?}; known: all, {}", names.join(", "));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let tree = target.join("sim-mutants/tree");
    // A separate folder: cargo would confuse the copy's crates with those of the tree.
    let target = target.join("sim-mutants/build");
    let mut survivors = Vec::new();
    for mutant in chosen {
        copy_tree(&root, &tree)?;
        patch(mutant, &tree)?;
        for store in mutant.stores {
            match find(mutant, store, &tree, &target, seeds)? {
                Some(found) => println!("found: {:<42} {found}", mutant.bug),
                None => survivors.push(format!("{} (over {store})", mutant.bug)),
            }
        }
    }
    copy_tree(&root, &tree)?;
    ensure!(survivors.is_empty(), "{seeds} seeds did not find: {}", survivors.join("; "));
    Ok(())
}

/// Copies the sources. Skips unchanged files, so that cargo rebuilds little.
fn copy_tree(root: &Path, tree: &Path) -> Result<()> {
    for part in ["Cargo.toml", "Cargo.lock", "crates", "xtask"] {
        copy(&root.join(part), &tree.join(part)).with_context(|| part.to_owned())?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    let bytes = fs::read(from)?;
    to.parent().map_or(Ok(()), fs::create_dir_all)?;
    if fs::read(to).ok().as_ref() != Some(&bytes) {
        fs::write(to, bytes)?;
    }
    Ok(())
}

fn patch(mutant: &SimMutant, tree: &Path) -> Result<()> {
    for patch in mutant.patches {
        let path = tree.join(patch.file);
        let text = fs::read_to_string(&path).with_context(|| patch.file.to_owned())?;
        let found = text.matches(patch.from).count();
        ensure!(
            found == 1,
            "{}: the line to change occurs {found} times, but must occur once:\n{}",
            patch.file,
            patch.from
        );
        fs::write(&path, text.replace(patch.from, patch.to))?;
    }
    Ok(())
}

/// The line that names seed and invariant; none if the bug was not found.
fn find(
    mutant: &SimMutant,
    store: &str,
    tree: &Path,
    target: &Path,
    seeds: u64,
) -> Result<Option<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "-p", "postrider-sim", "--", "--once"])
        .args(["--seeds", &seeds.to_string(), "--store", store])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target)
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
    use super::*;

    #[test]
    fn every_line_to_change_occurs_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for patch in MUTANTS.iter().flat_map(|mutant| mutant.patches) {
            let text = fs::read_to_string(root.join(patch.file)).expect(patch.file);
            assert_eq!(text.matches(patch.from).count(), 1, "{}: {}", patch.file, patch.from);
        }
    }
}
