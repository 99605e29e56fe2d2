//! Runs the simulation at full size: 20 000 seeds, each twice, over both stores.

use anyhow::{Context, Result};

use crate::shell;

/// `args` go to the simulator, e.g. `--seeds 1000 --from 50000`.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let simulator = ["cargo", "run", "--release", "-p", "postrider-sim", "--"];
    let default_args = ["--seeds", "20000", "--store", "both"];
    let args = if args.is_empty() { &default_args } else { args };
    let line: Vec<&str> = simulator.iter().chain(args).copied().collect();
    shell::step(&shell::root(), &line)
        .context("an invariant was broken, or a seed did not repeat itself")?;
    eprintln!("\nProven: every seed kept every invariant and repeated itself.");
    Ok(())
}
