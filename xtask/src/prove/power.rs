//! Runs the test of power cuts at full size: 500 cuts at random points, release build.

use anyhow::{Context, Result};

use crate::shell;

/// `args` go to the test runner.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let size = ["POSTRIDER_POWER_CUTS=500", "POSTRIDER_POWER_MESSAGES=1000"];
    let test = ["cargo", "test", "--release", "-p", "postrider", "--test", "faults", "--"];
    let line: Vec<&str> = ["env"]
        .iter()
        .chain(&size)
        .chain(&test)
        .chain(&["power_cut", "--nocapture"])
        .chain(args)
        .copied()
        .collect();
    shell::step(&shell::root(), &line).context("something acknowledged was lost")?;
    eprintln!("\nProven: 500 power cuts, and every acknowledged message is there.");
    Ok(())
}
