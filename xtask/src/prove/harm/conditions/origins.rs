//! Many healthy hosts: that we run out of connections is no failure of theirs.

use anyhow::{Result, ensure};

use super::super::options::HarmProofOptions;
use super::super::run::RunSetup;
use super::super::traffic::{DueDestination, DueMessage, DuePort};
use super::{HealthyWaits, in_order};

const TENANTS: u64 = 5;
/// As over a real network: long enough that many calls are under way at once.
const FAULTS: &str = "[[rule]]\nfault = \"slow:50\"\n";

pub(super) fn three_hundred(options: &HarmProofOptions) -> Result<String> {
    // All at once.
    one_attempt_each(options, 300, 1_500, 0)
}

pub(super) fn ten_thousand(options: &HarmProofOptions) -> Result<String> {
    one_attempt_each(options, 10_000, 15_000, 10_000)
}

fn one_attempt_each(
    options: &HarmProofOptions,
    hosts: u64,
    count: u64,
    within_ms: u64,
) -> Result<String> {
    let port = if options.tls { DuePort::Tls } else { DuePort::Plain };
    let messages =
        in_order((0..count).map(|n| to_host(n * within_ms / count, n % hosts, port)).collect());
    let setup = RunSetup {
        reads_attempts: true,
        tail_s: options.seconds(120),
        ..RunSetup::new(options, FAULTS.to_owned())
    };
    let run = setup.run(&messages)?;
    let sum = |of: fn(&super::super::run::MessageFate) -> bool| {
        run.fates.iter().filter(|fate| of(fate)).count()
    };
    let (burned, missing) = (sum(|fate| fate.counted > 1), sum(|fate| fate.accepted_ms.is_none()));
    let repeated = sum(|fate| fate.calls > 1);
    let figures = format!(
        "{}, {burned} with burned attempts, {repeated} called more than once, {missing} not delivered",
        HealthyWaits::of(&messages, &run).shown()
    );
    ensure!(burned == 0 && missing == 0 && repeated == 0, "{figures}");
    Ok(figures)
}

fn to_host(at_ms: u64, host: u64, port: DuePort) -> DueMessage {
    let (origin, name) = (host as u32, format!("host-{host}"));
    DueMessage {
        due_ms: at_ms.next_multiple_of(20),
        tenant: (host % TENANTS) as u32,
        class: "transactional",
        destination: DueDestination::Hook { origin, name, port },
        healthy: true,
    }
}
