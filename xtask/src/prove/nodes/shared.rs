//! What several workers share: rates of tenants, accounts and channels, that a provider is down, pauses and keys.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::http::{TestConnection, call, get};
use serde_json::Value;

use super::cluster::{NodeCluster, WORKERS};
use super::engine::{self, EngineTimes};
use super::options::NodeProofOptions;
use crate::shell;

const LIMIT: f64 = 300.0;
/// So much of the limit has to be used in every window.
const USED_MIN: f64 = 0.95;
const SETTLES: Duration = Duration::from_secs(30);
const WINDOW: Duration = Duration::from_secs(10);
/// For how long windows are looked at.
const LOOKED_AT: Duration = Duration::from_secs(30);
const DOWN_MAX: Duration = Duration::from_secs(2);
const ORDER_MAX: Duration = Duration::from_secs(1);
/// What the fake ntfy server takes.
const TOKEN: &str = "tk_sandbox0123456789abcdefghijkl";

type SharedProof = fn(&NodeProofOptions) -> Result<String>;

const PROOFS: [(&str, &str, SharedProof); 5] = [
    (
        "limits",
        "a tenant's 300/s over 60 hosts and three workers: 285 to 300/s in every 10 s",
        tenant_rate,
    ),
    (
        "limits-account",
        "an account's 300/s over three workers: 285 to 300/s in every 10 s",
        account_rate,
    ),
    (
        "limits-channel",
        "a channel's 300/s over three workers: 285 to 300/s in every 10 s",
        channel_rate,
    ),
    ("down", "an account that goes down is down on all nodes within 2 s", down),
    ("orders", "a paused tenant and a revoked key hold on all nodes within 1 s", orders),
];

pub(super) fn names() -> impl Iterator<Item = String> {
    PROOFS.iter().map(|(name, ..)| (*name).to_owned())
}

/// Runs the chosen proofs; answers a line about each, and what is broken.
pub(super) fn run(
    options: &NodeProofOptions,
    chosen: impl Fn(&str) -> bool,
) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut broken) = (Vec::new(), Vec::new());
    for (name, promise, prove) in PROOFS {
        if !chosen(name) {
            continue;
        }
        shell::heading(&format!("{name}: {promise}"));
        match prove(options) {
            Ok(figures) => {
                eprintln!("held: {figures}");
                lines.push(format!("{name:<14} {figures}"));
            }
            Err(error) => {
                eprintln!("BROKEN: {error:#}");
                broken.push(format!("{name}: {error:#}"));
            }
        }
    }
    (lines, broken)
}

/// A cluster of nodes with its engine, which has to outlive it.
struct SharedFixture {
    cluster: NodeCluster,
    _engine: Box<dyn engine::EngineFixture>,
}

impl SharedFixture {
    fn start(options: &NodeProofOptions, config: impl Fn(&str) -> String) -> Result<Self> {
        let engine = engine::start(&options.engine, &EngineTimes { snapshot: Duration::ZERO })?;
        let mut cluster = NodeCluster::start(&engine.store_url(), "", 0)?;
        let token = cluster.api.path("token");
        std::fs::write(&token, TOKEN)?;
        let account = format!(
            "[accounts.main]\nchannel = \"ntfy\"\ntenant = \"*\"\nendpoint = \"http://{}\"\ncredential = \"file:{}\"\n",
            cluster.provider,
            token.display()
        );
        cluster.reconfigure(&config(&account))?;
        cluster.start_workers()?;
        Ok(Self { cluster, _engine: engine })
    }

    fn hand_in(&self, messages: usize, line: impl Fn(usize) -> String + Sync) -> Result<()> {
        let mut connection = TestConnection::open(self.cluster.api.server_at)?;
        for from in (0..messages).step_by(1_000) {
            let lines: Vec<_> = (from..(from + 1_000).min(messages)).map(&line).collect();
            let path = "/v1/messages/batch";
            let answer = connection.call_ok("POST", path, Some("acme"), &lines.join("\n"))?;
            let taken = answer.matches("\"status\":202").count();
            ensure!(
                taken == lines.len(),
                "{taken} of {} lines were accepted: {answer}",
                lines.len()
            );
        }
        Ok(())
    }

    fn nodes(&self) -> Vec<(String, SocketAddr)> {
        let workers = self.cluster.workers.iter().enumerate();
        let workers = workers.map(|(n, worker)| (super::cluster::worker_name(n), worker.server_at));
        std::iter::once(("api".to_owned(), self.cluster.api.server_at)).chain(workers).collect()
    }
}

fn ntfy_line(n: usize) -> String {
    format!(
        r#"{{"to":{{"address":{{"channel":"ntfy","topic":"topic-{n}"}}}},"content":{{"title":"No {n}","body":"Hello number {n}"}},"ttl_s":86400}}"#
    )
}

fn backlog() -> usize {
    let seconds = SETTLES + LOOKED_AT + WINDOW + Duration::from_secs(20);
    (LIMIT * seconds.as_secs_f64()) as usize
}

fn tenant_rate(options: &NodeProofOptions) -> Result<String> {
    let rate = format!("[tenants.acme]\nrate_per_s = {LIMIT}\n");
    let fixture = SharedFixture::start(options, |_| rate.clone())?;
    let hooks: Vec<_> = (0..WORKERS * 20).map(|n| fixture.cluster.hook(n)).collect();
    let line = |n: usize| {
        let url = &hooks[n % hooks.len()];
        format!(r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}},"ttl_s":86400}}"#)
    };
    fixture.hand_in(backlog(), line)?;
    windows(&fixture)
}

fn account_rate(options: &NodeProofOptions) -> Result<String> {
    let fixture =
        SharedFixture::start(options, |account| format!("{account}rate_per_s = {LIMIT}\n"))?;
    fixture.hand_in(backlog(), ntfy_line)?;
    windows(&fixture)
}

fn channel_rate(options: &NodeProofOptions) -> Result<String> {
    let fixture = SharedFixture::start(options, |account| {
        format!("{account}[ntfy]\nrate_per_s = {LIMIT}\n")
    })?;
    fixture.hand_in(backlog(), ntfy_line)?;
    windows(&fixture)
}

/// The rate at the provider in every window of 10 s, and how much each worker sent.
fn windows(fixture: &SharedFixture) -> Result<String> {
    std::thread::sleep(SETTLES);
    let (mut samples, end) = (Vec::new(), Instant::now() + LOOKED_AT + WINDOW);
    while Instant::now() < end {
        let count = fixture.cluster.received()?["total"].as_u64().context("no total")?;
        samples.push((Instant::now(), count));
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut rates = Vec::new();
    for (from, first) in &samples {
        let Some((to, last)) = samples.iter().find(|(at, _)| *at >= *from + WINDOW) else { break };
        rates.push((last - first) as f64 / (*to - *from).as_secs_f64());
    }
    let least = rates.iter().copied().fold(f64::MAX, f64::min);
    let most = rates.iter().copied().fold(0.0, f64::max);
    let workers = fixture.nodes().into_iter().skip(1);
    let sent = workers.map(|(name, at)| Ok(format!("{name} {}", sent_by(at)?)));
    let sent = sent.collect::<Result<Vec<_>>>()?.join(", ");
    let count = rates.len();
    let figures = format!("{count} windows of 10 s: {least:.1} to {most:.1}/s; sent by {sent}");
    ensure!(least >= USED_MIN * LIMIT, "too little: {figures}");
    // A sample takes a moment, in which a call or two arrive.
    ensure!(most <= LIMIT + 0.5, "too much: {figures}");
    Ok(figures)
}

/// Deliveries that a worker sent, by its metrics.
fn sent_by(worker: SocketAddr) -> Result<u64> {
    let text = get(worker, "/metrics")?.body;
    let attempts = text.lines().filter(|line| line.starts_with("postrider_attempts_total"));
    Ok(attempts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64)
}

fn is_down(node: SocketAddr) -> Result<bool> {
    let lanes = TestConnection::open(node)?.get_json("/v1/lanes?limit=100")?;
    let lanes = lanes["lanes"].as_array().context("no lanes")?;
    let is_open = |lane: &Value| matches!(lane["breaker"].as_str(), Some("open" | "half_open"));
    Ok(lanes.iter().any(is_open))
}

/// How long after `began` each node says so, at most so long.
fn each_within(
    fixture: &SharedFixture,
    began: Instant,
    at_most: Duration,
    says: impl Fn(SocketAddr) -> Result<bool>,
) -> Result<Vec<String>> {
    let mut waiting = fixture.nodes();
    let mut times = Vec::new();
    loop {
        let (said, still): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|(_, at)| says(*at).unwrap_or(false));
        let after = began.elapsed();
        times.extend(said.into_iter().map(|(name, _)| format!("{name} {} ms", after.as_millis())));
        if still.is_empty() {
            return Ok(times);
        }
        let names: Vec<_> = still.iter().map(|(name, _)| name.as_str()).collect();
        ensure!(
            after < at_most,
            "not within {at_most:?}: {}; {}",
            names.join(", "),
            times.join(", ")
        );
        waiting = still;
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn down(options: &NodeProofOptions) -> Result<String> {
    // Few calls, so that not every worker finds out by itself at once.
    let mut fixture =
        SharedFixture::start(options, |account| format!("{account}rate_per_s = 30\n"))?;
    fixture.hand_in(5_000, ntfy_line)?;
    std::thread::sleep(Duration::from_secs(10));
    fixture.cluster.api.kill_sandboxes();
    let deadline = Instant::now() + Duration::from_secs(60);
    let nodes = fixture.nodes();
    while !nodes.iter().any(|(_, at)| is_down(*at).unwrap_or(false)) {
        ensure!(Instant::now() < deadline, "no node noticed that the account is down");
        std::thread::sleep(Duration::from_millis(10));
    }
    let times = each_within(&fixture, Instant::now(), DOWN_MAX, is_down)?;
    Ok(format!("after the first node: {}", times.join(", ")))
}

fn orders(options: &NodeProofOptions) -> Result<String> {
    let fixture =
        SharedFixture::start(options, |_| format!("[tenants.acme]\nrate_per_s = {LIMIT}\n"))?;
    let hooks: Vec<_> = (0..WORKERS * 20).map(|n| fixture.cluster.hook(n)).collect();
    let line = |n: usize| {
        let url = &hooks[n % hooks.len()];
        format!(r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}},"ttl_s":86400}}"#)
    };
    fixture.hand_in(10_000, line)?;
    std::thread::sleep(Duration::from_secs(5));
    let api = fixture.cluster.api.server_at;
    let began = Instant::now();
    let paused = call(api, "POST", "/v1/tenants/acme/pause", "")?;
    ensure!(paused.status < 300, "{}", paused.body);
    let is_paused = |at: SocketAddr| Ok(!get(at, "/v1/tenants/acme")?.json()?["paused"].is_null());
    let times = each_within(&fixture, began, ORDER_MAX, is_paused)?;
    std::thread::sleep(ORDER_MAX.saturating_sub(began.elapsed()));
    let before = fixture.cluster.received()?["total"].as_u64();
    std::thread::sleep(Duration::from_secs(3));
    let after = fixture.cluster.received()?["total"].as_u64();
    ensure!(before == after, "{before:?} calls, then {after:?}, although the tenant is paused");
    let revoked = revoke(&fixture, api)?;
    Ok(format!("paused: {}; revoked: {}", times.join(", "), revoked.join(", ")))
}

fn revoke(fixture: &SharedFixture, api: SocketAddr) -> Result<Vec<String>> {
    let body = r#"{"name":"proof","scope":"read","tenant":"acme"}"#;
    let made = call(api, "POST", "/v1/keys", body)?.json()?;
    let (id, key) = (made["id"].as_str(), made["key"].as_str());
    let (id, key) = id.zip(key).with_context(|| format!("no key in {made}"))?;
    let status = |at: SocketAddr| TestConnection::open(at)?.status_with_key("/v1/deliveries", key);
    each_within(fixture, Instant::now(), ORDER_MAX, |at| Ok(status(at)? == 200))?;
    let began = Instant::now();
    let gone = call(api, "DELETE", &format!("/v1/keys/{id}"), "")?;
    ensure!(gone.status < 300, "{}", gone.body);
    each_within(fixture, began, ORDER_MAX, |at| Ok(status(at)? == 401))
}
