//! What a proof needs of an engine: a server of its own, and the faults that only this engine has. Another engine is
//! one more file and one more line of [`ENGINES`].

use std::time::Duration;

use anyhow::{Context as _, Result};
use postrider_testkit::stall_proxy::StallProxy;

use super::postgres::PostgresFixture;
use super::redis::{RedisClusterFixture, RedisFixture};

/// The name of the store of the proofs that need only one.
pub(super) const STORE: &str = "nodes";

/// A server of an engine that ends with the proof.
pub(in crate::prove) trait EngineFixture {
    /// Where a store of this name is. Each name is a store of its own.
    fn store_url_of(&self, name: &str) -> String;

    /// Where the store is whose sizes are looked at.
    fn store_url(&self) -> String {
        self.store_url_of(STORE)
    }

    /// The same over a network that can be cut.
    fn store_behind_proxy(&self) -> Result<(String, Vec<StallProxy>)>;

    /// What can happen to a server of this kind.
    fn faults(&self) -> Vec<EngineFault>;

    /// How many bytes the server has written for its own safety so far: its journal.
    fn written_bytes(&self) -> Result<u64>;

    /// How much processor time the server has used so far.
    fn cpu(&self) -> Result<Duration>;

    /// What must not grow while as much is delivered as is accepted.
    fn sizes(&self) -> Result<Vec<EngineSize>>;
}

/// Something that an engine has so much of: bytes of memory or tables, dead rows, keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::prove) struct EngineSize {
    pub(in crate::prove) what: String,
    pub(in crate::prove) size: u64,
    pub(in crate::prove) growth: SizeGrowth,
}

/// How a size may change while as much is delivered as is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::prove) enum SizeGrowth {
    /// It stays, give or take so much.
    Flat { slack: u64 },
    /// It has the history, too, and grows by at most so much for each delivery, always by the same.
    PerDelivery { at_most: u64 },
}

/// Something that happens to an engine's server while nodes work with it.
pub(in crate::prove) struct EngineFault {
    pub(in crate::prove) name: &'static str,
    pub(in crate::prove) promise: &'static str,
    /// The time between two of them; `None` if it happens once.
    pub(in crate::prove) every: Option<Duration>,
    /// Whether calls that were under way may be repeated by it.
    pub(in crate::prove) may_repeat: bool,
    /// How long it lasts at least, for those that last.
    pub(in crate::prove) lasts: Duration,
    pub(in crate::prove) act: Box<dyn Fn() -> Result<()>>,
}

type StartEngine = fn(&EngineTimes) -> Result<Box<dyn EngineFixture>>;

/// Durations that a proof was asked for.
pub(in crate::prove) struct EngineTimes {
    pub(in crate::prove) snapshot: Duration,
}

struct EngineEntry {
    name: &'static str,
    start: StartEngine,
    /// The names of its faults, in their order.
    faults: &'static [&'static str],
}

const ENGINES: &[EngineEntry] = &[
    EngineEntry {
        name: "postgres",
        start: PostgresFixture::start,
        faults: PostgresFixture::FAULTS,
    },
    EngineEntry { name: "redis", start: RedisFixture::start, faults: RedisFixture::FAULTS },
    EngineEntry {
        name: "redis-cluster",
        start: RedisClusterFixture::start,
        faults: RedisClusterFixture::FAULTS,
    },
];

fn entry(name: &str) -> Result<&'static EngineEntry> {
    let known: Vec<_> = ENGINES.iter().map(|entry| entry.name).collect();
    let found = ENGINES.iter().find(|entry| entry.name == name);
    found.with_context(|| format!("no engine {name:?}; known: {}", known.join(", ")))
}

pub(in crate::prove) fn start(name: &str, times: &EngineTimes) -> Result<Box<dyn EngineFixture>> {
    (entry(name)?.start)(times)
}

/// The names of an engine's faults. Starts nothing.
pub(in crate::prove) fn fault_names(name: &str) -> Result<&'static [&'static str]> {
    Ok(entry(name)?.faults)
}
