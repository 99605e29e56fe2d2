//! What is measured, how it is printed, and the bounds.

use std::path::Path;
use std::time::{Duration, Instant};

use postrider_core::ports::store::StoreResult;

use crate::disk::DiskWitness;
use crate::io;

/// The last tenth may be worse than the first by this factor.
const WORSE_MAX: f64 = 1.2;
/// The file may be larger than what it keeps by this factor.
const SIZE_MAX: f64 = 1.3;
/// What a chore may add to a commit.
const DELAY_MAX: Duration = Duration::from_millis(50);
/// An accept that took longer is slow.
const SLOW: Duration = Duration::from_millis(10);
/// Bytes of a stored idempotency key.
const KEY_BYTES: u64 = 54;

/// What one tenth showed.
#[derive(Default)]
pub(crate) struct Samples {
    started: Option<(Instant, Duration)>,
    messages: u64,
    latencies: Vec<Duration>,
    /// Slow accepts during chores: when each began, and how long it took.
    slow_in_chores: Vec<(Instant, Duration)>,
    repeats: usize,
    /// Per slice.
    rates: Vec<f64>,
    /// Of the whole tenth.
    cpu: Duration,
    delivered: u64,
    rss_mb: f64,
    slowest: Duration,
    slowest_in_chores: Duration,
    /// The longest time that the disk held up another file.
    disk: Duration,
    /// The slowest accept in chores, without the time in which the disk held up another file, too.
    store_in_chores: Duration,
}

impl Samples {
    pub(crate) fn begin_slice(&mut self) {
        self.started = Some((Instant::now(), cpu()));
        self.messages = 0;
    }

    pub(crate) fn messages_of_slice(&self) -> u64 {
        self.messages
    }

    pub(crate) fn accepted(
        &mut self,
        (from, took): (Instant, Duration),
        messages: usize,
        repeats: usize,
        in_chores: bool,
    ) {
        self.messages += messages as u64;
        self.repeats += repeats;
        self.latencies.push(took);
        let slowest = if in_chores { &mut self.slowest_in_chores } else { &mut self.slowest };
        *slowest = took.max(*slowest);
        if in_chores && took >= SLOW {
            self.slow_in_chores.push((from, took));
        }
    }

    pub(crate) fn end_slice(&mut self, delivered: u64) {
        let Some((start, cpu_before)) = self.started.take() else { return };
        self.rates.push(self.messages as f64 / start.elapsed().as_secs_f64());
        self.cpu += cpu() - cpu_before;
        self.delivered += delivered;
        self.rss_mb = self.rss_mb.max(rss_mb());
    }

    fn rate(&self) -> f64 {
        median(&self.rates)
    }

    fn p99_ms(&self) -> f64 {
        let mut times = self.latencies.clone();
        times.sort_unstable();
        times.get(times.len() * 99 / 100).map_or(0.0, |p99| p99.as_secs_f64() * 1e3)
    }

    /// At the end of a tenth, which began then: takes the stalls of the disk off slow accepts.
    pub(crate) fn take_off_stalls(&mut self, witness: &DiskWitness, from: Instant) {
        self.disk = witness.longest_since(from);
        let quick = self.slowest_in_chores.min(SLOW);
        let own = self
            .slow_in_chores
            .iter()
            .map(|&(from, took)| took.saturating_sub(witness.stalled_within((from, from + took))));
        self.store_in_chores = own.max().unwrap_or_default().max(quick);
    }

    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.delivered.max(1) as f64
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The heading without samples.
pub(crate) fn print_row(tenth: Option<(&str, &Samples)>) {
    let Some((number, s)) = tenth else {
        println!(
            "{:>5} {:>10} {:>9} {:>13} {:>8} {:>9} {:>12} {:>12} {:>9} {:>11}",
            "tenth",
            "accepts/s",
            "p99 ms",
            "us/delivery",
            "RSS MB",
            "repeats",
            "slowest ms",
            "in chores ms",
            "disk ms",
            "without ms"
        );
        return;
    };
    println!(
        "{number:>5} {:>10.0} {:>9.2} {:>13.1} {:>8.0} {:>9} {:>12.1} {:>12.1} {:>9.1} {:>11.1}",
        s.rate(),
        s.p99_ms(),
        s.cpu_us(),
        s.rss_mb,
        s.repeats,
        s.slowest.as_secs_f64() * 1e3,
        s.slowest_in_chores.as_secs_f64() * 1e3,
        s.disk.as_secs_f64() * 1e3,
        s.store_in_chores.as_secs_f64() * 1e3,
    );
}

pub(crate) struct FileSize {
    file: u64,
    kept: u64,
}

/// The size of the database, and what it keeps: the content of all rows, and the keys whose window is not over.
pub(crate) fn size(dir: &Path, keys: u64) -> StoreResult<FileSize> {
    let conn = rusqlite::Connection::open(dir.join("postrider.db")).map_err(io)?;
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(io);
    let pages = number("PRAGMA page_count")?;
    let rows = number("SELECT sum(payload) FROM dbstat WHERE name NOT LIKE 'dedup%'")?;
    let tables = conn
        .prepare("SELECT name, sum(pgsize), sum(payload) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 6")
        .and_then(|mut select| {
            let row = |row: &rusqlite::Row<'_>| {
                Ok((row.get::<_, String>(0)?, row.get::<_, f64>(1)?, row.get::<_, f64>(2)?))
            };
            select.query_map([], row)?.collect::<Result<Vec<_>, _>>()
        })
        .map_err(io)?;
    for (name, bytes, payload) in tables {
        println!("{name:<24} {:>9.1} MB, content {:>9.1} MB", bytes / 1e6, payload / 1e6);
    }
    let free = number("PRAGMA freelist_count")? * 4096;
    println!("{:<24} {:>9.1} MB", "free pages", free as f64 / 1e6);
    Ok(FileSize { file: pages as u64 * 4096, kept: rows as u64 + keys * KEY_BYTES })
}

/// The bounds that are broken.
pub(crate) fn check(
    tenths: &[Samples],
    first: &Samples,
    last: &Samples,
    size: &FileSize,
) -> Vec<String> {
    let mut broken = Vec::new();
    let mut bound = |what: &str, value: f64, max: f64| {
        let holds = value <= max;
        println!(
            "{what:<58} {value:>7.2}, at most {max:.2}{}",
            if holds { "" } else { "  BROKEN" }
        );
        if !holds {
            broken.push(format!("{what} is {value:.2}, at most {max:.2}"));
        }
    };
    bound("seconds per accept, last tenth to first", first.rate() / last.rate(), WORSE_MAX);
    bound("p99 of an accept, last tenth to first", last.p99_ms() / first.p99_ms(), WORSE_MAX);
    bound("CPU per delivery, last tenth to first", last.cpu_us() / first.cpu_us(), WORSE_MAX);
    if let (Some(first), Some(last)) = (tenths.first(), tenths.last()) {
        // In the last tenth, the process has two stores.
        bound("memory, ninth tenth to first", last.rss_mb / first.rss_mb, WORSE_MAX);
    }
    bound("file to what it keeps", size.file as f64 / size.kept as f64, SIZE_MAX);
    let all = || tenths.iter().chain([first, last]);
    let slowest =
        |of: fn(&Samples) -> Duration| all().map(of).max().unwrap_or_default().as_secs_f64() * 1e3;
    println!(
        "slowest accept without chores {:.1} ms, in chores {:.1} ms; longest stall of another file {:.1} ms",
        slowest(|s| s.slowest),
        slowest(|s| s.slowest_in_chores),
        slowest(|s| s.disk)
    );
    let in_chores = slowest(|s| s.store_in_chores);
    bound(
        "slowest accept in chores, without stalls of the disk, ms",
        in_chores,
        DELAY_MAX.as_secs_f64() * 1e3,
    );
    broken
}

/// Processor time of this process, from the kernel's own count.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

fn rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}
