//! Memory for what a server remembers about many lanes, sick addresses and connections. Each part runs on a server of
//! its own.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use postrider_testkit::http::TestConnection;

use super::super::fixture::{HarmFixture, ProviderPorts};
use super::super::options::HarmProofOptions;
use super::super::traffic::{DueDestination, DueMessage, DuePort, send_all};

const LANE_TENANTS: u64 = 1_000;
const LANE_ORIGINS: u64 = 100;
const SICK: u64 = 65_536;
/// A tenant may have a quarter of them at most.
const SICK_TENANTS: u64 = 4;
/// Paths that work, for each call to one that does not: the tenant stays well.
const WELL_PER_SICK: u64 = 5;
const WELL_PATHS: u64 = 1_000;
/// Failures in a row that make an address sick.
const ROUNDS: u64 = 3;
/// Connections that fit into the limit of open files, if that is not lower.
const CONNECTIONS: u64 = 20_000;
/// What a lane, a sick address and a connection with its origin and lane may take, with what the allocator keeps.
const LANE_BYTES_MAX: u64 = 4_500;
const SICK_BYTES_MAX: u64 = 3_000;
const CONNECTION_BYTES_MAX: u64 = 36_000;
const PATIENCE: Duration = Duration::from_secs(120);

const ALWAYS_503: &str = "[[rule]]\nfault = \"503\"\nname = \"bad-\"\n";

pub(super) fn of_lanes_addresses_and_connections(options: &HarmProofOptions) -> Result<String> {
    let parts = [lanes(options)?, sick_addresses(options)?, connections(options)?];
    let shown: Vec<String> = parts.iter().map(MemoryOfPart::shown).collect();
    let figures = shown.join("; ");
    ensure!(parts.iter().all(|part| part.grown() < part.count * part.each_max), "{figures}");
    Ok(figures)
}

/// What a server took before and after it learned about many things of one kind.
struct MemoryOfPart {
    count: u64,
    each_max: u64,
    what: &'static str,
    before: u64,
    after: u64,
}

impl MemoryOfPart {
    fn grown(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    fn shown(&self) -> String {
        let (grown, count) = (self.grown(), self.count);
        let (before, after, each) =
            (self.before / 1_000_000, self.after / 1_000_000, grown / count.max(1));
        format!("{count} {}: {before} to {after} MB, {each} bytes each", self.what)
    }
}

/// Every lane was called once, and has a delivery that waits for its retry.
fn lanes(options: &HarmProofOptions) -> Result<MemoryOfPart> {
    let config = |_| {
        "[classes.later]\nretry = { kind = \"schedule\", schedule_ms = [3600000] }\n".to_owned()
    };
    let fixture = HarmFixture::start(options, ALWAYS_503, config)?;
    let before = fixture.memory()?;
    let count = LANE_TENANTS * LANE_ORIGINS;
    let messages: Vec<_> = (0..LANE_TENANTS)
        .flat_map(|tenant| (0..LANE_ORIGINS).map(move |origin| (tenant, origin)))
        .map(|(tenant, origin)| to_path(tenant, origin, format!("bad-{tenant}"), "later"))
        .collect();
    send_all(&fixture, &messages)?;
    await_metric(&fixture, "postrider_deliveries{outcome=\"retrying\"}", count)?;
    Ok(MemoryOfPart {
        count,
        each_max: LANE_BYTES_MAX,
        what: "lanes",
        before,
        after: fixture.memory()?,
    })
}

/// Each address failed three times in a row while others of its tenant worked.
fn sick_addresses(options: &HarmProofOptions) -> Result<MemoryOfPart> {
    let config = |_: ProviderPorts| "[classes.once]\nretry = { retries = 0 }\n".to_owned();
    let fixture = HarmFixture::start(options, ALWAYS_503, config)?;
    let before = fixture.memory()?;
    let mut sent = 0;
    for _ in 0..ROUNDS {
        let messages: Vec<_> = (0..SICK_TENANTS).flat_map(round_of_tenant).collect();
        sent += messages.len() as u64;
        send_all(&fixture, &messages)?;
        await_ended(&fixture, sent)?;
    }
    Ok(MemoryOfPart {
        count: SICK,
        each_max: SICK_BYTES_MAX,
        what: "sick addresses",
        before,
        after: fixture.memory()?,
    })
}

fn round_of_tenant(tenant: u64) -> impl Iterator<Item = DueMessage> {
    (0..SICK / SICK_TENANTS).flat_map(move |n| {
        let well = (0..WELL_PER_SICK)
            .map(move |m| format!("good-{}", (n * WELL_PER_SICK + m) % WELL_PATHS));
        well.chain([format!("bad-{n}")]).map(move |name| to_path(tenant, tenant, name, "once"))
    })
}

/// One connection to each of many origins, kept open.
fn connections(options: &HarmProofOptions) -> Result<MemoryOfPart> {
    let fixture = HarmFixture::start(options, "", |_| String::new())?;
    let before = fixture.memory()?;
    let messages: Vec<_> = (0..CONNECTIONS)
        .map(|origin| to_path(0, origin, "good".to_owned(), "transactional"))
        .collect();
    send_all(&fixture, &messages)?;
    await_ended(&fixture, CONNECTIONS)?;
    let (count, after) = (metric(&fixture, "postrider_connections")?, fixture.memory()?);
    Ok(MemoryOfPart { count, each_max: CONNECTION_BYTES_MAX, what: "connections", before, after })
}

fn to_path(tenant: u64, origin: u64, name: String, class: &'static str) -> DueMessage {
    let destination = DueDestination::Hook { origin: origin as u32, name, port: DuePort::Plain };
    DueMessage { due_ms: 0, tenant: tenant as u32, class, destination, healthy: true }
}

/// Waits until so many deliveries were sent or given up.
fn await_ended(fixture: &HarmFixture, count: u64) -> Result<()> {
    let ended = || -> Result<u64> {
        Ok(metric(fixture, "postrider_deliveries{outcome=\"sent\"}")?
            + metric(fixture, "postrider_deliveries{outcome=\"failed\"}")?)
    };
    await_count(ended, count)
}

fn await_metric(fixture: &HarmFixture, name: &str, count: u64) -> Result<()> {
    await_count(|| metric(fixture, name), count)
}

fn await_count(now: impl Fn() -> Result<u64>, count: u64) -> Result<()> {
    let (began, mut known) = (Instant::now(), now()?);
    while known < count {
        ensure!(began.elapsed() < PATIENCE, "{known} of {count} after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(200));
        known = now()?;
    }
    Ok(())
}

/// The present value of a metric without more labels than those in its name.
fn metric(fixture: &HarmFixture, name: &str) -> Result<u64> {
    let text = TestConnection::open(fixture.server())?.call_ok("GET", "/metrics", None, "")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.and_then(|value| value.trim().parse::<f64>().ok()).unwrap_or(0.0) as u64)
}
