//! Runs the test with a foreign reader at full size: 500 accepts per second for a minute, release build.

use anyhow::{Context, Result};

use crate::shell;

/// `args` go to the test runner.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let size =
        ["POSTRIDER_READER_SECONDS=60", "POSTRIDER_READER_PER_S=500", "POSTRIDER_READER_P99_MS=20"];
    let test = ["cargo", "test", "--release", "-p", "postrider", "--test", "faults", "--"];
    let line: Vec<&str> = ["env"]
        .iter()
        .chain(&size)
        .chain(&test)
        .chain(&["foreign_reader", "--nocapture"])
        .chain(args)
        .copied()
        .collect();
    shell::step(&shell::root(), &line).context("accepts waited for a foreign reader")?;
    eprintln!("\nProven: a program that reads the data file delays nobody.");
    Ok(())
}
