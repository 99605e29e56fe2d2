//! Runs the worlds of many seeds, on all cores unless fewer are asked for.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::HarmReport;

/// Runs so many seeds from the first on, each with `run`, and returns those that broke a bound. Each report
/// goes to `show`. No further one begins once `enough` of them broke one.
pub fn harm_seeds(
    from: u64,
    seeds: u64,
    threads: Option<NonZeroUsize>,
    enough: Option<usize>,
    run: impl Fn(u64) -> HarmReport + Sync,
    show: impl Fn(&HarmReport) + Sync,
) -> Vec<u64> {
    let next = AtomicU64::new(from);
    let failed = Mutex::new(Vec::new());
    let threads = threads.or(thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let found = failed.lock().unwrap_or_else(PoisonError::into_inner).len();
            if seed >= from + seeds || enough.is_some_and(|enough| found >= enough) {
                return;
            }
            let report = run(seed);
            show(&report);
            if !report.broken.is_empty() {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(seed);
            }
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_unstable();
    failed
}
