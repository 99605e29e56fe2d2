//! One tenant's sick hosts beside another tenant's healthy host.

use anyhow::{Result, ensure};

use super::super::options::HarmProofOptions;
use super::super::run::RunSetup;
use super::super::traffic::{DueDestination, DueMessage, DuePort};
use super::{HealthyWaits, in_order, steady};

const HANGING_HOSTS: u64 = 80;
const SLOW_HOSTS: u64 = 49;
const BURST: u64 = 2_000;
/// Each class of each host is a lane of its own.
const CLASSES: [&str; 4] = ["transactional", "otp", "alert", "marketing"];
/// The healthy tenant hands in so many at once, so that it needs more connections than it has.
const GROUP: u64 = 100;
const GROUP_EVERY_MS: u64 = 500;
const CODE_MAX_MS: i64 = 250;
const P99_MAX_MS: i64 = 1_000;
const SICK_TENANT: u32 = 1;
const HEALTHY_TENANT: u32 = 2;
/// The host of the healthy tenant.
const HEALTHY_HOST: u64 = 1_000;

pub(super) fn hanging(options: &HarmProofOptions) -> Result<String> {
    let seconds = options.seconds(60);
    let mut messages = steady(200, seconds, |n, due_ms| {
        to_host(due_ms, SICK_TENANT, "transactional", n % HANGING_HOSTS, "hang")
    });
    messages.extend(steady(20, seconds, |_, due_ms| {
        to_host(due_ms, HEALTHY_TENANT, "otp", HEALTHY_HOST, "code")
    }));
    let messages = in_order(messages);
    let faults = "[[rule]]\nfault = \"hang\"\nname = \"hang-\"\n".to_owned();
    let run = RunSetup::new(options, faults).run(&messages)?;
    let waits = HealthyWaits::of(&messages, &run);
    ensure!(waits.p99() < CODE_MAX_MS, "{}", waits.shown());
    Ok(waits.shown())
}

pub(super) fn slow_burst(options: &HarmProofOptions) -> Result<String> {
    let burst = (0..BURST)
        .map(|n| to_host(0, SICK_TENANT, class_of(n / SLOW_HOSTS), n % SLOW_HOSTS, "slow"));
    let mut messages: Vec<_> = burst.collect();
    let groups = 1..=options.seconds(60) * 1_000 / GROUP_EVERY_MS;
    messages.extend(groups.flat_map(|group| {
        let due_ms = group * GROUP_EVERY_MS;
        (0..GROUP)
            .map(move |_| to_host(due_ms, HEALTHY_TENANT, "transactional", HEALTHY_HOST, "brisk"))
    }));
    let messages = in_order(messages);
    let faults = "[[rule]]\nfault = \"slow:5000\"\nname = \"slow-\"\n\
                  [[rule]]\nfault = \"slow:25\"\nname = \"brisk-\"\n";
    let setup = RunSetup { reads_attempts: true, ..RunSetup::new(options, faults.to_owned()) };
    let run = setup.run(&messages)?;
    let waits = HealthyWaits::of(&messages, &run);
    let opened = breakers_opened(&run.metrics);
    let burned = messages.iter().zip(&run.fates).filter(|(m, fate)| m.healthy && fate.counted > 1);
    let burned = burned.count();
    let figures = format!(
        "{}, {burned} of them with burned attempts, {opened} breakers opened",
        waits.shown()
    );
    ensure!(waits.p99() < P99_MAX_MS && burned == 0 && opened == 0, "{figures}");
    Ok(figures)
}

fn to_host(due_ms: u64, tenant: u32, class: &'static str, host: u64, kind: &str) -> DueMessage {
    let (origin, name) = (host as u32, format!("{kind}-{host}"));
    DueMessage {
        due_ms,
        tenant,
        class,
        destination: DueDestination::Hook { origin, name, port: DuePort::Plain },
        healthy: tenant == HEALTHY_TENANT,
    }
}

fn class_of(n: u64) -> &'static str {
    CLASSES[n as usize % CLASSES.len()]
}

/// How many breakers opened. All hosts answer 200, however slowly: not one should.
fn breakers_opened(metrics: &str) -> u64 {
    let opened = metrics.lines().filter(|line| line.contains("\"breaker_opened\""));
    let count = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    opened.filter_map(count).map(|count| count as u64).sum()
}
