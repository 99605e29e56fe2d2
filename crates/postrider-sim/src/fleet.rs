//! Many seeds on many cores: one thread and one runtime each, each seed twice. Stops at the first seed
//! that breaks a promise or that does not repeat itself.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::home::StoreKind;
use crate::run::{Failure, Run, run};

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub from: u64,
    pub seeds: u64,
    pub stores: Vec<StoreKind>,
    /// Of the embedded store, every so many-th seed only; 1 for each.
    pub embedded_every: u64,
    /// Each seed a second time, which must leave the same trace.
    pub twice: bool,
    pub progress: bool,
    /// At a time; as many as there are cores if it is not said.
    pub threads: Option<NonZeroUsize>,
}

/// What it came to.
#[derive(Debug, Default, Clone)]
pub struct Summary {
    pub runs: u64,
    pub deliveries: u64,
    pub calls: u64,
    pub lives: u64,
    pub events: u64,
    pub virtual_ms: u64,
    pub took: Duration,
    /// The lowest seed that failed.
    pub failed: Option<Run>,
}

const TELL_EVERY: Duration = Duration::from_secs(5);

impl Fleet {
    pub fn run(&self) -> Summary {
        let began = Instant::now();
        let (next, failed) = (AtomicU64::new(self.from), AtomicBool::new(false));
        let summary = Mutex::new(Summary::default());
        let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let threads = self.threads.unwrap_or_else(cores).get();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| self.work(&next, &failed, &summary));
            }
            self.tell(&next, &summary, began);
        });
        let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
        summary.took = began.elapsed();
        summary
    }

    fn work(&self, next: &AtomicU64, failed: &AtomicBool, summary: &Mutex<Summary>) {
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

    fn once_or_twice(&self, seed: u64, store: StoreKind) -> Run {
        let mut first = run(seed, store, false);
        if !self.twice || first.failure.is_some() {
            return first;
        }
        let second = run(seed, store, false);
        if second.hash != first.hash {
            first.failure = second.failure.or(Some(Failure {
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

    /// A line now and then, until all are done.
    fn tell(&self, next: &AtomicU64, summary: &Mutex<Summary>, began: Instant) {
        if !self.progress {
            return;
        }
        let mut told = Instant::now();
        let end = self.from + self.seeds;
        while next.load(Ordering::Relaxed) < end {
            thread::sleep(Duration::from_millis(100));
            let summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            if summary.failed.is_some() {
                return;
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                let done = next.load(Ordering::Relaxed).min(end) - self.from;
                let rate = done as f64 / began.elapsed().as_secs_f64();
                eprintln!("{done} of {} seeds, {rate:.0} per second", self.seeds);
            }
        }
    }
}

impl Summary {
    fn count(&mut self, run: &Run) {
        self.runs += 1;
        self.deliveries += run.deliveries as u64;
        self.calls += run.calls;
        self.lives += u64::from(run.lives);
        self.events += run.events;
        self.virtual_ms += run.virtual_ms.max(0) as u64;
    }
}
