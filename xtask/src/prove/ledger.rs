//! Fills a server with deliveries of a thousand tenants and with dead letters, and asks for lists by every filter while
//! others go on. Each list must be fast, and must cost the others nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use postrider_testkit::harm_bounds::percentile;
use postrider_testkit::http::{TestConnection, call};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use postrider_testkit::random::SimRng;
use serde_json::json;

use crate::shell;

/// One delivery in so many is a dead letter.
const DEAD_ONE_IN: u64 = 25;
/// Messages of one call while the server is filled.
const BATCH: u64 = 100;
const P95_MS: i64 = 100;
/// What the rates may lose while lists are asked for.
const LOSS: f64 = 0.05;

struct Sizes {
    deliveries: u64,
    tenants: u64,
    per_s: u64,
    seconds: u64,
    binary: Option<PathBuf>,
}

/// `--deliveries N`, `--tenants N`, `--per-s N`, `--seconds N` (of each half), `--binary FILE`.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let sizes = sizes(args)?;
    let binary = match &sizes.binary {
        Some(binary) => binary.clone(),
        None => {
            shell::step(&shell::root(), &["cargo", "build", "--release", "-p", "postrider"])?;
            shell::root().join("target/release/postrider")
        }
    };
    let rule = "[[classify]]\nservice = \"webhook\"\nstatus = 400\noutcome = \"drop_message\"\n";
    let open = "[server]\nkey_requests_per_s = 0.0\naddress_requests_per_s = 0.0\n[log]\nlevel = \"warn\"\n";
    let mut fixture = ProcessFixture::new(binary, &format!("{LOCAL_TARGETS}{rule}{open}"))?;
    let sandbox = fixture.start_sandbox(&[])?;
    let script = json!({"script": ["400"]}).to_string();
    ensure!(call(sandbox, "PUT", "/sandbox/hooks/dead", &script)?.status < 300);
    fixture.start()?;
    let world = LedgerWorld { server: fixture.server_at, sandbox, tenants: sizes.tenants };
    world.fill(sizes.deliveries)?;
    let quiet = world.measure(&sizes, false)?;
    let asked = world.measure(&sizes, true)?;
    report(&quiet, &asked)
}

fn sizes(args: &[&str]) -> Result<Sizes> {
    let mut sizes =
        Sizes { deliveries: 5_000_000, tenants: 1_000, per_s: 1_000, seconds: 60, binary: None };
    let mut words = args.iter().copied();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word {
            "--deliveries" => sizes.deliveries = value.parse()?,
            "--tenants" => sizes.tenants = value.parse()?,
            "--per-s" => sizes.per_s = value.parse()?,
            "--seconds" => sizes.seconds = value.parse()?,
            "--binary" => sizes.binary = Some(value.into()),
            other => bail!(
                "{other} is not known here: --deliveries N, --tenants N, --per-s N, --seconds N, --binary FILE"
            ),
        }
    }
    Ok(sizes)
}

#[derive(Clone)]
struct LedgerWorld {
    server: SocketAddr,
    sandbox: SocketAddr,
    tenants: u64,
}

/// What happened in one half of the measurement.
struct Measured {
    accepted_per_s: f64,
    delivered_per_s: f64,
    /// Milliseconds of each call, by the names of its filters.
    calls: BTreeMap<String, Vec<i64>>,
}

impl LedgerWorld {
    fn line(&self, rng: &mut SimRng, n: u64) -> String {
        let hook = if n.is_multiple_of(DEAD_ONE_IN) { "dead" } else { "sent" };
        // The same address by two names is two providers.
        let host = if rng.below(3) == 0 { "localhost" } else { "127.0.0.1" };
        let class = if rng.below(4) == 0 { "marketing" } else { "transactional" };
        let mut message = json!({
            "to": {"address": {"channel": "webhook", "url": format!("http://{host}:{}/hook/{hook}", self.sandbox.port())}},
            "content": {"data": {"n": n}}, "class": class,
        });
        if n.is_multiple_of(10) {
            message["tags"] = json!([format!("tag-{}", n % 100)]);
        }
        if n.is_multiple_of(20) {
            message["campaign"] = format!("campaign-{}", n / 100_000).into();
        }
        message.to_string()
    }

    /// Hands in messages of one tenant; answers how many were accepted.
    fn hand_in(
        &self,
        connection: &mut TestConnection,
        rng: &mut SimRng,
        (from, count): (u64, u64),
    ) -> Result<u64> {
        let tenant = format!("tenant-{}", rng.below(self.tenants));
        let lines: Vec<_> = (from..from + count).map(|n| self.line(rng, n)).collect();
        let path = "/v1/messages/batch";
        let answer = connection.call_ok("POST", path, Some(&tenant), &lines.join("\n"))?;
        Ok(answer.lines().filter(|line| line.contains("\"status\":202")).count() as u64)
    }

    fn fill(&self, deliveries: u64) -> Result<()> {
        let (mut connection, mut rng) = (TestConnection::open(self.server)?, SimRng::new(1));
        let (begin, mut from) = (Instant::now(), 0);
        while from < deliveries {
            let accepted = self.hand_in(&mut connection, &mut rng, (from, BATCH))?;
            if accepted < BATCH {
                std::thread::sleep(Duration::from_millis(50));
            }
            from += accepted;
            // What waits is delivered before there is more of it.
            if from % 50_000 < BATCH {
                self.await_drained(&mut connection)?;
                println!("{from} deliveries after {:.0?}", begin.elapsed());
            }
        }
        self.await_drained(&mut connection)
    }

    fn await_drained(&self, connection: &mut TestConnection) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(600);
        while self.count(connection, &["queued", "sending", "retrying", "parked"])? > 0 {
            ensure!(Instant::now() < deadline, "deliveries still wait after ten minutes");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn count(&self, connection: &mut TestConnection, states: &[&str]) -> Result<u64> {
        let stats = connection.get_json("/v1/stats")?;
        Ok(states.iter().filter_map(|state| stats["states"][state].as_u64()).sum())
    }

    /// A half: others go on at a rate, and lists are asked for or not.
    fn measure(&self, sizes: &Sizes, asks: bool) -> Result<Measured> {
        let stop = Arc::new(AtomicBool::new(false));
        let accepted = Arc::new(AtomicU64::new(0));
        let sender = self.clone().send(sizes.per_s, stop.clone(), accepted.clone());
        std::thread::sleep(Duration::from_secs(2));
        let mut connection = TestConnection::open(self.server)?;
        let (first, sent) =
            (accepted.load(Ordering::Relaxed), self.count(&mut connection, &["sent", "failed"])?);
        let (begin, length) = (Instant::now(), Duration::from_secs(sizes.seconds));
        let mut calls = BTreeMap::new();
        let mut rng = SimRng::new(7);
        while begin.elapsed() < length {
            match asks {
                true => self.ask(&mut connection, &mut rng, &mut calls)?,
                false => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let accepted_per_s = (accepted.load(Ordering::Relaxed) - first) as f64 / seconds;
        let sent_now = self.count(&mut connection, &["sent", "failed"])?;
        stop.store(true, Ordering::Relaxed);
        match sender.join() {
            Ok(done) => done?,
            Err(_) => bail!("the sender panicked"),
        }
        Ok(Measured { accepted_per_s, delivered_per_s: (sent_now - sent) as f64 / seconds, calls })
    }

    fn send(
        self,
        per_s: u64,
        stop: Arc<AtomicBool>,
        accepted: Arc<AtomicU64>,
    ) -> JoinHandle<Result<()>> {
        std::thread::spawn(move || {
            let (mut connection, mut rng) = (TestConnection::open(self.server)?, SimRng::new(3));
            let (begin, mut n) = (Instant::now(), 1);
            while !stop.load(Ordering::Relaxed) {
                let due = Duration::from_secs_f64(n as f64 / per_s as f64);
                std::thread::sleep(due.saturating_sub(begin.elapsed()));
                let done = self.hand_in(&mut connection, &mut rng, (n, 50))?;
                accepted.fetch_add(done, Ordering::Relaxed);
                n += 50;
            }
            Ok(())
        })
    }

    /// One list by a drawn choice of filters.
    fn ask(
        &self,
        connection: &mut TestConnection,
        rng: &mut SimRng,
        calls: &mut BTreeMap<String, Vec<i64>>,
    ) -> Result<()> {
        let is_dead = rng.below(2) == 0;
        let tenant = match rng.below(3) {
            0 => "*".to_owned(),
            _ => format!("tenant-{}", rng.below(self.tenants)),
        };
        let host = if rng.below(3) == 0 { "localhost" } else { "127.0.0.1" };
        let all = [
            ("state", ["sent", "failed", "gone", "queued"][rng.index(4)].to_owned()),
            ("reason", ["permanent", "ttl"][rng.index(2)].to_owned()),
            ("channel", "webhook".to_owned()),
            ("provider", format!("http://{host}:{}", self.sandbox.port())),
            ("class", ["marketing", "transactional", "otp"][rng.index(3)].to_owned()),
            ("account", "none".to_owned()),
            ("error", "400".to_owned()),
            ("tag", format!("tag-{}", rng.below(100))),
            ("campaign", format!("campaign-{}", rng.below(50))),
            ("recipient", "nobody".to_owned()),
            ("idempotency_key", "nobody-has-it".to_owned()),
            ("since", "2020-01-01T00:00:00Z".to_owned()),
        ];
        let chosen: Vec<_> = all
            .into_iter()
            .filter(|(name, _)| !(is_dead && *name == "state"))
            .filter(|(name, _)| !(tenant == "*" && *name == "idempotency_key"))
            .filter(|_| rng.below(5) == 0)
            .collect();
        let list = if is_dead { "dead-letters" } else { "deliveries" };
        let query = chosen.iter().map(|(name, value)| format!("&{name}={}", encoded(value)));
        let path = format!("/v1/{list}?limit=50{}", query.collect::<String>());
        let begin = Instant::now();
        connection.call_ok("GET", &path, Some(&tenant), "")?;
        let took = begin.elapsed().as_millis() as i64;
        let who = if tenant == "*" { "all tenants" } else { "one tenant" };
        calls.entry(format!("{list}, {who}")).or_default().push(took);
        for (name, _) in &chosen {
            calls.entry(format!("{list}, {who}, {name}")).or_default().push(took);
        }
        Ok(())
    }
}

fn encoded(text: &str) -> String {
    text.replace(':', "%3A").replace('/', "%2F")
}

fn report(quiet: &Measured, asked: &Measured) -> Result<()> {
    println!("{:<48} {:>7} {:>7} {:>7}", "list and filter", "calls", "p50 ms", "p95 ms");
    let mut slow = Vec::new();
    for (name, times) in &asked.calls {
        let (half, most) = (percentile(times.clone(), 0.5), percentile(times.clone(), 0.95));
        println!("{name:<48} {:>7} {half:>7} {most:>7}", times.len());
        if most >= P95_MS {
            slow.push(format!("{name}: {most} ms"));
        }
    }
    for (what, before, during) in [
        ("accepted/s", quiet.accepted_per_s, asked.accepted_per_s),
        ("delivered/s", quiet.delivered_per_s, asked.delivered_per_s),
    ] {
        println!("{what:<12} {before:>8.0} without lists, {during:>8.0} with them");
        ensure!(during >= before * (1.0 - LOSS), "lists cost more than 5 % of {what}");
    }
    ensure!(slow.is_empty(), "p95 is not below {P95_MS} ms: {}", slow.join("; "));
    println!("\nProven: every list is fast, and costs the others nothing.");
    Ok(())
}
