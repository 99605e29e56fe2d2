//! The simulation of every run, at full size: 20 000 seeds, each twice, over both stores.

use anyhow::{Context, Result};

use crate::shell;

/// `args` go to the simulator, e.g. `--seeds 1000 --from 50000`.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let simulator = ["cargo", "run", "--release", "-p", "postrider-sim", "--"];
    let usual = ["--seeds", "20000", "--store", "both"];
    let args = if args.is_empty() { &usual } else { args };
    let line: Vec<&str> = simulator.iter().chain(args).copied().collect();
    shell::step(&shell::root(), &line).context("a promise was broken, or a seed did not repeat")?;
    eprintln!("\nProven: every seed kept every promise, and repeated itself.");
    Ok(())
}
