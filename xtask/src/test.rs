//! `cargo xtask test`: all checks that a change must pass, in one command.

use std::time::Instant;

use anyhow::Result;

use crate::{channels, sdk, shell, supply, tools};

const STEPS: [&[&str]; 4] = [
    &["cargo", "fmt", "--all", "--check"],
    &["cargo", "clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
    &["cargo", "test", "--workspace", "--no-fail-fast"],
    &["cargo", "test", "-p", "postrider-channels", "--features", "smpp", "smpp"],
];

pub(crate) fn run() -> Result<()> {
    let started = Instant::now();
    supply::check()?;
    tools::provide(tools::FOR_TESTS)?;
    for step in STEPS {
        shell::step(&shell::root(), step)?;
    }
    sdk::test()?;
    channels::check()?;
    eprintln!("\nAll checks passed, in {}.", shell::in_words(started.elapsed()));
    Ok(())
}
