//! Measures a store in Redis alone:
//! `cargo run --release -p postrider-store --features redis --example redis_bench -- URL`.
//! Prints rates and the processor time of the server for each delivery. No test depends on them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use postrider_core::model::message::Envelope;
use postrider_core::policy::ttl::DISPATCH_WINDOW;
use postrider_core::ports::store::*;
use postrider_core::{AddressHash, ChannelKind, Decision, LaneKey, Target, TenantId};
use postrider_store::{RedisOptions, RedisStore};

const LEASE: Duration = Duration::from_secs(60);
const WEBHOOK: ChannelKind = ChannelKind::new("webhook");
static NEXT: AtomicU64 = AtomicU64::new(1);

fn message(lanes: u64, keyed: bool) -> NewMessage {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let spread = u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let provider = format!("https://hook-{}.example", (spread >> 64) as u64 % lanes);
    let target =
        Target::new(WEBHOOK, &serde_json::json!({"url": format!("{provider}/{spread:032x}")}));
    let lane = LaneKey {
        tenant: TenantId::new("bench"),
        channel: WEBHOOK,
        provider: provider.into(),
        class: "transactional".into(),
    };
    let key = DedupKey {
        key: spread.to_be_bytes(),
        fingerprint: [1; 16],
        window: Duration::from_secs(86_400),
    };
    NewMessage {
        tenant: TenantId::new("bench"),
        class: "transactional".into(),
        ttl_s: 86_400,
        now_or_never: DISPATCH_WINDOW,
        member_keys: Vec::new(),
        send_at: None,
        envelope: Envelope::default(),
        content: "x".repeat(600).into(),
        dedup: keyed.then_some(key),
        deliveries: vec![NewDelivery {
            lane: Arc::new(lane),
            target: Arc::new(target),
            hash: AddressHash(spread.to_be_bytes()),
            recipient: None,
            address: None,
            address_since: None,
            alternatives: Vec::new(),
            is_wide: false,
            region: None,
        }],
    }
}

/// Processor time of the server, in seconds.
fn server_cpu(url: &str) -> f64 {
    let place =
        url.split("://").nth(1).and_then(|rest| rest.split(['/', '?']).next()).unwrap_or_default();
    let (host, port) = place.split_once(':').unwrap_or((place, "6379"));
    let done = std::process::Command::new("redis-cli")
        .args(["-h", host, "-p", port, "INFO", "cpu"])
        .output();
    let said =
        done.map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
    let value = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().parse::<f64>().ok()).unwrap_or(0.0)
    };
    value("used_cpu_user:") + value("used_cpu_sys:")
}

async fn lives(
    store: &Arc<RedisStore>,
    url: &str,
    lanes: u64,
    count: usize,
    keyed: bool,
) -> StoreResult<()> {
    let worker = store.consumer("bench").await?;
    let (began, cpu) = (Instant::now(), server_cpu(url));
    let accepting = {
        let store = store.clone();
        tokio::spawn(async move {
            let mut accepted = 0;
            let mut under_way = VecDeque::new();
            while accepted < count || !under_way.is_empty() {
                if accepted < count && under_way.len() < 4 {
                    let batch: Vec<_> = (0..500).map(|_| message(lanes, keyed)).collect();
                    accepted += batch.len();
                    let store = store.clone();
                    under_way.push_back(tokio::spawn(async move { store.accept(batch).await }));
                } else if let Some(first) = under_way.pop_front() {
                    for answer in first.await.unwrap_or_default() {
                        if let Err(error) = answer {
                            eprintln!("{error}");
                        }
                    }
                }
            }
        })
    };
    let mut sent = 0;
    let mut settling = VecDeque::new();
    while sent < count {
        let mut found = Vec::new();
        for lane in worker.ready_lanes(64).await? {
            found.extend(worker.lease(lane.id, 256, LEASE).await?);
            if found.len() >= 512 {
                break;
            }
        }
        if found.is_empty() && settling.is_empty() {
            worker.wait_for_work(Duration::from_millis(50)).await;
        }
        if !found.is_empty() {
            let settlements: Vec<_> = found
                .iter()
                .map(|leased| Settlement {
                    delivery: leased.delivery,
                    token: leased.token,
                    attempts: vec![postrider_store::conformance::success(1, leased.due_at)],
                    decision: Decision::Done,
                    learned: AddressLearning::default(),
                })
                .collect();
            let worker = worker.clone();
            settling.push_back(tokio::spawn(async move { worker.settle(settlements).await }));
        }
        let is_time = settling.len() >= 4 || found.is_empty();
        if is_time && let Some(first) = settling.pop_front() {
            sent += first.await.unwrap_or_default().iter().filter(|answer| answer.is_ok()).count();
        }
    }
    let took = began.elapsed().as_secs_f64();
    let _ = accepting.await;
    let cpu = (server_cpu(url) - cpu) * 1e6 / count as f64;
    println!(
        "{count} lives over {lanes} lanes, keys: {keyed}: {:.0}/s, server {cpu:.1} µs each",
        count as f64 / took
    );
    worker.close().await;
    Ok(())
}

async fn single_accepts(
    store: &Arc<RedisStore>,
    url: &str,
    callers: usize,
    count: usize,
    keyed: bool,
) {
    let (began, cpu) = (Instant::now(), server_cpu(url));
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..count / callers {
                    if let Err(error) = store.accept(vec![message(100, keyed)]).await.remove(0) {
                        eprintln!("{error}");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        let _ = task.await;
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let cpu = (server_cpu(url) - cpu) * 1e6 / count as f64;
    println!(
        "single accepts, {callers} callers, keys: {keyed}: {rate:.0}/s, server {cpu:.1} µs each"
    );
}

#[tokio::main]
async fn main() -> StoreResult<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1:6379/0".to_owned());
    let store = Arc::new(RedisStore::open(RedisOptions::parse(&url)?).await?);
    for (lanes, keyed) in [(16, true), (16, false), (1_000, true)] {
        lives(&store, &url, lanes, 100_000, keyed).await?;
    }
    for keyed in [true, false] {
        single_accepts(&store, &url, 64, 30_000, keyed).await;
    }
    Ok(())
}
