//! Runs the kill test at full size: 100 000 messages, ten kills, release build.

use anyhow::{Context, Result};

use crate::shell;

/// `--messages N` and `--kills N` choose another size; the other `args` go to the test runner.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let (mut messages, mut kills, mut rest) = ("100000", "10", Vec::new());
    let mut words = args.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "--messages" => messages = words.next().context("--messages needs a number")?,
            "--kills" => kills = words.next().context("--kills needs a number")?,
            other => rest.push(other),
        }
    }
    let (sizes, counts) =
        (format!("POSTRIDER_KILL_MESSAGES={messages}"), format!("POSTRIDER_KILLS={kills}"));
    let test = ["cargo", "test", "--release", "-p", "postrider", "--test", "crash", "--"];
    let line: Vec<&str> = ["env", &sizes, &counts]
        .iter()
        .chain(&test)
        .chain(&["killed", "--nocapture"])
        .chain(&rest)
        .copied()
        .collect();
    shell::step(&shell::root(), &line).context("a message was lost, or repeated too often")?;
    eprintln!("\nProven: {kills} kills, nothing lost, every repeat under its own delivery id.");
    Ok(())
}
