//! One host with some bad paths: that a path is bad says nothing about the others.

use anyhow::{Result, ensure};

use super::super::options::HarmProofOptions;
use super::super::run::RunSetup;
use super::super::traffic::{DueDestination, DueMessage, DuePort};
use super::{HealthyWaits, healthy_per_s, steady};

const PATHS: u64 = 400;
const P99_MAX_MS: i64 = 1_000;
const RATE_SHARE_MIN: f64 = 0.9;

pub(super) fn bad_5(options: &HarmProofOptions) -> Result<String> {
    keeps_its_waits(options, 1_000, 600, 5, "503")
}

pub(super) fn bad_15(options: &HarmProofOptions) -> Result<String> {
    keeps_its_waits(options, 1_000, 600, 15, "503")
}

pub(super) fn asked_to_wait(options: &HarmProofOptions) -> Result<String> {
    keeps_its_waits(options, 500, 60, 10, "429:2")
}

fn keeps_its_waits(
    options: &HarmProofOptions,
    per_s: u64,
    seconds: u64,
    bad_percent: u64,
    fault: &str,
) -> Result<String> {
    let messages = to_one_host(per_s, options.seconds(seconds), bad_percent);
    let run = RunSetup::new(options, on_bad_paths(fault)).run(&messages)?;
    let waits = HealthyWaits::of(&messages, &run);
    ensure!(waits.p99() < P99_MAX_MS, "{}", waits.shown());
    Ok(waits.shown())
}

pub(super) fn slow(options: &HarmProofOptions) -> Result<String> {
    let seconds = options.seconds(60);
    let messages = to_one_host(500, seconds, 12);
    let rate = |faults: String| -> Result<f64> {
        let run = RunSetup::new(options, faults).run(&messages)?;
        Ok(healthy_per_s(&messages, &run, seconds))
    };
    let (well, slow) = (rate(String::new())?, rate(on_bad_paths("slow:2000"))?);
    let figures = format!("{well:.0}/s without slow paths, {slow:.0}/s with them");
    ensure!(slow >= well * RATE_SHARE_MIN, "{figures}");
    Ok(figures)
}

/// One tenant, one host; the bad paths are spread evenly over the others.
fn to_one_host(per_s: u64, seconds: u64, bad_percent: u64) -> Vec<DueMessage> {
    steady(per_s, seconds, |n, due_ms| {
        // A step that shares no divisor with the number of paths: neighbours in time are not neighbours in name.
        let path = n * 7 % PATHS;
        let is_bad = path % 100 < bad_percent;
        let kind = if is_bad { "bad" } else { "good" };
        let (name, port) = (format!("{kind}-{path}"), DuePort::Plain);
        DueMessage {
            due_ms,
            tenant: 1,
            class: "transactional",
            destination: DueDestination::Hook { origin: 0, name, port },
            healthy: !is_bad,
        }
    })
}

fn on_bad_paths(fault: &str) -> String {
    format!("[[rule]]\nfault = \"{fault}\"\nname = \"bad-\"\n")
}
