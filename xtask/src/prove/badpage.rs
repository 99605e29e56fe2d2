//! Runs two stores with a million pending deliveries each, one of them with bad pages, release build.

use anyhow::{Context, Result};

use crate::shell;

/// `args` go to the run: `--pending N`, `--dir DIR`.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let run =
        ["cargo", "run", "--release", "-p", "postrider-store", "--example", "store_bad_page", "--"];
    let line: Vec<&str> = run.iter().chain(args).copied().collect();
    shell::step(&shell::root(), &line).context("a bad page slows the others down")?;
    eprintln!("\nProven: a bad page touches what is on it, and nothing else.");
    Ok(())
}
