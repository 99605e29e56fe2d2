//! The scenarios, one function each: set up, run, measure, check.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use postrider_testkit::http::TestConnection;

use super::ProofOptions;
use super::fixture::{LanesFixture, Received, accepted_at, now_ms, received, until};

const BY_REFUSING: &[&str] = &["--rate", "500"];
const BY_WAITING: &[&str] = &["--pace", "500"];

pub(super) fn noisy(options: &ProofOptions) -> Result<String> {
    noisy_neighbour(options, BY_REFUSING)
}

pub(super) fn noisy_paced(options: &ProofOptions) -> Result<String> {
    noisy_neighbour(options, BY_WAITING)
}

fn noisy_neighbour(options: &ProofOptions, limit: &[&str]) -> Result<String> {
    let mut fixture = LanesFixture::new("noisy", "")?;
    let sandbox = fixture.sandbox(limit, None)?;
    let queued = options.of(1_000_000);
    fixture.burst("noisy", "transactional", sandbox, queued)?;
    // Time to learn the provider's limit.
    std::thread::sleep(Duration::from_secs(10));
    let mut connection = TestConnection::open(fixture.server)?;
    let mut sent = Vec::new();
    for _ in 0..10 {
        for tenant in 1..=99 {
            let tenant = format!("quiet-{tenant}");
            sent.push(fixture.one(&mut connection, &tenant, "transactional", sandbox)?);
        }
    }
    let latencies = latencies(sandbox, &sent, Duration::from_secs(60))?;
    let (p50, p99) = (quantile(&latencies, 0.5), quantile(&latencies, 0.99));
    let left = queued as u64 - received(sandbox)?.distinct.min(queued as u64);
    let figures = format!(
        "{} of 99 tenants, p50 {p50} ms, p99 {p99} ms, while {left} of {queued} waited",
        sent.len()
    );
    ensure!(p99 < 5_000 && left > 0, "{figures}");
    Ok(figures)
}

pub(super) fn burst(options: &ProofOptions) -> Result<String> {
    codes_beside_a_burst(options, BY_REFUSING)
}

pub(super) fn burst_paced(options: &ProofOptions) -> Result<String> {
    codes_beside_a_burst(options, BY_WAITING)
}

fn codes_beside_a_burst(options: &ProofOptions, limit: &[&str]) -> Result<String> {
    let mut fixture = LanesFixture::new("burst", "")?;
    let sandbox = fixture.sandbox(limit, None)?;
    let queued = options.of(100_000);
    // From the first of the burst to nearly its last.
    let sent = std::thread::scope(|scope| {
        let codes =
            scope.spawn(|| codes(&fixture, sandbox, Duration::from_secs(queued as u64 / 550)));
        fixture.burst("shop", "marketing", sandbox, queued)?;
        codes.join().unwrap_or_else(|_| anyhow::bail!("sending the codes failed"))
    })?;
    let latencies = latencies(sandbox, &sent, Duration::from_secs(30))?;
    let (p50, p99) = (quantile(&latencies, 0.5), quantile(&latencies, 0.99));
    let left = queued as u64 - received(sandbox)?.distinct.min(queued as u64);
    let figures = format!(
        "{} codes, p50 {p50} ms, p99 {p99} ms, while {left} of {queued} waited",
        sent.len()
    );
    ensure!(p99 < 250 && left > 0, "{figures}");
    Ok(figures)
}

fn codes(fixture: &LanesFixture, to: SocketAddr, lasting: Duration) -> Result<Vec<(String, u64)>> {
    let mut connection = TestConnection::open(fixture.server)?;
    let (began, mut sent) = (Instant::now(), Vec::new());
    while began.elapsed() < lasting {
        sent.push(fixture.one(&mut connection, "shop", "otp", to)?);
        let next = Duration::from_millis(100) * sent.len() as u32;
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    Ok(sent)
}

pub(super) fn limited(options: &ProofOptions) -> Result<String> {
    let mut fixture = LanesFixture::new("limited", "")?;
    let sandbox = fixture.sandbox(&["--rate", "100"], None)?;
    fixture.burst("shop", "transactional", sandbox, options.of(30_000))?;
    std::thread::sleep(Duration::from_secs(30));
    let counts = over(sandbox, Duration::from_secs(60))?;
    let (per_s, refused) = (counts.per_s(), counts.refused_percent());
    let figures = format!("{per_s:.1} accepted per second, {refused:.2} % refused, for a minute");
    ensure!(per_s >= 95.0 && refused < 5.0, "{figures}");
    Ok(figures)
}

pub(super) fn slots(options: &ProofOptions) -> Result<String> {
    const LATENCY_S: f64 = 0.2;
    let mut fixture = LanesFixture::new("slots", "")?;
    let slow = "[[rule]]\nfault = \"slow:200\"\nshare = 1.0\n";
    let sandbox = fixture.sandbox(&["--concurrency", "5"], Some(slow))?;
    fixture.burst("shop", "transactional", sandbox, options.of(10_000))?;
    std::thread::sleep(Duration::from_secs(30));
    let counts = over(sandbox, Duration::from_secs(60))?;
    // By Little's law; each of them takes 200 ms.
    let in_use = counts.per_s() * LATENCY_S;
    let refused = counts.refused_percent();
    let figures = format!("{in_use:.2} of 5 slots in use on average, {refused:.2} % refused");
    ensure!((4.0..=5.1).contains(&in_use), "{figures}");
    Ok(figures)
}

pub(super) fn down(options: &ProofOptions) -> Result<String> {
    let down = Duration::from_secs(options.down_s);
    let mut fixture = LanesFixture::new("down", "")?;
    let healthy = fixture.sandbox(BY_WAITING, None)?;
    let before_s = 20;
    let enough = options.of(2_000_000).min(500 * (options.down_s as usize + 120));
    fixture.burst("other", "transactional", healthy, enough)?;
    std::thread::sleep(Duration::from_secs(5));
    let before = over(healthy, Duration::from_secs(before_s))?.per_s();
    // Down from its start, healthy afterwards.
    let fault = format!(
        "[[rule]]\nfault = \"503\"\nshare = 1.0\nwindow = {{ every_ms = 100000000, for_ms = {} }}\n",
        down.as_millis()
    );
    let queued = options.of(100_000);
    let began = Instant::now();
    let failing = fixture.sandbox(&[], Some(&fault))?;
    fixture.burst("shop", "transactional", failing, queued)?;
    let at_first = received(healthy)?;
    std::thread::sleep(down.saturating_sub(began.elapsed() + Duration::from_secs(1)));
    let meanwhile = between(at_first, received(healthy)?).per_s();
    let calls = received(failing)?.total as f64 / down.as_secs_f64();
    let drained = until("draining", Duration::from_secs(900), || {
        Ok(received(failing)?.distinct >= queued as u64)
    })?;
    let dead = fixture.dead_letters()?;
    let change = (meanwhile / before - 1.0) * 100.0;
    let figures = format!(
        "{calls:.2} calls per second in {} s of outage, {dead} dead letters, {queued} drained {:.0} s after it; the other provider {before:.0}/s before, {meanwhile:.0}/s meanwhile ({change:+.1} %)",
        down.as_secs(),
        drained.as_secs_f64()
    );
    ensure!(calls < 1.0 && dead == 0 && change.abs() < 10.0, "{figures}");
    Ok(figures)
}

/// Requests within a time span.
struct ScenarioRequests {
    accepted: u64,
    refused: u64,
    seconds: f64,
}

impl ScenarioRequests {
    fn per_s(&self) -> f64 {
        self.accepted as f64 / self.seconds
    }

    fn refused_percent(&self) -> f64 {
        self.refused as f64 * 100.0 / (self.accepted + self.refused).max(1) as f64
    }
}

fn between(before: Received, after: Received) -> ScenarioRequests {
    ScenarioRequests {
        accepted: after.accepted - before.accepted,
        refused: after.refused - before.refused,
        seconds: (after.at_ms - before.at_ms) as f64 / 1_000.0,
    }
}

fn over(sandbox: SocketAddr, time: Duration) -> Result<ScenarioRequests> {
    let before = received(sandbox)?;
    std::thread::sleep(time);
    Ok(between(before, received(sandbox)?))
}

/// Times from the 202 to the provider's acceptance in milliseconds, sorted.
fn latencies(sandbox: SocketAddr, sent: &[(String, u64)], at_most: Duration) -> Result<Vec<u64>> {
    let mut connection = TestConnection::open(sandbox)?;
    let (mut open, mut latencies): (Vec<_>, _) = (sent.iter().collect(), Vec::new());
    let deadline = now_ms() + at_most.as_millis() as u64;
    while !open.is_empty() && now_ms() < deadline {
        let mut still = Vec::new();
        for one in open {
            match accepted_at(&mut connection, &one.0)? {
                Some(at) => latencies.push((one.1, at.saturating_sub(one.1))),
                None => still.push(one),
            }
        }
        open = still;
        std::thread::sleep(Duration::from_millis(500));
    }
    // A delivery that has not arrived yet takes at least until now.
    latencies.extend(open.iter().map(|(_, accepted)| (*accepted, now_ms() - accepted)));
    let slow = latencies.iter().filter(|(_, took)| *took >= 250);
    let last = slow.clone().map(|(accepted, _)| accepted).max();
    if let (Some((_, began)), Some(last)) = (sent.first(), last) {
        let after_s = last.saturating_sub(*began) / 1_000;
        println!("{} took 250 ms or more, the last after {after_s} s", slow.count());
    }
    let mut latencies: Vec<_> = latencies.into_iter().map(|(_, took)| took).collect();
    latencies.sort_unstable();
    Ok(latencies)
}

fn quantile(sorted: &[u64], share: f64) -> u64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(0)
}
