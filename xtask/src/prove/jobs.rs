//! Runs the test of jobs at full size: 100 000 dead letters are replayed while the server is killed, release build.

use anyhow::{Context, Result};

use crate::shell;

/// `--deliveries N` and `--kills N` choose another size; the other `args` go to the test runner.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let (mut deliveries, mut kills, mut rest) = ("100000", "10", Vec::new());
    let mut words = args.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "--deliveries" => deliveries = words.next().context("--deliveries needs a number")?,
            "--kills" => kills = words.next().context("--kills needs a number")?,
            other => rest.push(other),
        }
    }
    let (sizes, counts) =
        (format!("POSTRIDER_JOB_DELIVERIES={deliveries}"), format!("POSTRIDER_JOB_KILLS={kills}"));
    let test = ["cargo", "test", "--release", "-p", "postrider", "--test", "crash", "--"];
    let line: Vec<&str> = ["env", &sizes, &counts]
        .iter()
        .chain(&test)
        .chain(&["each_dead_letter_is_replayed_once", "--nocapture"])
        .chain(&rest)
        .copied()
        .collect();
    shell::step(&shell::root(), &line).context("a dead letter was not replayed, or twice")?;
    eprintln!("\nProven: {kills} kills, {deliveries} dead letters, each replayed once.");
    Ok(())
}
