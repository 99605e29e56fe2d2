//! Runs the simulation at full size: 20 000 seeds, each twice, over both stores. The seeds are fresh each
//! time; where they start is printed, so that a run can be repeated.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::shell;

/// Seeds that the tests run are left out.
const FIRST: u64 = 1_000_000;

/// `args` go to the simulator, e.g. `--seeds 1000 --from 50000`, or `harm --seeds 10000`. Without `--from`
/// or `--seed`, fresh seeds are drawn.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let default_args = ["--seeds", "20000", "--store", "both"];
    let args = if args.is_empty() { &default_args } else { args };
    let from = fresh_seed()?.to_string();
    let chosen = ["--from", "--seed", "--mutate", "--ablate"];
    let names_seeds =
        args.iter().any(|arg| chosen.contains(&arg.split('=').next().unwrap_or_default()));
    let fresh = if names_seeds { vec![] } else { vec!["--from", &from] };
    let simulator = ["cargo", "run", "--release", "-p", "postrider-sim", "--"];
    let line: Vec<&str> = simulator.iter().chain(args).chain(&fresh).copied().collect();
    shell::step(&shell::root(), &line)
        .context("an invariant was broken, or a seed did not repeat itself")?;
    match names_seeds {
        true => eprintln!("\nProven: every seed kept every invariant."),
        false => eprintln!("\nProven for fresh seeds from {from} on."),
    }
    Ok(())
}

/// A first seed that hardly anybody has used before.
pub(super) fn fresh_seed() -> Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(FIRST + now.as_micros() as u64 % 1_000_000_000_000)
}
