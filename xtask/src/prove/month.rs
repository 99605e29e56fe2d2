//! Runs thirty virtual days of one store, release build, with its data in a temporary folder.

use anyhow::{Context, Result};

use crate::shell;

/// `args` go to the run: `--messages N` (6 million; 100 million take hours), `--retention-days N`, `--dir DIR`.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let run =
        ["cargo", "run", "--release", "-p", "postrider-store", "--example", "store_month", "--"];
    let line: Vec<&str> = run.iter().chain(args).copied().collect();
    shell::step(&shell::root(), &line).context("something grows for ever")?;
    eprintln!("\nProven: the last days of the month are as the first.");
    Ok(())
}
