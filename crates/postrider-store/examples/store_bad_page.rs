//! One bad page among a million pending deliveries: `cargo xtask prove badpage`. Two stores with the same work
//! send in turns, one of them with a damaged page of deliveries, and one of the index of pending work that is
//! damaged while it runs. Ends with an error if the damaged one sends at less than 95 % of the rate of the other,
//! or if the damage is not felt. Arguments: `--pending N`, `--dir DIR`.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::model::decision::Decision;
use postrider_core::model::message::Envelope;
use postrider_core::policy::ttl::DISPATCH_WINDOW;
use postrider_core::ports::store::{
    AddressLearning, Ledger, NewDelivery, NewMessage, Settlement, StoreError, StoreResult,
};
use postrider_core::{AddressHash, ChannelKind, LaneKey, Target, TenantId};
use postrider_store::conformance::WorkingStore;
use postrider_store::{StoreOptions, SystemClock};

const LANES: u64 = 1_000;
const RATE_MIN: f64 = 0.95;
const ROUNDS: u64 = 40;
const PAGE: u64 = 4096;
const LEASE: Duration = Duration::from_secs(600);

struct BadPageOptions {
    pending: u64,
    dir: Option<PathBuf>,
}

fn options() -> Result<BadPageOptions, String> {
    let mut options = BadPageOptions { pending: 1_000_000, dir: None };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--pending" => {
                let number = value.parse::<u64>();
                options.pending =
                    number.map_err(|_| format!("{value:?} is no number"))?.max(20_000);
            }
            "--dir" => options.dir = Some(value.into()),
            _ => return Err(format!("{name:?} is not known")),
        }
    }
    Ok(options)
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let done = match options() {
        Ok(options) => run(&options).await.map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    match done {
        Ok(true) => return std::process::ExitCode::SUCCESS,
        Ok(false) => eprintln!("BROKEN: a bound does not hold"),
        Err(error) => eprintln!("error: {error}"),
    }
    std::process::ExitCode::FAILURE
}

async fn run(options: &BadPageOptions) -> StoreResult<bool> {
    let temporary = tempfile::tempdir().map_err(io)?;
    let dir = options.dir.clone().unwrap_or_else(|| temporary.path().to_owned());
    let (good, bad) = (dir.join("good"), dir.join("bad"));
    fill(&good, options.pending).await?;
    std::fs::create_dir_all(&bad).map_err(io)?;
    std::fs::copy(good.join("postrider.db"), bad.join("postrider.db")).map_err(io)?;
    damage(&bad, "delivery", 10)?;
    let good = open(&good)?;
    let bad_store = open(&bad)?;
    let per_round = options.pending / 5 / ROUNDS;
    let (mut good_rates, mut bad_rates) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round == ROUNDS / 4 {
            damage(&bad, "waiting", 50)?;
        }
        good_rates.push(send(&good, per_round).await?);
        bad_rates.push(send(&bad_store, per_round).await?);
    }
    let health = bad_store.check_health();
    let (good_rate, bad_rate) = (median(good_rates), median(bad_rates));
    println!("{} pending in {LANES} lanes, {} of them sent", options.pending, per_round * ROUNDS);
    println!("without damage: {good_rate:>8.0}/s");
    println!(
        "with damage:    {bad_rate:>8.0}/s, {} set aside, {} problems",
        health.quarantined,
        health.problems.len()
    );
    for problem in &health.problems {
        println!("  {}: {}", problem.code, problem.what);
    }
    println!("rate with damage to rate without: {:.3}, at least {RATE_MIN}", bad_rate / good_rate);
    let is_felt = health.quarantined > 0;
    if !is_felt {
        println!("the damage is not felt");
    }
    good.close().await;
    bad_store.close().await;
    Ok(is_felt && bad_rate >= good_rate * RATE_MIN)
}

async fn fill(dir: &Path, pending: u64) -> StoreResult<()> {
    let store = open(dir)?;
    let lane = |n: u64| {
        Arc::new(LaneKey {
            tenant: TenantId::new("acme"),
            channel: ChannelKind::new("webhook"),
            provider: format!("https://host-{n}.example").into(),
            class: "transactional".into(),
        })
    };
    let lanes: Vec<_> = (0..LANES).map(lane).collect();
    let mut next = 0;
    while next < pending {
        let new = (next..next + 1_000).map(|n| message(&lanes, n)).collect();
        store.accept(new).await?;
        next += 1_000;
    }
    store.close().await;
    Ok(())
}

fn message(lanes: &[Arc<LaneKey>], number: u64) -> NewMessage {
    let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let lane = &lanes[(spread >> 64) as usize % lanes.len()];
    let url = format!("{}/hook/{spread:032x}", lane.provider);
    NewMessage {
        tenant: lane.tenant.clone(),
        class: lane.class.clone(),
        ttl_s: 86_400,
        now_or_never: DISPATCH_WINDOW,
        member_keys: Vec::new(),
        send_at: None,
        envelope: Envelope::default(),
        content: format!(r#"{{"title":"{}"}}"#, "x".repeat(200)).into(),
        dedup: None,
        deliveries: vec![NewDelivery {
            lane: lane.clone(),
            target: Arc::new(Target::new(lane.channel, &serde_json::json!({ "url": url }))),
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

/// Sends so many, as a dispatcher does. Returns the rate.
async fn send(store: &WorkingStore, count: u64) -> StoreResult<f64> {
    let start = Instant::now();
    let mut sent = 0;
    while sent < count {
        let mut settlements = Vec::new();
        for lane in store.ready_lanes(256).await? {
            let room = (count - sent) as usize - settlements.len();
            let leased = store.lease(lane.id, room.min(16), LEASE).await?;
            settlements.extend(leased.into_iter().map(|leased| Settlement {
                delivery: leased.delivery,
                token: leased.token,
                attempts: Vec::new(),
                decision: Decision::Done,
                learned: AddressLearning::default(),
            }));
            if settlements.len() >= 512 || settlements.len() as u64 + sent >= count {
                break;
            }
        }
        if settlements.is_empty() {
            break;
        }
        sent += settlements.len() as u64;
        store.settle(settlements).await?;
    }
    Ok(sent as f64 / start.elapsed().as_secs_f64())
}

/// Fills a leaf page of a table or an index with bytes that make no sense, after so many percent of its leaves.
fn damage(dir: &Path, name: &str, percent: u64) -> StoreResult<()> {
    let file = dir.join("postrider.db");
    let leaf: u64 = {
        let conn = rusqlite::Connection::open(&file).map_err(io)?;
        let select = "SELECT pageno FROM (SELECT pageno, row_number() OVER (ORDER BY path) AS n, \
                      count(*) OVER () AS leaves FROM dbstat WHERE name = ?1 AND pagetype = 'leaf') \
                      WHERE n >= leaves * ?2 / 100 ORDER BY n LIMIT 1";
        let values = (name, percent as i64);
        conn.query_row(select, values, |row| row.get::<_, i64>(0)).map_err(io)? as u64
    };
    let file = OpenOptions::new().write(true).open(file).map_err(io)?;
    file.write_all_at(&[0xFF; PAGE as usize], (leaf - 1) * PAGE).map_err(io)
}

fn open(dir: &Path) -> StoreResult<WorkingStore> {
    // With a small cache, the damage is felt soon.
    let options = StoreOptions { page_cache_kib: 2 << 10, ..StoreOptions::default() };
    WorkingStore::open(dir, Arc::new(SystemClock), options)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn io(error: impl std::fmt::Display) -> StoreError {
    StoreError::Io { what: error.to_string(), cause: None }
}
