//! The record of one rendering: which variables were missing, and how much work was done. Counts, so that a rendering
//! ends by itself; the time limit only ends it earlier on a busy machine.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use minijinja::{Error, ErrorKind};

/// Bytes that all filters of one rendering may read and make together.
pub(super) const WORK_MAX: usize = 1 << 20;
/// Items of lists and objects that one rendering may touch, also in comparisons.
pub(super) const ITEMS_MAX: usize = 200_000;
/// Missing names that are reported per text.
const MISSING_MAX: usize = 100;
/// A text up to this size may be read at each step.
pub(super) const SHORT_TEXT: usize = 4096;
/// How often a longer text that a filter made is counted.
const SCANS: usize = 64;
/// Items between two looks at the clock.
const LOOK_EVERY: usize = 512;

#[derive(Debug)]
pub(super) struct RenderRecord {
    spent: AtomicUsize,
    touched: AtomicUsize,
    is_over: AtomicBool,
    is_late: AtomicBool,
    /// A filter runs: what it does not find is not missing.
    in_filter: AtomicBool,
    /// The present text has operations that read a whole text at each step.
    is_scanning: AtomicBool,
    notes_missing: bool,
    deadline: Option<Instant>,
    missing: Mutex<MissingNames>,
}

#[derive(Debug, Default)]
struct MissingNames {
    /// The name that was last looked up in vain.
    last: Option<String>,
    /// Names that were used, in this order.
    used: Vec<String>,
}

impl RenderRecord {
    /// `notes_missing` says whether a missing variable is an error.
    pub(super) fn new(notes_missing: bool, deadline: Option<Instant>) -> Self {
        Self {
            spent: AtomicUsize::new(0),
            touched: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            in_filter: AtomicBool::new(false),
            is_scanning: AtomicBool::new(false),
            notes_missing,
            deadline,
            missing: Mutex::default(),
        }
    }

    /// Adds to the bytes that filters handle; an error if they are too many.
    pub(super) fn spend(&self, bytes: usize) -> Result<(), Error> {
        let before = self.spent.fetch_add(bytes, Ordering::Relaxed);
        self.look_at_clock();
        if before.saturating_add(bytes) > WORK_MAX || self.is_over() {
            self.is_over.store(true, Ordering::Relaxed);
            return Err(ErrorKind::OutOfFuel.into());
        }
        Ok(())
    }

    /// Begins another text.
    pub(super) fn begin(&self, is_scanning: bool) {
        self.is_scanning.store(is_scanning, Ordering::Relaxed);
        self.missing().last = None;
    }

    /// Adds what a filter made. A long text is dear where each step may read it again.
    pub(super) fn spend_made(&self, bytes: usize) -> Result<(), Error> {
        let is_dear = bytes > SHORT_TEXT && self.is_scanning.load(Ordering::Relaxed);
        self.spend(if is_dear { bytes.saturating_mul(SCANS) } else { bytes })
    }

    /// Adds to the items that are touched. False if they are too many.
    pub(super) fn touch(&self, items: usize) -> bool {
        let before = self.touched.fetch_add(items, Ordering::Relaxed);
        let after = before.saturating_add(items);
        if before / LOOK_EVERY != after / LOOK_EVERY {
            self.look_at_clock();
        }
        if after > ITEMS_MAX {
            self.is_over.store(true, Ordering::Relaxed);
        }
        !self.is_over()
    }

    /// Whether the rendering did more than it may: what it made is not complete.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether it is over only because of the time.
    pub(super) fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    pub(super) fn look_at_clock(&self) {
        if self.deadline.is_some_and(|deadline| Instant::now() > deadline) && !self.is_over() {
            self.is_late.store(true, Ordering::Relaxed);
            self.is_over.store(true, Ordering::Relaxed);
        }
    }

    /// Runs a filter.
    pub(super) fn filtering<T>(&self, filter: impl FnOnce() -> T) -> T {
        let before = self.in_filter.swap(true, Ordering::Relaxed);
        let made = filter();
        self.in_filter.store(before, Ordering::Relaxed);
        made
    }

    /// A name was looked up and is not there. Whether an empty variable stands in for it.
    pub(super) fn look_up_missing(&self, name: &str) -> bool {
        if !self.notes_missing || self.in_filter.load(Ordering::Relaxed) {
            return false;
        }
        self.missing().last = Some(name.to_owned());
        true
    }

    /// A field of a missing name was looked up.
    pub(super) fn look_inside(&self, name: &str, path: &str) {
        let mut missing = self.missing();
        if missing.last.as_deref() == Some(name) {
            missing.last = Some(path.to_owned());
        }
    }

    pub(super) fn use_missing(&self, name: &str) {
        let mut missing = self.missing();
        if missing.used.len() < MISSING_MAX && !missing.used.iter().any(|known| known == name) {
            missing.used.push(name.to_owned());
        }
    }

    pub(super) fn forgive_missing(&self, name: &str) {
        let mut missing = self.missing();
        if missing.last.as_deref() == Some(name) {
            missing.last = None;
        }
    }

    /// An operation failed. If its operand is missing, that is the cause.
    pub(super) fn blame_missing(&self) -> bool {
        let last = self.missing().last.take();
        last.inspect(|name| self.use_missing(name)).is_some()
    }

    /// The names that were used since the last call.
    pub(super) fn take_missing(&self) -> Vec<String> {
        let mut missing = self.missing();
        missing.last = None;
        std::mem::take(&mut missing.used)
    }

    fn missing(&self) -> MutexGuard<'_, MissingNames> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
