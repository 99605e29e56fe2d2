//! One tenant fills every quota as fast as it can.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_testkit::process::LOCAL_TARGETS;
use serde_json::json;

use super::load::{Line, Receiver, steady};
use super::{attacked, size};
use crate::fixture::Attacker;

const NOISE: Duration = Duration::from_millis(10);
const LANES_MAX: u64 = 500;
const ADDRESSES_MAX: u64 = 5_000;
const DEAD_LETTER_BYTES_MAX: u64 = 64 << 20;
/// A quota is measured every second; this is for a measurement that takes its time.
const MEASURED_EVERY: Duration = Duration::from_secs(2);
const BODY_BYTES: usize = 900_000;

/// How much of one kind was accepted, and how much at the most in the time of a measurement.
#[derive(Default)]
struct Flood {
    accepted: AtomicU64,
    refused: AtomicU64,
    peak: AtomicU64,
    /// What was accepted in the time of the last measurement.
    recent: Mutex<VecDeque<Instant>>,
}

impl Flood {
    fn accept(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let (mut recent, now) = (self.recent.lock().unwrap(), Instant::now());
        recent.push_back(now);
        while recent.front().is_some_and(|at| now - *at > MEASURED_EVERY) {
            recent.pop_front();
        }
        self.peak.fetch_max(recent.len() as u64, Ordering::Relaxed);
    }
}

type FloodBody = Box<dyn Fn(u64) -> String + Send>;

async fn flood(
    caller: Attacker,
    path: &'static str,
    body: FloodBody,
    counts: Arc<Flood>,
    is_over: Arc<AtomicBool>,
) {
    let mut line = Line::open(&caller).await;
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        match line.call("POST", path, &body(number)).await {
            Some(201 | 202) => counts.accept(),
            Some(403 | 429) => drop(counts.refused.fetch_add(1, Ordering::Relaxed)),
            Some(status) => panic!("{path} answered {status}"),
            None => line = Line::open(&caller).await,
        }
    }
}

fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |path: std::path::PathBuf| match path.is_dir() {
        true => bytes_below(&path),
        false => std::fs::metadata(&path).map_or(0, |data| data.len()),
    };
    entries.flatten().map(|entry| size(entry.path())).sum()
}

fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_fills_every_quota_costs_others_nothing() {
    let (seconds, per_s) = (size("SECONDS", 3.0), size("QUOTA_PER_S", 20.0));
    let times = size("QUOTA_TIMES", 40.0);
    let config = format!(
        "{LOCAL_TARGETS}[tenants.greedy]\nlanes_max = {LANES_MAX}\naddresses_max = {ADDRESSES_MAX}\n\
         dead_letter_bytes_max = {DEAD_LETTER_BYTES_MAX}\ndead_letters_max = 1000\n"
    );
    let server = attacked(&config);
    let receiver = Receiver::start().await;
    let admin = Attacker::admin(&server);
    let honest = admin.scoped("send", "shop").await;
    let before = steady(&honest, &receiver, "before", (per_s, seconds.min(60.0))).await;
    let (memory_before, pid) = (memory(server.pid().unwrap()), server.pid().unwrap());

    let greedy = admin.scoped("send,manage", "greedy").await;
    let is_over = Arc::new(AtomicBool::new(false));
    let [lanes, letters, addresses] = [(); 3].map(|()| Arc::new(Flood::default()));
    let at = receiver.at;
    let to_host = |n: u64| {
        let mut message = crate::fixture::message();
        let url = format!("https://host-{n}.example.com/");
        message["to"] = json!({"address": {"channel": "webhook", "url": url}});
        message.to_string()
    };
    let dead = json!({
        "to": {"address": {"channel": "webhook", "url": format!("http://{at}/bad")}},
        "content": {"title": "x".repeat(BODY_BYTES)}, "retry": {"retries": 0},
    });
    let dead = dead.to_string();
    let address = |n: u64| {
        json!({"channel": "webhook", "url": format!("https://example.com/{n}")}).to_string()
    };
    let mut attack = Vec::new();
    for line in 0..size("QUOTA_LINES", 1.0) as u64 {
        // Each line has numbers of its own.
        let own = move |n: u64| line << 32 | n;
        let (dead, is_over, greedy) = (dead.clone(), &is_over, &greedy);
        let start = |path, body: FloodBody, counts: &Arc<Flood>| {
            tokio::spawn(flood(greedy.clone(), path, body, counts.clone(), is_over.clone()))
        };
        attack.push(start("/v1/messages", Box::new(move |n| to_host(own(n))), &lanes));
        attack.push(start("/v1/messages", Box::new(move |_| dead.clone()), &letters));
        attack.push(start("/v1/addresses", Box::new(move |n| address(own(n))), &addresses));
    }
    let during = steady(&honest, &receiver, "during", (per_s, seconds)).await;
    let (held, disk) = (memory(pid), bytes_below(&server.path("data")));
    is_over.store(true, Ordering::Relaxed);
    for task in attack {
        task.await.unwrap();
    }
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let shown =
        |of: &Flood| format!("{} accepted, {} refused", count(&of.accepted), count(&of.refused));
    println!(
        "for {seconds} s: lanes {}, letters of 0.9 MB {}, addresses {}; memory {} to {} MB, disk {} MB; \
         others at {per_s}/s: accept p99 {:?} to {:?}, delivery p99 {:?} to {:?}",
        shown(&lanes),
        shown(&letters),
        shown(&addresses),
        memory_before >> 20,
        held >> 20,
        disk >> 20,
        before.accept_p99,
        during.accept_p99,
        before.delivery_p99,
        during.delivery_p99
    );
    println!(
        "accept p99 of each tenth: {:.1?}, undisturbed {:.1?}",
        during.accept_tenths, before.accept_tenths
    );
    // A limit can be exceeded by what is added until the next measurement.
    let within = |of: &Flood, max: u64| count(&of.accepted) <= max + count(&of.peak);
    assert!(within(&lanes, LANES_MAX), "lanes: {}", shown(&lanes));
    assert!(within(&addresses, ADDRESSES_MAX), "addresses: {}", shown(&addresses));
    let letters_max = DEAD_LETTER_BYTES_MAX / BODY_BYTES as u64 + 1;
    assert!(within(&letters, letters_max), "dead letters: {}", shown(&letters));
    let stored = count(&letters.accepted) * BODY_BYTES as u64;
    assert!(disk <= 3 * stored + (256 << 20), "{disk} bytes on disk for {stored} of letters");
    assert!(held <= memory_before + stored + (256 << 20), "{held} bytes of memory");
    assert!(during.accept_p99 <= before.accept_p99.max(NOISE).mul_f64(times), "{during:?}");
    assert!(during.delivery_p99 <= before.delivery_p99.max(NOISE).mul_f64(times), "{during:?}");
}
