//! Runs the test of backup and restore at full size: 1 000 accepts per second, release build.

use anyhow::{Context, Result};

use crate::shell;

/// `args` go to the test runner.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let size = ["POSTRIDER_BACKUP_SECONDS=20", "POSTRIDER_BACKUP_PER_S=1000"];
    let test = ["cargo", "test", "--release", "-p", "postrider", "--test", "copies", "--"];
    let line: Vec<&str> = ["env"]
        .iter()
        .chain(&size)
        .chain(&test)
        .chain(&["a_backup_under_load", "--nocapture"])
        .chain(args)
        .copied()
        .collect();
    shell::step(&shell::root(), &line).context("something is missing, or was sent too early")?;
    eprintln!(
        "\nProven: a backup under load has everything, and sends nothing until it is released."
    );
    Ok(())
}
