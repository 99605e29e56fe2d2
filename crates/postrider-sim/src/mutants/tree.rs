//! A copy of the sources in which lines are changed, and its own folder to build in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// `from` must occur in the file exactly once.
pub(super) struct MutantPatch {
    pub(super) file: &'static str,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

pub(super) const fn patch(file: &'static str, from: &'static str, to: &'static str) -> MutantPatch {
    MutantPatch { file, from, to }
}

pub(super) struct MutantTree {
    tree: PathBuf,
    target: PathBuf,
}

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl MutantTree {
    pub(super) fn open() -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let folder = target.map_or(root().join("target"), PathBuf::from).join("sim-mutants");
        // A separate folder: cargo would confuse the copy's crates with those of the tree.
        Self { tree: folder.join("tree"), target: folder.join("build") }
    }

    /// Makes the copy equal to the tree. Skips unchanged files, so that cargo rebuilds little.
    pub(super) fn restore(&self) -> Result<()> {
        for part in ["Cargo.toml", "Cargo.lock", "crates", "xtask"] {
            copy(&root().join(part), &self.tree.join(part)).with_context(|| part.to_owned())?;
        }
        Ok(())
    }

    /// Makes the copy equal to the tree but for these changes.
    pub(super) fn apply(&self, patches: &[&MutantPatch]) -> Result<()> {
        self.restore()?;
        for MutantPatch { file, from, to } in patches {
            let path = self.tree.join(file);
            let text = fs::read_to_string(&path).with_context(|| (*file).to_owned())?;
            let found = text.matches(from).count();
            ensure!(
                found == 1,
                "{file}: the line to change occurs {found} times, but must occur once:\n{from}"
            );
            fs::write(&path, text.replace(from, to))?;
        }
        Ok(())
    }

    /// Cargo in the copy.
    pub(super) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(args).current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// The optimised simulator of the copy.
    pub(super) fn build_simulator(&self) -> Result<PathBuf> {
        // Incremental, because each change concerns a few lines.
        let output = self
            .cargo(&["build", "--quiet", "--release", "-p", "postrider-sim"])
            .env("CARGO_INCREMENTAL", "1")
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the changed tree does not build:\n{errors}");
        let name = format!("postrider-sim{}", std::env::consts::EXE_SUFFIX);
        Ok(self.target.join("release").join(name))
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        remove_others(from, to)?;
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

/// Removes what the folder of the tree does not have any more.
fn remove_others(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(to)? {
        let path = entry?.path();
        let is_there = path.file_name().is_some_and(|name| from.join(name).exists());
        match is_there {
            true => {}
            false if path.is_dir() => fs::remove_dir_all(&path)?,
            false => fs::remove_file(&path)?,
        }
    }
    Ok(())
}
