//! One message per channel through the real server and sandbox, and the table of what arrived in each provider's
//! TTL field.

use anyhow::{Context, Result};

use crate::shell;

const RUN: [&str; 11] = [
    "cargo",
    "test",
    "-p",
    "postrider",
    "--test",
    "channels",
    "--quiet",
    "--",
    "every_channel::",
    "--nocapture",
    "--test-threads=1",
];

pub(super) fn run(_args: &[&str]) -> Result<()> {
    shell::step(&shell::root(), &RUN).context("a channel did not send the TTL of its message")?;
    eprintln!("\nProven: one message per channel, each seen once and with its TTL.");
    Ok(())
}
