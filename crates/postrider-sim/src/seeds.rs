//! Runs many seeds on all cores, each seed twice. Stops at the first seed that breaks an invariant or
//! does not repeat itself.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::{SimFailure, SimRun, run};
use crate::storage::StoreKind;

/// Which seeds to run, and how.
#[derive(Debug, Clone)]
pub struct SeedRunner {
    pub from: u64,
    pub seeds: u64,
    pub stores: Vec<StoreKind>,
    /// Over the embedded store, run only every N-th seed.
    pub embedded_every: u64,
    /// Run each seed a second time; its trace must be the same.
    pub twice: bool,
    pub progress: bool,
    /// Number of threads; the number of cores by default.
    pub threads: Option<NonZeroUsize>,
}

/// Totals of all runs.
#[derive(Debug, Default, Clone)]
pub struct SeedSummary {
    pub runs: u64,
    pub deliveries: u64,
    pub calls: u64,
    pub starts: u64,
    pub events: u64,
    pub virtual_ms: u64,
    pub took: Duration,
    /// The lowest seed that failed.
    pub failed: Option<SimRun>,
}

const PROGRESS_EVERY: Duration = Duration::from_secs(5);

impl SeedRunner {
    pub fn run(&self) -> SeedSummary {
        let began = Instant::now();
        let (next, failed) = (AtomicU64::new(self.from), AtomicBool::new(false));
        let summary = Mutex::new(SeedSummary::default());
        let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let threads = self.threads.unwrap_or_else(cores).get();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| self.work(&next, &failed, &summary));
            }
            self.print_progress(&next, &summary, began);
        });
        let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
        summary.took = began.elapsed();
        summary
    }

    fn work(&self, next: &AtomicU64, failed: &AtomicBool, summary: &Mutex<SeedSummary>) {
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= self.from + self.seeds {
                return;
            }
            for &store in &self.stores {
                if store == StoreKind::Embedded && !seed.is_multiple_of(self.embedded_every) {
                    continue;
                }
                let run = self.once_or_twice(seed, store);
                let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
                summary.count(&run);
                if run.failure.is_some() {
                    failed.store(true, Ordering::Relaxed);
                    let lower = summary.failed.as_ref().is_none_or(|other| seed < other.seed);
                    if lower {
                        summary.failed = Some(run);
                    }
                    return;
                }
            }
        }
    }

    fn once_or_twice(&self, seed: u64, store: StoreKind) -> SimRun {
        let mut first = run(seed, store, false);
        if !self.twice || first.failure.is_some() {
            return first;
        }
        let second = run(seed, store, false);
        if second.hash != first.hash {
            first.failure = second.failure.or(Some(SimFailure {
                invariant: "a seed repeats itself".into(),
                detail: format!(
                    "{:016x} after {} events, then {:016x} after {}",
                    first.hash, first.events, second.hash, second.events
                ),
                trace: Vec::new(),
            }));
        }
        first
    }

    /// Prints a line every few seconds until all seeds are done.
    fn print_progress(&self, next: &AtomicU64, summary: &Mutex<SeedSummary>, began: Instant) {
        if !self.progress {
            return;
        }
        let mut printed_at = Instant::now();
        let end = self.from + self.seeds;
        while next.load(Ordering::Relaxed) < end {
            thread::sleep(Duration::from_millis(100));
            let summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            if summary.failed.is_some() {
                return;
            }
            if printed_at.elapsed() >= PROGRESS_EVERY {
                printed_at = Instant::now();
                let done = next.load(Ordering::Relaxed).min(end) - self.from;
                let rate = done as f64 / began.elapsed().as_secs_f64();
                eprintln!("{done} of {} seeds, {rate:.0} per second", self.seeds);
            }
        }
    }
}

impl SeedSummary {
    fn count(&mut self, run: &SimRun) {
        self.runs += 1;
        self.deliveries += run.deliveries as u64;
        self.calls += run.calls;
        self.starts += u64::from(run.starts);
        self.events += run.events;
        self.virtual_ms += run.virtual_ms.max(0) as u64;
    }
}
