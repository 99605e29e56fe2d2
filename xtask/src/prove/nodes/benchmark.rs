//! `cargo xtask prove engines`: what an engine costs. Accepting and delivering on the real binary, one node of each
//! role, with the processor time of node and engine and the bytes that the engine writes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use postrider_testkit::http::TestConnection;

use super::cluster::NodeCluster;
use super::engine::{self, EngineFixture, EngineTimes};
use super::options::NodeProofOptions;
use super::process_cpu::cpu_of_group;
use crate::shell;

const LINES: usize = 500;
const BATCH_SENDERS: usize = 4;
const SINGLE_SENDERS: usize = 32;
/// Single messages are fewer: each is a call.
const SINGLE_PART: usize = 5;
const DELIVERED_WITHIN: Duration = Duration::from_secs(900);

/// What one measurement used.
struct MeasuredPhase {
    count: usize,
    time: Duration,
    node_cpu: Duration,
    engine_cpu: Duration,
    engine_bytes: u64,
}

impl MeasuredPhase {
    fn line(&self, name: &str) -> String {
        let each = |time: Duration| time.as_secs_f64() * 1e6 / self.count as f64;
        format!(
            "{name:<24} {:>8} {:>9.0}/s {:>9.1} µs {:>9.1} µs {:>9} B",
            self.count,
            self.count as f64 / self.time.as_secs_f64(),
            each(self.node_cpu),
            each(self.engine_cpu),
            self.engine_bytes / self.count as u64,
        )
    }
}

const HEADING: &str =
    "what                        count      rate    node CPU  engine CPU  engine writes";

/// `cargo xtask prove engines [--engine NAME] [--messages N]`, or with `--soak-s N [--rate N]` whether sizes stay.
pub(crate) fn run(args: &[&str]) -> Result<()> {
    let options = NodeProofOptions::parse(args)?;
    options.build()?;
    if let Some(seconds) = options.soak_s {
        return super::soak::run(&options, Duration::from_secs(seconds));
    }
    let engine = engine::start(&options.engine, &EngineTimes { snapshot: Duration::ZERO })?;
    let mut cluster = NodeCluster::start(&engine.store_url(), "[log]\nlevel = \"warn\"\n", 0)?;
    cluster.workers.truncate(1);
    shell::heading(&format!("{} messages on {}", options.messages, options.engine));
    let next = AtomicUsize::new(0);
    let singles = options.messages / SINGLE_PART;
    let single = measure(&cluster, &*engine, singles, || hand_in(&cluster, &next, singles, 1))?;
    let rest = options.messages - singles;
    let batches =
        measure(&cluster, &*engine, rest, || hand_in(&cluster, &next, options.messages, LINES))?;
    cluster.workers[0].start()?;
    let delivered = measure_delivery(&cluster, &*engine, options.messages)?;
    println!("\n{}, {} messages:\n{HEADING}", options.engine, options.messages);
    println!("{}", single.line("accepted one by one"));
    println!("{}", batches.line("accepted in batches"));
    println!("{}", delivered.line("delivered webhooks"));
    Ok(())
}

fn measure(
    cluster: &NodeCluster,
    engine: &dyn EngineFixture,
    count: usize,
    work: impl FnOnce() -> Result<()>,
) -> Result<MeasuredPhase> {
    let node = cluster.api.pid().context("the API node does not run")?;
    let before = (cpu_of_group(node)?, engine.cpu()?, engine.written_bytes()?);
    let began = Instant::now();
    work()?;
    Ok(MeasuredPhase {
        count: count.max(1),
        time: began.elapsed(),
        node_cpu: cpu_of_group(node)? - before.0,
        engine_cpu: engine.cpu()? - before.1,
        engine_bytes: engine.written_bytes()? - before.2,
    })
}

fn measure_delivery(
    cluster: &NodeCluster,
    engine: &dyn EngineFixture,
    count: usize,
) -> Result<MeasuredPhase> {
    let worker = cluster.workers[0].pid().context("the worker does not run")?;
    let before = (cpu_of_group(worker)?, engine.cpu()?, engine.written_bytes()?);
    let (began, deadline) = (Instant::now(), Instant::now() + DELIVERED_WITHIN);
    loop {
        let distinct = cluster.received()?["distinct"].as_u64().unwrap_or(0);
        if distinct >= count as u64 {
            break;
        }
        ensure!(Instant::now() < deadline, "{distinct} of {count} arrived");
        std::thread::sleep(Duration::from_millis(50));
    }
    let time = began.elapsed();
    let received = cluster.received()?;
    ensure!(received["duplicates"] == 0, "some were sent twice: {received}");
    Ok(MeasuredPhase {
        count,
        time,
        node_cpu: cpu_of_group(worker)? - before.0,
        engine_cpu: engine.cpu()? - before.1,
        engine_bytes: engine.written_bytes()? - before.2,
    })
}

/// Hands in messages up to a number, so many per call.
fn hand_in(cluster: &NodeCluster, next: &AtomicUsize, upto: usize, lines: usize) -> Result<()> {
    let server = cluster.api.server_at;
    let send = || -> Result<()> {
        let mut connection = TestConnection::open(server)?;
        loop {
            let from = next.fetch_add(lines, Ordering::Relaxed);
            if from >= upto {
                return Ok(());
            }
            let count = lines.min(upto - from);
            let body: Vec<_> = (from..from + count).map(|n| message(cluster, n)).collect();
            let path = if lines == 1 { "/v1/messages" } else { "/v1/messages/batch" };
            let answer = connection.call_ok("POST", path, None, &body.join("\n"))?;
            let taken = answer.matches("dlv_").count();
            ensure!(taken == count, "{taken} of {count} were accepted: {answer}");
        }
    };
    let senders = if lines == 1 { SINGLE_SENDERS } else { BATCH_SENDERS };
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..senders).map(|_| scope.spawn(send)).collect();
        senders.into_iter().try_for_each(|sender| match sender.join() {
            Ok(done) => done,
            Err(_) => bail!("a sender panicked"),
        })
    })?;
    next.store(upto, Ordering::Relaxed);
    Ok(())
}

fn message(cluster: &NodeCluster, n: usize) -> String {
    let url = cluster.hook(n);
    format!(
        r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}},"content":{{"title":"No {n}","body":"A message of ordinary length, as a shop would send it to somebody who ordered something and waits for it now."}},"idempotency_key":"bench-{n}"}}"#
    )
}
