//! Runs the demo, which checks every promise that it shows. It must pass within a minute.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::shell;

const LIMIT: Duration = Duration::from_secs(60);

/// `args` go to the demo, e.g. `--seed 7`.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let root = shell::root();
    shell::step(&root, &["cargo", "build", "--release"])?;
    let demo = ["cargo", "run", "--release", "--quiet", "--", "demo", "--exit"];
    let line: Vec<&str> = demo.iter().chain(args).copied().collect();
    let started = Instant::now();
    shell::step(&root, &line).context("a promise of the demo was broken")?;
    let taken = started.elapsed();
    ensure!(taken < LIMIT, "the demo took {}, a minute is allowed", shell::in_words(taken));
    eprintln!("\nProven: every promise held, in {}.", shell::in_words(taken));
    Ok(())
}
