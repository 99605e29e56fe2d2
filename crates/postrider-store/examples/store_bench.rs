//! Measures the embedded store alone: `cargo run --release -p postrider-store --example store_bench`.
//! Prints rates and the processor time of one delivery. No test depends on them.
//! Arguments choose what to run: `accept`, `life`, `tenants`, `deep`, `held`, `finished`, `reopen`; all of it
//! without any.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider_core::model::decision::Decision;
use postrider_core::model::message::Envelope;
use postrider_core::policy::ttl::DISPATCH_WINDOW;
use postrider_core::ports::store::{
    AddressLearning, DedupKey, Ledger, NewDelivery, NewMessage, Retention, Settlement, StoreResult,
};
use postrider_core::{
    AddressHash, AttemptRecord, ChannelKind, Clock, LaneKey, Target, TenantId, Timestamp,
};
use postrider_store::conformance::WorkingStore;
use postrider_store::conformance::success;
use postrider_store::{ManualClock, StoreOptions, SystemClock};

const BODY: &str = r#"{"title":"Shipped","body":"Order 91 is on its way to you and will arrive tomorrow between nine and noon. Leave a note for the driver if you are out.","url":"https://shop.example/orders/91","data":{"order":91,"items":[1,2,3]}}"#;

static NEXT: AtomicU64 = AtomicU64::new(1);

struct Load {
    lanes: Vec<Arc<LaneKey>>,
    dedup: bool,
}

const WEBPUSH: ChannelKind = ChannelKind::new("webpush");

impl Load {
    fn new(lanes: u32, dedup: bool) -> Self {
        Self::of_tenants(1, lanes, dedup)
    }

    fn of_tenants(tenants: u32, lanes: u32, dedup: bool) -> Self {
        let lane = |n| LaneKey {
            tenant: TenantId::new(&format!("bench-{}", n % tenants)),
            channel: WEBPUSH,
            provider: format!("https://push-{n}.example").into(),
            class: "transactional".into(),
        };
        Self { lanes: (0..lanes).map(|n| Arc::new(lane(n))).collect(), dedup }
    }

    fn message(&self) -> NewMessage {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let spread = u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        let lane = &self.lanes[(spread >> 64) as usize % self.lanes.len()];
        let endpoint =
            format!("{}/wpush/v2/{spread:032x}{spread:032x}{spread:032x}", lane.provider);
        let fields = serde_json::json!({
            "endpoint": endpoint,
            "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            "auth": "BTBZMqHH6r4Tts7J_aSIgg",
        });
        let target = Target::new(WEBPUSH, &fields);
        NewMessage {
            tenant: lane.tenant.clone(),
            class: lane.class.clone(),
            ttl_s: 86_400,
            now_or_never: DISPATCH_WINDOW,
            member_keys: Vec::new(),
            send_at: None,
            envelope: Envelope::default(),
            content: BODY.into(),
            dedup: self.dedup.then(|| DedupKey {
                key: spread.to_le_bytes(),
                fingerprint: [1; 16],
                window: Duration::from_secs(86_400),
            }),
            deliveries: vec![NewDelivery {
                lane: lane.clone(),
                target: Arc::new(target),
                hash: AddressHash(spread.to_le_bytes()),
                recipient: None,
                address: None,
                address_since: None,
                alternatives: Vec::new(),
                is_wide: false,
                region: None,
            }],
        }
    }

    fn batch(&self, size: usize) -> Vec<NewMessage> {
        (0..size).map(|_| self.message()).collect()
    }
}

struct Meter {
    start: Instant,
    cpu: Duration,
    threads: BTreeMap<String, Duration>,
}

impl Meter {
    fn start() -> Self {
        Self { start: Instant::now(), cpu: cpu(), threads: thread_times() }
    }

    fn print(&self, what: &str, jobs: u64) {
        let took = self.start.elapsed().as_secs_f64();
        let cpu = (cpu() - self.cpu).as_secs_f64();
        let per_job = cpu * 1e6 / jobs as f64;
        println!(
            "{what:<58} {:>9.0}/s  {per_job:>6.1} µs CPU  RSS {} MB",
            jobs as f64 / took,
            rss_mb()
        );
    }

    /// Also says which threads took the time.
    fn print_threads(&self, what: &str, jobs: u64) {
        self.print(what, jobs);
        let mut threads = thread_times();
        threads.iter_mut().for_each(|(name, time)| {
            *time -= self.threads.get(name).copied().unwrap_or_default().min(*time);
        });
        let share = |(name, time): (&String, &Duration)| {
            format!("{name} {:.1}", time.as_secs_f64() * 1e6 / jobs as f64)
        };
        println!("  of these: {}", threads.iter().map(share).collect::<Vec<_>>().join(", "));
    }
}

/// Processor time by the names of threads that are still there.
fn thread_times() -> BTreeMap<String, Duration> {
    let mut times = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let name = stat.split(['(', ')']).nth(1).unwrap_or("").to_owned();
        *times.entry(name).or_default() += ticks(&stat);
    }
    times
}

/// Processor time of this process, from the kernel's own count.
fn cpu() -> Duration {
    ticks(&std::fs::read_to_string("/proc/self/stat").unwrap_or_default())
}

fn ticks(stat: &str) -> Duration {
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

fn rss_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn open(dir: &Path) -> StoreResult<Arc<WorkingStore>> {
    Ok(Arc::new(WorkingStore::open(dir, Arc::new(SystemClock), StoreOptions::default())?))
}

async fn accept(callers: usize, size: usize, jobs: u64) -> StoreResult<()> {
    let dir = tempfile::tempdir().map_err(io)?;
    let store = open(dir.path())?;
    let load = Arc::new(Load::new(50, true));
    let meter = Meter::start();
    let each = jobs / callers as u64 / size as u64;
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (store, load) = (store.clone(), load.clone());
            tokio::spawn(async move {
                for _ in 0..each {
                    store.accept(load.batch(size)).await?;
                }
                StoreResult::Ok(())
            })
        })
        .collect();
    for task in tasks {
        task.await.map_err(io)??;
    }
    let done = each * callers as u64 * size as u64;
    meter.print(&format!("accept, {callers} callers, batches of {size}"), done);
    Ok(())
}

fn io(error: impl std::fmt::Display) -> postrider_core::ports::store::StoreError {
    postrider_core::ports::store::StoreError::Io { what: error.to_string(), cause: None }
}

async fn preload(store: &Arc<WorkingStore>, load: &Load, jobs: u64) -> StoreResult<()> {
    for _ in 0..jobs.div_ceil(1024) {
        store.accept(load.batch(1024)).await?;
    }
    Ok(())
}

/// Takes what is due, as a dispatcher does, until `jobs` are done.
async fn drain(store: Arc<WorkingStore>, jobs: u64, at_once: usize) -> StoreResult<()> {
    let mut done = 0;
    let (settled, mut answers) = tokio::sync::mpsc::channel::<u64>(4);
    let mut open = 0;
    while done < jobs {
        let mut batch = Vec::new();
        for lane in store.ready_lanes(256).await? {
            for leased in store.lease(lane.id, at_once, Duration::from_secs(60)).await? {
                batch.push(Settlement {
                    delivery: leased.delivery,
                    token: leased.token,
                    attempts: vec![record(leased.tries + 1)],
                    decision: Decision::Done,
                    learned: AddressLearning::default(),
                });
            }
            if batch.len() >= 512 {
                break;
            }
        }
        if batch.is_empty() {
            if open > 0 {
                done += answers.recv().await.unwrap_or(0);
                open -= 1;
            } else {
                store.wait_for_work(Duration::from_secs(1)).await;
            }
            continue;
        }
        let (store, settled) = (store.clone(), settled.clone());
        tokio::spawn(async move {
            let size = batch.len() as u64;
            match store.settle(batch).await {
                Ok(_) => drop(settled.send(size).await),
                Err(error) => eprintln!("settle: {error}"),
            }
        });
        open += 1;
        while open >= 3 {
            done += answers.recv().await.unwrap_or(0);
            open -= 1;
        }
    }
    Ok(())
}

fn record(number: u32) -> AttemptRecord {
    success(number, Timestamp(1_794_722_400_123))
}

/// Accept, lease and settle, all at once, over a backlog that stays.
async fn life(tenants: u32, lanes: u32, backlog: u64, jobs: u64) -> StoreResult<()> {
    let dir = tempfile::tempdir().map_err(io)?;
    let store = open(dir.path())?;
    let load = Arc::new(Load::of_tenants(tenants, lanes, true));
    preload(&store, &load, backlog).await?;
    let meter = Meter::start();
    let feeder = {
        let (store, load) = (store.clone(), load.clone());
        tokio::spawn(async move {
            for _ in 0..jobs / 256 {
                store.accept(load.batch(256)).await?;
            }
            StoreResult::Ok(())
        })
    };
    let at_once = if lanes == 1 { 256 } else { 16 };
    drain(store.clone(), jobs / 256 * 256, at_once).await?;
    feeder.await.map_err(io)??;
    let what = format!("whole life, {tenants} tenants, {lanes} lanes, {backlog} pending");
    meter.print_threads(&what, jobs);
    Ok(())
}

async fn reopen(backlog: u64, lanes: u32) -> StoreResult<()> {
    let dir = tempfile::tempdir().map_err(io)?;
    let load = Load::new(lanes, true);
    {
        let store = open(dir.path())?;
        preload(&store, &load, backlog).await?;
        let before = rss_mb();
        store.close().await;
        println!("{:<58} RSS {before} MB", format!("{backlog} pending in {lanes} lanes"));
    }
    let start = Instant::now();
    let store = open(dir.path())?;
    let opened = start.elapsed();
    let lane = store.ready_lanes(1).await?.remove(0);
    let leased = store.lease(lane.id, 100, Duration::from_secs(60)).await?;
    println!(
        "{:<58} opened in {opened:.0?}, first {} leased after {:.0?}",
        format!("reopen with {backlog} pending in {lanes} lanes"),
        leased.len(),
        start.elapsed()
    );
    Ok(())
}

/// Lanes that are set aside cost nothing per round, and what expires in them costs what it is.
async fn held(lanes: u32, jobs: u64) -> StoreResult<()> {
    const ROUNDS: u64 = 20_000;
    let dir = tempfile::tempdir().map_err(io)?;
    let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
    let store = Arc::new(WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default())?);
    let load = Load::new(lanes, false);
    preload(&store, &load, jobs).await?;
    let ready = store.ready_lanes(usize::MAX).await?;
    ready.iter().for_each(|l| store.suspend(l.id, clock.now() + Duration::from_secs(1 << 30)));
    let meter = Meter::start();
    for _ in 0..ROUNDS {
        store.ready_lanes(256).await?;
    }
    meter.print(&format!("a round with {} lanes set aside", ready.len()), ROUNDS);
    clock.advance(Duration::from_secs(90_000));
    let meter = Meter::start();
    let mut expired = 0;
    loop {
        let leased = store.lease_expired(512, Duration::from_secs(60)).await?;
        if leased.is_empty() {
            break;
        }
        let settlement = |leased: &postrider_core::ports::store::LeasedDelivery| Settlement {
            delivery: leased.delivery,
            token: leased.token,
            attempts: Vec::new(),
            decision: Decision::Expire,
            learned: AddressLearning::default(),
        };
        expired += leased.len() as u64;
        store.settle(leased.iter().map(|(_, leased)| settlement(leased)).collect()).await?;
    }
    meter.print(&format!("expired while set aside, {lanes} lanes"), expired);
    Ok(())
}

/// What a finished message takes on disk, before and after it is packed, and what packing costs.
async fn finished(jobs: u64) -> StoreResult<()> {
    let dir = tempfile::tempdir().map_err(io)?;
    let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
    let store = Arc::new(WorkingStore::open(dir.path(), clock.clone(), StoreOptions::default())?);
    preload(&store, &Load::new(50, false), jobs).await?;
    drain(store.clone(), jobs, 16).await?;
    let report = |what: &str| -> StoreResult<()> {
        let conn = rusqlite::Connection::open(dir.path().join("postrider.db")).map_err(io)?;
        let number =
            |pragma: &str| conn.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        let pages = number("page_count").map_err(io)? - number("freelist_count").map_err(io)?;
        println!("{what:<58} {:>9.0} bytes each", pages as f64 * 4096.0 / jobs as f64);
        Ok(())
    };
    report(&format!("{jobs} finished messages"))?;
    clock.advance(Duration::from_secs(600));
    let meter = Meter::start();
    for _ in 0..jobs / 400 {
        store.prune(&Retention::of(Duration::from_secs(86_400))).await?;
    }
    meter.print("packed", jobs);
    report("after packing")
}

/// Numbers among the arguments, or the usual three.
fn lane_counts(asked: &[String]) -> Vec<u32> {
    let given: Vec<u32> = asked.iter().filter_map(|a| a.parse().ok()).collect();
    if given.is_empty() { vec![1, 1_000, 100_000] } else { given }
}

#[tokio::main]
async fn main() -> StoreResult<()> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let runs = |what: &str| asked.is_empty() || asked.iter().any(|a| a == what);
    if runs("accept") {
        accept(1, 1, 2_000).await?;
        accept(64, 1, 100_000).await?;
        accept(8, 64, 300_000).await?;
        accept(8, 1024, 500_000).await?;
    }
    if runs("life") {
        for lanes in lane_counts(&asked) {
            life(1, lanes, 1_000, 200_000).await?;
        }
    }
    if runs("tenants") {
        life(1_000, 1_000, 1_000, 200_000).await?;
    }
    if runs("deep") {
        for lanes in lane_counts(&asked) {
            life(1, lanes, 1_000_000, 200_000).await?;
        }
    }
    if runs("held") {
        for lanes in lane_counts(&asked) {
            held(lanes, 200_000).await?;
        }
    }
    if runs("finished") {
        finished(204_800).await?;
    }
    if runs("reopen") {
        reopen(1_000_000, 50).await?;
        reopen(1_000_000, 100_000).await?;
    }
    Ok(())
}
