//! Runs the kill test at full size: 100 000 messages, ten kills, release build.

use anyhow::{Context, Result};

use crate::shell;

/// `args` go to the test runner.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let test = [
        "cargo",
        "test",
        "--release",
        "-p",
        "postrider",
        "--test",
        "crash",
        "--",
        "killed",
        "--nocapture",
    ];
    let line: Vec<&str> = ["env", "POSTRIDER_KILL_MESSAGES=100000", "POSTRIDER_KILLS=10"]
        .iter()
        .chain(&test)
        .chain(args)
        .copied()
        .collect();
    shell::step(&shell::root(), &line).context("a message was lost, or repeated too often")?;
    eprintln!("\nProven: ten kills, nothing lost, every repeat under its own delivery id.");
    Ok(())
}
