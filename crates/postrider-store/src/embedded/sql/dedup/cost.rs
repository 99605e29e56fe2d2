//! Measures what idempotency keys cost, a day of 1 000 keys per second and more:
//! `KEYS=86400000 cargo test --release -p postrider-store dedup_cost -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use super::*;
use crate::embedded::sql::schema::open_writer;

const START: i64 = 1_790_000_000_000;
const DAY: Duration = Duration::from_secs(86_400);
/// Keys of one transaction.
const GROUP: u64 = 1_000;

fn key(n: u64) -> [u8; 16] {
    let spread = |x: u64| {
        let x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^ (x >> 32)
    };
    (u128::from(spread(n + 1)) << 64 | u128::from(spread(!n))).to_le_bytes()
}

/// The processor time of this thread.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

fn rss_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Prints the mean time of a lookup.
fn look(store: &DedupStore, conn: &Connection, keys: impl Iterator<Item = u64>, now: Timestamp) {
    let (start, before, mut found, mut asked) = (Instant::now(), cpu(), 0, 0_u32);
    for n in keys {
        let entry = store.find(conn, &UncommittedKeys::default(), &key(n), now).unwrap();
        found += u32::from(entry.is_some());
        asked += 1;
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(asked);
    let (cpu, wall) = (each(cpu() - before), each(start.elapsed()));
    println!("  {cpu:.2} µs of CPU per lookup ({wall:.2} in all), {found} of {asked} found");
}

#[test]
#[ignore = "a measurement, not a test"]
fn dedup_cost() {
    let keys: u64 = std::env::var("KEYS").map_or(2_000_000, |keys| keys.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("test.db");
    let conn = open_writer(&file, 32 << 10).unwrap();
    let problems = ProblemList::default();
    let at = |n: u64| Timestamp(START + n as i64);
    let mut store = DedupStore::load(&conn, 114_688, at(0), &problems).unwrap();
    let (mut longest_step, mut steps, mut in_steps) = (Duration::ZERO, 0_u64, Duration::ZERO);
    let mut in_groups = Duration::ZERO;
    for first in (0..keys).step_by(GROUP as usize) {
        let now = at(first);
        let start = cpu();
        let mut uncommitted = UncommittedKeys::default();
        conn.execute_batch("BEGIN IMMEDIATE").unwrap();
        for n in first..first + GROUP {
            let message = message(n, now);
            let key = DedupKey { key: key(n), fingerprint: [1; 16], window: DAY };
            DedupStore::note(&mut uncommitted, &key, &message, now);
        }
        store.append(&conn, &uncommitted).unwrap();
        conn.execute_batch("COMMIT").unwrap();
        store.committed(uncommitted, now);
        in_groups += cpu() - start;
        loop {
            let (start, before) = (Instant::now(), cpu());
            let more = store.work(&conn, now).unwrap();
            let took = start.elapsed();
            (longest_step, steps) = (longest_step.max(took), steps + u64::from(more));
            in_steps += cpu() - before;
            if !more {
                break;
            }
            checkpoint_if_long(&conn, steps);
        }
        checkpoint_if_long(&conn, first / GROUP);
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / keys as f64;
    println!(
        "{keys} keys: {:.2} µs of CPU each to append, {:.2} to move",
        each(in_groups),
        each(in_steps)
    );
    println!("  longest of {steps} steps {longest_step:.1?}, memory {} MB", rss_mb());
    println!("  file {} MB", file.metadata().unwrap().len() >> 20);
    let now = at(keys);
    look(&store, &conn, keys..keys + 200_000, now);
    look(&store, &conn, (0..100_000).map(|i| i * (keys / 100_000)), now);
    let late = now + DAY;
    let start = Instant::now();
    store.prune(&conn, at(keys / 2) + DAY).unwrap();
    println!("  longest wait for a drop of the older half {:.1?}", start.elapsed());
    let (mut longest, mut steps, begin) = (Duration::ZERO, 0, Instant::now());
    loop {
        let start = Instant::now();
        let more = store.work(&conn, at(keys)).unwrap();
        (longest, steps) = (longest.max(start.elapsed()), steps + 1);
        if !more {
            break;
        }
        checkpoint_if_long(&conn, steps);
    }
    println!("  and {steps} steps in {:.1?}, the longest {longest:.1?}", begin.elapsed());
    look(&store, &conn, keys..keys + 200_000, now);
    look(&store, &conn, (0..100_000).map(|i| i * (keys / 100_000)), at(keys / 2) + DAY);
    drop(store);
    let start = Instant::now();
    DedupStore::load(&conn, 114_688, late, &problems).unwrap();
    println!("  opened in {:.1?}", start.elapsed());
}

fn checkpoint_if_long(conn: &Connection, steps: u64) {
    if steps % 50 == 49 {
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
}

fn message(n: u64, now: Timestamp) -> Message {
    use postrider_core::model::id::from_order_key;
    Message {
        id: postrider_core::MessageId(from_order_key(now.0 as u64, n)),
        tenant: postrider_core::TenantId::new("acme"),
        class: "transactional".into(),
        created_at: now,
        expires_at: now,
        ttl_s: 0,
        envelope: Default::default(),
        content: "".into(),
    }
}
