//! What a proof needs of an engine: a server of its own, and the faults that only this engine has. Another engine is
//! one more file and one more line of [`ENGINES`].

use std::time::Duration;

use anyhow::{Context as _, Result};
use postrider_testkit::stall_proxy::StallProxy;

use super::postgres::PostgresFixture;

/// A server of an engine that ends with the proof.
pub(super) trait EngineFixture {
    /// Where its store is.
    fn store_url(&self) -> String;

    /// The same over a network that can be cut.
    fn store_behind_proxy(&self) -> Result<(String, Vec<StallProxy>)>;

    /// What can happen to a server of this kind.
    fn faults(&self) -> Vec<EngineFault>;

    /// How many bytes the server has written for its own safety so far: its journal.
    fn written_bytes(&self) -> Result<u64>;

    /// How much processor time the server has used so far.
    fn cpu(&self) -> Result<Duration>;
}

/// Something that happens to an engine's server while nodes work with it.
pub(super) struct EngineFault {
    pub(super) name: &'static str,
    pub(super) promise: &'static str,
    /// The time between two of them; `None` if it happens once.
    pub(super) every: Option<Duration>,
    /// Whether calls that were under way may be repeated by it.
    pub(super) may_repeat: bool,
    /// How long it lasts at least, for those that last.
    pub(super) lasts: Duration,
    pub(super) act: Box<dyn Fn() -> Result<()>>,
}

type StartEngine = fn(&EngineTimes) -> Result<Box<dyn EngineFixture>>;

/// Durations that a proof was asked for.
pub(super) struct EngineTimes {
    pub(super) snapshot: Duration,
}

struct EngineEntry {
    name: &'static str,
    start: StartEngine,
    /// The names of its faults, in their order.
    faults: &'static [&'static str],
}

const ENGINES: &[EngineEntry] = &[EngineEntry {
    name: "postgres",
    start: PostgresFixture::start,
    faults: PostgresFixture::FAULTS,
}];

fn entry(name: &str) -> Result<&'static EngineEntry> {
    let known: Vec<_> = ENGINES.iter().map(|entry| entry.name).collect();
    let found = ENGINES.iter().find(|entry| entry.name == name);
    found.with_context(|| format!("no engine {name:?}; known: {}", known.join(", ")))
}

pub(super) fn start(name: &str, times: &EngineTimes) -> Result<Box<dyn EngineFixture>> {
    (entry(name)?.start)(times)
}

/// The names of an engine's faults. Starts nothing.
pub(super) fn fault_names(name: &str) -> Result<&'static [&'static str]> {
    Ok(entry(name)?.faults)
}
