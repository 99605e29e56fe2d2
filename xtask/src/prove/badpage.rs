//! Runs two stores with a million pending deliveries each, one of them with bad pages, release build.

use anyhow::{Context, Result};

use super::sim::fresh_seed;
use crate::shell;

/// Then 100 stores, each with another page that cannot be read. `args` go to the first run: `--pending N`, `--dir DIR`.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let run =
        ["cargo", "run", "--release", "-p", "postrider-store", "--example", "store_bad_page", "--"];
    let line: Vec<&str> = run.iter().chain(args).copied().collect();
    shell::step(&shell::root(), &line).context("a bad page slows the others down")?;
    let from = format!("POSTRIDER_UNREADABLE_FROM={}", fresh_seed()?);
    let seeds = ["env", "POSTRIDER_UNREADABLE_SEEDS=100", &from];
    let test = ["cargo", "test", "--release", "-p", "postrider-store", "--test", "unreadable"];
    let line: Vec<&str> = seeds.iter().chain(&test).copied().collect();
    println!("100 pages of any table, {from}");
    shell::step(&shell::root(), &line).context("a page that cannot be read stops others")?;
    eprintln!("\nProven: a bad page touches what is on it, and nothing else.");
    Ok(())
}
