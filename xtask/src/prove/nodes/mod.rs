//! Proves on the real binary that several nodes over one store keep the promises of one: an API node and three workers
//! deliver webhooks while workers are killed, connections end, the store restarts, the network is cut or clocks are
//! wrong.

pub(super) mod benchmark;
mod chaos;
mod cluster;
pub(super) mod engine;
mod options;
mod postgres;
mod process_cpu;
mod redis;
mod shared;
mod soak;
mod traffic;

use anyhow::{Result, bail};

use chaos::ChaosResult;
use options::NodeProofOptions;

/// `cargo xtask prove nodes [--only NAME …] [--messages N] [--engine NAME]`; `--only list` names them.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let options = NodeProofOptions::parse(args)?;
    let mut known = chaos::names(&options.engine)?;
    known.extend(shared::names());
    if options.only.iter().any(|name| name == "list") {
        known.iter().for_each(|name| println!("{name}"));
        return Ok(());
    }
    if let Some(unknown) = options.only.iter().find(|name| !known.contains(name)) {
        bail!("no proof of nodes is called {unknown:?}; known: {}", known.join(", "));
    }
    options.build()?;
    let chosen =
        |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let results = chaos::run(&options, chosen)?;
    if !results.is_empty() {
        println!(
            "\n{} messages each, on {}:\n{}",
            options.messages,
            options.engine,
            ChaosResult::HEADING
        );
        results.iter().for_each(|result| println!("{result}"));
    }
    let mut broken: Vec<_> = results.iter().flat_map(ChaosResult::failures).collect();
    let (lines, more) = shared::run(&options, chosen);
    lines.iter().for_each(|line| println!("{line}"));
    broken.extend(more);
    if !broken.is_empty() {
        bail!("broken:\n{}", broken.join("\n"));
    }
    Ok(())
}
