//! Conditions in which healthy traffic once suffered, each with its own aim. One file per kind; each prints its
//! figures and fails if its aim is missed.

mod accounts;
mod hosts;
mod memory;
mod origins;
mod paths;
mod tenants;

use anyhow::{Result, bail};
use postrider_testkit::harm_bounds::percentile;

use super::options::HarmProofOptions;
use super::run::{FinishedRun, shown_wait};
use super::traffic::DueMessage;
use crate::shell;

struct HarmCondition {
    name: &'static str,
    aim: &'static str,
    run: fn(&HarmProofOptions) -> Result<String>,
}

const CONDITIONS: &[HarmCondition] = &[
    HarmCondition {
        name: "bad-paths-5",
        aim: "one host, 1 000 messages/s, 5 % of its paths always 503, 10 minutes: healthy paths p99 < 1 s",
        run: paths::bad_5,
    },
    HarmCondition {
        name: "bad-paths-15",
        aim: "the same with 15 % of the paths",
        run: paths::bad_15,
    },
    HarmCondition {
        name: "slow-paths",
        aim: "12 % of a host's paths take 2 s: the others keep 90 % of their rate",
        run: paths::slow,
    },
    HarmCondition {
        name: "asked-to-wait",
        aim: "10 % of a host's paths answer 429 with Retry-After: 2: the others p99 < 1 s",
        run: paths::asked_to_wait,
    },
    HarmCondition {
        name: "hanging-hosts",
        aim: "one tenant calls 80 hosts that never answer: another one's codes arrive within 250 ms",
        run: hosts::hanging,
    },
    HarmCondition {
        name: "slow-hosts-burst",
        aim: "a burst of 2 000 to 49 slow hosts: another tenant's host stays open, p99 < 1 s",
        run: hosts::slow_burst,
    },
    HarmCondition {
        name: "origins-300",
        aim: "5 messages each to 300 healthy hosts: one attempt each (--tls, --files N)",
        run: origins::three_hundred,
    },
    HarmCondition {
        name: "origins-10000",
        aim: "1 or 2 messages each to 10 000 healthy hosts: one attempt each (--tls, --files N)",
        run: origins::ten_thousand,
    },
    HarmCondition {
        name: "tenant-429",
        aim: "a tenant's 429 with Retry-After: 900: the other tenants of that host p99 < 1 s",
        run: tenants::asked_to_wait,
    },
    HarmCondition {
        name: "email",
        aim: "one mail account slow, one failing: the third one's mail keeps 90 % of its rate",
        run: accounts::email,
    },
    HarmCondition {
        name: "memory",
        aim: "100 000 lanes, 65 536 sick addresses, as many connections as there are files: 4.5, 3 and 36 KB each",
        run: memory::of_lanes_addresses_and_connections,
    },
];

pub(super) fn list() {
    for HarmCondition { name, aim, .. } in CONDITIONS {
        println!("{name:<17} {aim}");
    }
}

pub(super) fn run(options: &HarmProofOptions) -> Result<()> {
    let mut chosen = Vec::new();
    for name in &options.only {
        match CONDITIONS.iter().find(|condition| condition.name == name || name == "all") {
            Some(_) if name == "all" => chosen.extend(CONDITIONS),
            Some(condition) => chosen.push(condition),
            None => bail!("no condition is called {name:?}; `--only list` names them"),
        }
    }
    let mut broken = Vec::new();
    for HarmCondition { name, aim, run } in chosen {
        shell::heading(&format!("{name}: {aim}"));
        match run(options) {
            Ok(figures) => println!("{name}: held: {figures}"),
            Err(error) => {
                println!("{name}: BROKEN: {error:#}");
                broken.push(*name);
            }
        }
    }
    if !broken.is_empty() {
        bail!("broken: {}", broken.join(", "));
    }
    Ok(())
}

/// Waits of the healthy messages from due to arrival, in milliseconds.
struct HealthyWaits(Vec<i64>);

impl HealthyWaits {
    fn of(messages: &[DueMessage], run: &FinishedRun) -> Self {
        let healthy = messages.iter().zip(&run.fates).filter(|(message, _)| message.healthy);
        Self(healthy.map(|(message, fate)| fate.wait_ms(message)).collect())
    }

    fn p99(&self) -> i64 {
        percentile(self.0.clone(), 0.99)
    }

    fn shown(&self) -> String {
        let [p50, p99, most] =
            [0.5, 0.99, 1.0].map(|share| shown_wait(percentile(self.0.clone(), share)));
        format!("{} healthy messages, p50 {p50}, p99 {p99}, at most {most}", self.0.len())
    }
}

/// Healthy messages that the provider accepted per second, after the first seconds and before the tail.
fn healthy_per_s(messages: &[DueMessage], run: &FinishedRun, seconds: u64) -> f64 {
    let (from, to) = (seconds as i64 * 1_000 / 6, seconds as i64 * 1_000);
    let healthy = messages.iter().zip(&run.fates).filter(|(message, _)| message.healthy);
    let accepted = healthy.filter_map(|(_, fate)| fate.accepted_ms);
    let count = accepted.filter(|at| (from..to).contains(at)).count();
    count as f64 * 1_000.0 / (to - from) as f64
}

/// Messages at an even rate, made by their number, in batches every 20 ms.
fn steady(per_s: u64, seconds: u64, message: impl Fn(u64, u64) -> DueMessage) -> Vec<DueMessage> {
    let due_ms = |n: u64| (n * 1_000 / per_s).next_multiple_of(20);
    (0..per_s * seconds).map(|n| message(n, due_ms(n))).collect()
}

/// In the order in which messages are handed in.
fn in_order(mut messages: Vec<DueMessage>) -> Vec<DueMessage> {
    messages.sort_by_key(|message| (message.due_ms, message.tenant));
    messages
}
