//! `postrider bench`: measures this machine end to end. Server, sandbox and load are separate processes over real
//! sockets and TLS; every accept is fsynced; the sandbox decrypts. The limits of the machine are measured in the same
//! run, for comparison.

mod email;
mod encryption;
mod lanes;
mod limits;
mod load;
mod process;
mod push;
mod report;
mod slow_provider;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use load::BenchAddresses;
use process::poll;
use report::BenchReport;
use slow_provider::LimitSeries;

/// End-to-end benchmark on this machine: prints a table and JSON.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  postrider bench\n  postrider bench --messages 20000 --json\n  postrider bench --only webpush\n  postrider bench --latency 50ms --only webhook"
)]
pub struct BenchArgs {
    /// Messages per delivery measurement
    #[arg(long, default_value_t = 100_000)]
    messages: usize,
    /// Measure only this: accept, webhook, webpush, apns, lanes, email, latency or encryption
    #[arg(long, value_parser = MEASUREMENTS)]
    only: Option<String>,
    /// The provider answers after this time, such as 50ms: shows how many calls at once the server learns to make, and
    /// how soon. Measures webhook and webpush only
    #[arg(long, value_name = "TIME", value_parser = slow_provider::latency)]
    latency: Option<Duration>,
    /// Where to put the data folder; on the disk that you want to measure
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Postfix's smtp-sink, that mails are measured against; looked for in PATH and /usr/sbin
    #[arg(long, value_name = "FILE")]
    smtp_sink: Option<PathBuf>,
    /// Print JSON only
    #[arg(long)]
    json: bool,
}

const SUBSCRIPTIONS: usize = 1_000;
/// In the order in which they run.
const MEASUREMENTS: [&str; 8] =
    ["accept", "webhook", "webpush", "apns", "lanes", "email", "latency", "encryption"];

pub async fn run(args: BenchArgs) -> Result<()> {
    if args.latency.is_some() {
        slow_provider::check(args.only.as_deref())?;
    }
    let base = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = base.join(format!("postrider-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let outcome = measure(&args, &dir).await;
    if outcome.is_ok() {
        std::fs::remove_dir_all(&dir)?;
    }
    let report = outcome.with_context(|| format!("logs are in {}", dir.display()))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report.json())?);
    }
    Ok(())
}

struct Benchmark<'a> {
    args: &'a BenchArgs,
    dir: &'a Path,
    sandbox: process::SandboxProcess,
    report: BenchReport,
}

async fn measure(args: &BenchArgs, dir: &Path) -> Result<BenchReport> {
    let profile = args.latency.map(|latency| slow_provider::write_profile(dir, latency));
    let profile = profile.transpose()?;
    let sandbox = process::sandbox(dir, profile.as_deref()).await?;
    let mut bench = Benchmark { args, dir, sandbox, report: BenchReport::new(!args.json) };
    bench.limits().await?;
    for name in MEASUREMENTS {
        let is_left_out = args.latency.is_some() && !slow_provider::WITH_LATENCY.contains(&name);
        if is_left_out || args.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        match name {
            "accept" => bench.accept().await?,
            "webhook" => bench.deliver(name, bench.webhook()).await?,
            "webpush" => bench.deliver(name, bench.webpush().await?).await?,
            "apns" => bench.deliver(name, bench.apns().await?).await?,
            "lanes" => bench.lanes().await?,
            "email" => bench.email().await?,
            "encryption" => bench.encryption().await?,
            _ => bench.latency().await?,
        }
    }
    Ok(bench.report)
}

impl Benchmark<'_> {
    fn say(&self, text: &str) {
        if !self.args.json {
            eprintln!("· {text}");
        }
    }

    fn webhook(&self) -> BenchAddresses {
        let url = format!("https://localhost:{}/hook/bench", self.sandbox.https.port());
        Arc::new(move |_| format!(r#""channel":"webhook","url":"{url}""#))
    }

    async fn webpush(&self) -> Result<BenchAddresses> {
        let path = format!("/sandbox/subscriptions?count={SUBSCRIPTIONS}");
        let given = load::client(self.sandbox.http).json("POST", &path, b"").await?;
        let list = given.as_array().context("the sandbox gave no list of subscriptions")?;
        let address = |s: &serde_json::Value| {
            format!(r#""channel":"webpush","endpoint":{},"keys":{}"#, s["endpoint"], s["keys"])
        };
        let addresses: Vec<String> = list.iter().map(address).collect();
        ensure!(!addresses.is_empty(), "the sandbox gave no subscriptions");
        Ok(Arc::new(move |n| addresses[n % addresses.len()].clone()))
    }

    async fn limits(&mut self) -> Result<()> {
        self.say("this machine's own limits: fsync, encryption, loopback HTTP/2");
        self.report.add("raw.fsync", limits::fsyncs_per_s(self.dir)?, "fsyncs/s of 4 KiB appended");
        self.report.add("raw.encrypt", limits::encrypt_us()?, "µs per Web Push encryption");
        let (per_s, cpu_us) = limits::loopback(&self.sandbox).await?;
        self.report.add("raw.http2", per_s, "POSTs/s over TLS and HTTP/2 to the sandbox");
        self.report.add("raw.http2.cpu", cpu_us, "µs of client CPU per POST");
        Ok(())
    }

    /// Measures the intake alone: this server has no dispatcher.
    async fn accept(&mut self) -> Result<()> {
        let (server, address) =
            process::server(&self.dir.join("accept"), "api", &self.sandbox).await?;
        let to = self.webhook();
        self.say("accept: single POSTs over 64 connections");
        let single = load::singles(address, &to, 64, self.args.messages / 2, "single").await?;
        let what = "accepted/s, 64 connections, one POST each";
        self.report.add_with_aim("accept.single", single.per_s, what, 5_000.0);
        self.report.add("accept.single.p50", single.p50_ms, "ms until the 202, median");
        self.report.add("accept.single.p99", single.p99_ms, "ms until the 202, 99th percentile");
        self.say("accept: NDJSON over 8 connections");
        let before = server.cpu()?;
        let batch = load::batches(address, &to, 8, self.args.messages, Some("batch")).await?;
        let cpu = per_message_us(server.cpu()? - before, self.args.messages);
        let what = "accepted/s, 8 connections, NDJSON";
        self.report.add_with_aim("accept.ndjson", batch, what, 20_000.0);
        self.report.add("accept.ndjson.cpu", cpu, "µs of server CPU per message accepted");
        server.stop()
    }

    /// Queues everything first, then starts a server on that folder and measures it alone.
    async fn deliver(&mut self, name: &str, to: BenchAddresses) -> Result<()> {
        let n = self.args.messages;
        let dir = self.dir.join(name);
        self.say(&format!("{name}: {n} messages queued, then delivered"));
        if self.args.latency.is_some() {
            slow_provider::configure(&dir, name)?;
        }
        self.queue(&dir, &to).await?;
        let drained = self.drained(&dir, n).await?;
        let aim = match (self.args.latency, name) {
            (Some(latency), _) => slow_provider::aim_per_s(latency),
            (None, "webpush") => Some(6_000.0),
            (None, _) => Some(12_000.0),
        };
        let per_s = n as f64 / drained.received.seconds;
        let what = "delivered/s, server and sandbox sharing this machine";
        self.report.add_with_aim(&format!("{name}.delivered"), per_s, what, aim);
        let sandbox_cpu = per_message_us(drained.sandbox_cpu, n);
        for (figure, value, what) in [
            ("cpu", per_message_us(drained.cpu, n), "µs of server CPU per delivery, all in"),
            ("sandbox_cpu", sandbox_cpu, "µs of sandbox CPU per delivery"),
            ("duplicates", drained.received.duplicates as f64, "delivered twice"),
            ("memory", drained.peak_memory as f64 / 1e6, "MB at the most"),
        ] {
            self.report.add(&format!("{name}.{figure}"), value, what);
        }
        if let Some(latency) = self.args.latency {
            drained.limits.report(name, latency, &mut self.report);
        }
        Ok(())
    }

    async fn queue(&self, dir: &Path, to: &BenchAddresses) -> Result<()> {
        let (server, address) = process::server(dir, "api", &self.sandbox).await?;
        load::batches(address, to, 8, self.args.messages, None).await?;
        server.stop()
    }

    /// Starts a server on the queue in a folder, and waits until all of it is delivered.
    async fn drained(&self, dir: &Path, n: usize) -> Result<DrainFigures> {
        load::client(self.sandbox.http).json("DELETE", "/sandbox/received", b"").await?;
        let sandbox_before = self.sandbox.process.cpu()?;
        let (server, address) = process::server(dir, "all", &self.sandbox).await?;
        let (received, limits) = match self.args.latency {
            Some(_) => slow_provider::watched(address, self.await_received(n)).await?,
            None => (self.await_received(n).await?, LimitSeries::default()),
        };
        let drained = DrainFigures {
            received,
            limits,
            cpu: server.cpu()?,
            sandbox_cpu: self.sandbox.process.cpu()? - sandbox_before,
            peak_memory: server.peak_memory()?,
        };
        poll(10, 50, async || {
            let is_settled = load::sent(address).await? == n as u64;
            Ok(is_settled.then_some(()).ok_or("not every delivery was settled as sent".to_owned()))
        })
        .await?;
        server.stop()?;
        Ok(drained)
    }

    async fn latency(&mut self) -> Result<()> {
        let dir = self.dir.join("latency");
        std::fs::create_dir_all(&dir)?;
        self.say("latency: 2 000 webhooks/s for 10 s");
        // A new sandbox: it measures time from its start, and clocks drift apart.
        self.sandbox = process::sandbox(&dir, None).await?;
        let (server, address) = process::server(&dir, "all", &self.sandbox).await?;
        let sent = load::steady(address, &self.webhook(), 2_000.0, Duration::from_secs(10)).await?;
        self.await_received(sent).await?;
        let ids = load::client(self.sandbox.http).received_ids().await?;
        let ages = accept_to_provider_ms(&ids)?;
        let (p50, p99) = (load::quantile(&ages, 0.5), load::quantile(&ages, 0.99));
        self.report.add("latency.p50", p50, "ms from accept to provider, median");
        self.report.add("latency.p99", p99, "ms from accept to provider, 99th percentile");
        server.stop()
    }

    async fn await_received(&self, n: usize) -> Result<ReceivedFigures> {
        poll(300, 100, async || {
            let summary = load::client(self.sandbox.http).get("/sandbox/received").await?;
            let number = |name: &str| summary[name].as_i64().unwrap_or(0);
            let distinct = number("distinct");
            if distinct < n as i64 {
                let missing =
                    format!("only {distinct} of {n} messages arrived within five minutes");
                return Ok(Err(format!("{missing}: {summary}")));
            }
            let seconds = (number("last_at") - number("first_at")).max(1) as f64 / 1e3;
            Ok(Ok(ReceivedFigures { seconds, duplicates: number("duplicates") }))
        })
        .await
    }
}

struct ReceivedFigures {
    seconds: f64,
    duplicates: i64,
}

struct DrainFigures {
    received: ReceivedFigures,
    limits: LimitSeries,
    cpu: Duration,
    sandbox_cpu: Duration,
    peak_memory: u64,
}

fn per_message_us(cpu: Duration, messages: usize) -> f64 {
    cpu.as_secs_f64() * 1e6 / messages as f64
}

/// The delivery id holds the time of acceptance, the sandbox has the time of arrival: one machine, one clock.
fn accept_to_provider_ms(ids: &str) -> Result<Vec<Duration>> {
    let mut ages = Vec::new();
    for line in ids.lines() {
        let entry: serde_json::Value = serde_json::from_str(line)?;
        let id: postrider_core::DeliveryId =
            entry["id"].as_str().context("an entry without id")?.parse()?;
        let arrived = entry["first_at"].as_i64().context("an entry without time")?;
        ages.push(Duration::from_millis((arrived - id.created_at().0).max(0) as u64));
    }
    ages.sort_unstable();
    Ok(ages)
}
