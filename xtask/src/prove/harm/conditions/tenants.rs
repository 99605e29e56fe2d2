//! One host for several tenants: what it asks of one tenant concerns no other.

use anyhow::{Result, ensure};

use super::super::options::HarmProofOptions;
use super::super::run::RunSetup;
use super::super::traffic::{DueDestination, DueMessage, DuePort};
use super::{HealthyWaits, in_order, steady};

const TENANTS: u64 = 3;
const PATHS: u64 = 50;
const P99_MAX_MS: i64 = 1_000;

pub(super) fn asked_to_wait(options: &HarmProofOptions) -> Result<String> {
    let messages = steady(300, options.seconds(60), |n, due_ms| {
        let tenant = n % TENANTS;
        let kind = if tenant == 0 { "limited" } else { "free" };
        let name = format!("{kind}-{tenant}-{}", n / TENANTS % PATHS);
        DueMessage {
            due_ms,
            tenant: tenant as u32,
            class: "transactional",
            destination: DueDestination::Hook { origin: 0, name, port: DuePort::Plain },
            healthy: tenant != 0,
        }
    });
    let messages = in_order(messages);
    let faults = "[[rule]]\nfault = \"429:900\"\nname = \"limited-\"\n".to_owned();
    let run = RunSetup::new(options, faults).run(&messages)?;
    let waits = HealthyWaits::of(&messages, &run);
    ensure!(waits.p99() < P99_MAX_MS, "{}", waits.shown());
    Ok(waits.shown())
}
