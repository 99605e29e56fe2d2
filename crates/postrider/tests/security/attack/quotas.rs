//! One tenant, or several that act together, fill every quota as fast as they can.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider_testkit::process::LOCAL_TARGETS;
use postrider_testkit::server::STRIKE_RULES;
use serde_json::{Value, json};

use super::load::{DelayBound, Line, Receiver, run_attack, steady};
use super::{attacked, size};
use crate::fixture::{Attacker, message};

const DEAD_LETTER_BYTES_MAX: u64 = 32 << 20;
/// The quotas of each tenant. Those that have two kinds of things in the store are reached by one of them.
const QUOTAS: [(&str, u64); 15] = [
    ("addresses_max", 1_000),
    ("audience_max", 500),
    ("templates_max", 50),
    ("template_bytes_max", 1 << 20),
    ("dead_letters_max", 1_000),
    ("dead_letter_bytes_max", DEAD_LETTER_BYTES_MAX),
    ("lanes_max", 200),
    ("strikes_max", 50),
    // More marks at once hold the lane up, because no provider loses so many addresses.
    ("gone_marks_max", 30),
    ("keys_max", 20),
    ("vapid_keys_max", 5),
    ("webhook_secrets_max", 5),
    ("event_subscriptions_max", 5),
    ("pauses_max", 10),
    ("deliveries_max", 1_000_000),
];
const COUNTED_AT_ONCE: [&str; 6] = [
    "templates_max",
    "keys_max",
    "vapid_keys_max",
    "webhook_secrets_max",
    "event_subscriptions_max",
    "pauses_max",
];
/// A quota is measured every second; this is for a measurement that takes its time.
const MEASURED_EVERY: Duration = Duration::from_secs(3);
/// Nobody needs longer to fill the quotas.
const FILLED_WITHIN: Duration = Duration::from_secs(120);
const BODY_BYTES: usize = 900_000;

/// One kind of what stays: the tenant that adds it, the quota that it fills, and the calls.
struct FloodKind {
    tenant: &'static str,
    quota: &'static str,
    method: &'static str,
    path: fn(u64) -> String,
    body: FloodBody,
}

type FloodBody = Arc<dyn Fn(u64) -> String + Send + Sync>;

fn to(url: String) -> Value {
    json!({
        "to": {"address": {"channel": "webhook", "url": url}},
        "content": {"title": "x"}, "retry": {"retries": 0},
    })
}

fn to_host(number: u64) -> String {
    let mut message = message();
    message["to"] = to(format!("https://host-{number}.example.com/"))["to"].take();
    message.to_string()
}

/// A full quota of dead letters, strikes or gone marks ends all messages of its tenant, so each has its own tenant.
fn kinds(receiver: &Receiver) -> Vec<FloodKind> {
    let at = receiver.at;
    let mut large = to(format!("http://{at}/bad"));
    large["content"]["title"] = "x".repeat(BODY_BYTES).into();
    let large = large.to_string();
    let one = |tenant, quota, method, path, body: FloodBody| FloodKind {
        tenant,
        quota,
        method,
        path,
        body,
    };
    let messages: fn(u64) -> String = |_| "/v1/messages".to_owned();
    let post = |quota, path, body| one("greedy", quota, "POST", path, body);
    let put = |quota, path, body| one("greedy", quota, "PUT", path, body);
    let nothing: FloodBody = Arc::new(|_| "{}".to_owned());
    let address = |n| json!({"channel": "webhook", "url": format!("https://example.com/{n}")});
    let template = json!({"locales": {"en": {"title": "Hello"}}}).to_string();
    let key = json!({"name": "more", "scope": "read"}).to_string();
    vec![
        post("lanes_max", messages, Arc::new(to_host)),
        post(
            "addresses_max",
            |_| "/v1/addresses".into(),
            Arc::new(move |n| address(n).to_string()),
        ),
        put("audience_max", |n| format!("/v1/recipients/person-{n}"), nothing.clone()),
        put(
            "templates_max",
            |n| format!("/v1/templates/t{n}"),
            Arc::new(move |_| template.clone()),
        ),
        post("keys_max", |_| "/v1/keys".into(), Arc::new(move |_| key.clone())),
        post("vapid_keys_max", |_| "/v1/vapid/rotate".into(), nothing.clone()),
        post("webhook_secrets_max", |_| "/v1/webhook-secrets/rotate".into(), nothing.clone()),
        post("event_subscriptions_max", |_| "/v1/event-subscriptions".into(), nothing.clone()),
        // Lanes of all tenants have numbers from 1.
        post("pauses_max", |n| format!("/v1/lanes/{}/pause", n % 1_000), nothing),
        one("letters", "dead_letter_bytes_max", "POST", messages, Arc::new(move |_| large.clone())),
        one("struck", "strikes_max", "POST", messages, {
            Arc::new(move |n| to(format!("http://{at}/struck/{n}")).to_string())
        }),
        one("gone", "gone_marks_max", "POST", messages, {
            Arc::new(move |n| to(format!("http://{at}/gone/{n}")).to_string())
        }),
    ]
}

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

    fn counts(&self) -> (u64, u64, u64) {
        let [accepted, refused, peak] = [&self.accepted, &self.refused, &self.peak];
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (count(accepted), count(refused), count(peak))
    }
}

async fn flood(
    caller: Attacker,
    (method, path, body): (&'static str, fn(u64) -> String, FloodBody),
    first: u64,
    counts: Arc<Flood>,
    is_over: Arc<AtomicBool>,
) {
    let mut line = Line::open(&caller).await;
    for number in first.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let path = path(number);
        match line.call(method, &path, &body(number)).await {
            Some(200..=202) => counts.accept(),
            Some(403 | 429) => drop(counts.refused.fetch_add(1, Ordering::Relaxed)),
            Some(404) if path.contains("/lanes/") => {}
            Some(status) => panic!("{path} answered {status}"),
            None => line = Line::open(&caller).await,
        }
    }
}

/// What is used of a quota, and what is allowed.
async fn quota(admin: &Attacker, tenant: &str, name: &str) -> (u64, u64) {
    let shown = admin.get(&format!("/v1/tenants/{tenant}")).await.json();
    let mut quotas = shown["quotas"].as_array().unwrap().iter();
    let quota = quotas.find(|quota| quota["quota"] == name).unwrap();
    (quota["used"].as_u64().unwrap(), quota["allowed"].as_u64().unwrap())
}

fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |path: std::path::PathBuf| match path.is_dir() {
        true => bytes_below(&path),
        false => std::fs::metadata(&path).map_or(0, |data| data.len()),
    };
    entries.flatten().map(|entry| size(entry.path())).sum()
}

/// A number of the server's `/proc/PID/status`, in bytes.
fn memory(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

/// The processor time that a process has used.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind_name = stat.rsplit_once(')').unwrap().1;
    let ticks = behind_name.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

/// Those who fill the quotas, and what became of their calls.
struct QuotaAttack {
    floods: Vec<(FloodKind, Arc<Flood>)>,
    is_over: Arc<AtomicBool>,
    callers: std::thread::JoinHandle<()>,
}

impl QuotaAttack {
    async fn start(admin: &Attacker, receiver: &Receiver) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (mut lines, mut floods) = (Vec::new(), Vec::new());
        for kind in kinds(receiver) {
            let greedy = admin.scoped("admin", kind.tenant).await;
            let counts = Arc::new(Flood::default());
            // What few calls fill needs few callers.
            let is_daily = ["/v1/messages", "/v1/addresses"].contains(&(kind.path)(0).as_str());
            let count = if is_daily { size("QUOTA_LINES", 1.0) as u64 } else { 1 };
            for line in 0..count {
                // Each line has numbers of its own.
                let calls = (kind.method, kind.path, kind.body.clone());
                let (counts, is_over) = (counts.clone(), is_over.clone());
                lines.push(flood(greedy.clone(), calls, line << 32, counts, is_over));
            }
            floods.push((kind, counts));
        }
        let callers = run_attack(async {
            let lines: Vec<_> = lines.into_iter().map(tokio::spawn).collect();
            for line in lines {
                line.await.unwrap();
            }
        });
        Self { floods, is_over, callers }
    }

    /// Waits until every quota is full.
    async fn await_full(&self, admin: &Attacker) {
        let began = Instant::now();
        for (FloodKind { tenant, quota: name, .. }, counts) in &self.floods {
            loop {
                let (used, allowed) = quota(admin, tenant, name).await;
                if used >= allowed {
                    break;
                }
                assert!(began.elapsed() < FILLED_WITHIN, "{name}: {used}, {:?}", counts.counts());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }

    fn refused(&self) -> u64 {
        self.floods.iter().map(|(_, counts)| counts.counts().1).sum()
    }

    fn end(self) -> Vec<(FloodKind, Arc<Flood>)> {
        self.is_over.store(true, Ordering::Relaxed);
        self.callers.join().unwrap();
        self.floods
    }
}

/// Checks that no quota is exceeded by more than what is added between two measurements. Answers the accepted bytes of
/// dead letters.
async fn check_quotas(admin: &Attacker, floods: &[(FloodKind, Arc<Flood>)]) -> u64 {
    tokio::time::sleep(MEASURED_EVERY).await;
    let mut stored = 0;
    for (FloodKind { tenant, quota: name, .. }, counts) in floods {
        let (accepted, refused, peak) = counts.counts();
        let (used, allowed) = quota(admin, tenant, name).await;
        println!("{name}: {accepted} accepted, {refused} refused, {used} of {allowed} used");
        let each = if *name == "dead_letter_bytes_max" { BODY_BYTES as u64 + 1_000 } else { 1 };
        stored += if each > 1 { accepted * each } else { 0 };
        // What is counted in the store can be exceeded by what is added until the next measurement, and by no more.
        let more = if COUNTED_AT_ONCE.contains(name) { 0 } else { (peak + 1) * each };
        assert!(refused > 0 && used <= allowed + more, "{name}: {used} of {allowed}, {peak}");
        // Pausing a lane again is no new pause.
        let is_once = *name != "pauses_max";
        assert!(!is_once || accepted * each <= 2 * allowed + more, "{name}: {accepted} accepted");
    }
    stored
}

fn limited() -> String {
    let mut config =
        format!("{LOCAL_TARGETS}{STRIKE_RULES}[limits]\nrotations_per_minute = 1000\n");
    for tenant in ["greedy", "letters", "struck", "gone"] {
        config += &format!("[tenants.{tenant}]\n");
        QUOTAS.iter().for_each(|(name, max)| config += &format!("{name} = {max}\n"));
    }
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_fills_every_quota_costs_others_nothing() {
    let (seconds, per_s) = (size("SECONDS", 3.0), size("QUOTA_PER_S", 20.0));
    let times = size("QUOTA_TIMES", 40.0);
    let floor = Duration::from_millis(size("FLOOR_MS", 10.0) as u64);
    let server = attacked(&limited());
    let receiver = Receiver::start().await;
    let admin = Attacker::admin(&server);
    let honest = admin.scoped("send", "shop").await;
    let pid = server.pid().unwrap();
    let quiet_s = seconds.min(60.0);
    let start = processor_time(pid);
    let before = steady(&honest, &receiver, "before", (per_s, quiet_s)).await;
    let (memory_before, quiet) = (memory(pid, "VmRSS:"), processor_time(pid));

    let attack = QuotaAttack::start(&admin, &receiver).await;
    let during = steady(&honest, &receiver, "during", (per_s, seconds)).await;
    let (used, refused) = (processor_time(pid) - quiet, attack.refused());
    attack.await_full(&admin).await;
    let (held, disk) = (memory(pid, "VmRSS:"), bytes_below(&server.path("data")));
    let anonymous = memory(pid, "RssAnon:");
    let floods = attack.end();
    println!(
        "for {seconds} s at {per_s}/s: memory {} to {} MB ({} MB without files), disk {} MB",
        memory_before >> 20,
        held >> 20,
        anonymous >> 20,
        disk >> 20,
    );
    let share = |time: Duration, seconds: f64| 100.0 * time.as_secs_f64() / seconds;
    println!(
        "the server used {:.0} % of a core undisturbed and {:.0} % under attack; {:.0} refused calls/s",
        share(quiet - start, quiet_s),
        share(used, seconds),
        refused as f64 / seconds
    );
    let stored = check_quotas(&admin, &floods).await;
    assert!(disk <= 3 * stored + (256 << 20), "{disk} bytes on disk for {stored} of letters");
    assert!(held <= memory_before + stored + (256 << 20), "{held} bytes of memory");
    DelayBound { times, floor }.check(&before, &during);
}
