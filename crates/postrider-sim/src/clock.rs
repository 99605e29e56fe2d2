//! The clock that the simulated process reads: the runtime's virtual time plus the jumps of the wall
//! clock.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use postrider_core::{Clock, Timestamp};
use tokio::time::Instant;

/// The time at which every simulation begins: 2027-01-15.
const START: i64 = 1_800_000_000_000;

/// Belongs to the thread that made it. Other threads (a store's writer) see the time that this thread
/// read last. That is the present, because it waits for them.
pub(crate) struct SimClock {
    owner: ThreadId,
    /// Milliseconds since the beginning; never goes back.
    elapsed: AtomicI64,
    offset: AtomicI64,
    /// Set while the owner waits for another thread.
    frozen: AtomicBool,
    /// When the running process started, by the runtime and by `elapsed`.
    process: Mutex<Option<(Instant, i64)>>,
}

impl SimClock {
    pub(crate) fn new() -> Self {
        Self {
            owner: thread::current().id(),
            elapsed: AtomicI64::new(0),
            offset: AtomicI64::new(0),
            frozen: AtomicBool::new(false),
            process: Mutex::default(),
        }
    }

    /// Stops the clock until the guard is dropped.
    pub(crate) fn freeze(&self) -> FrozenClock<'_> {
        self.elapsed();
        self.frozen.store(true, Ordering::SeqCst);
        FrozenClock(self)
    }

    /// From now on, time is that of the current runtime.
    pub(crate) fn process_started(&self) {
        let process = (Instant::now(), self.elapsed.load(Ordering::SeqCst));
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process);
    }

    /// Time stands still until the next start, except for `pass`.
    pub(crate) fn process_ended(&self) {
        self.elapsed();
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn pass(&self, ms: i64) {
        self.elapsed.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock forward or back.
    pub(crate) fn jump(&self, ms: i64) {
        self.offset.fetch_add(ms, Ordering::SeqCst);
    }

    /// True time since the beginning, in milliseconds.
    pub(crate) fn elapsed(&self) -> i64 {
        if !self.frozen.load(Ordering::SeqCst)
            && thread::current().id() == self.owner
            && let Some((began, at)) = *self.process.lock().unwrap_or_else(PoisonError::into_inner)
        {
            self.elapsed.store(at + began.elapsed().as_millis() as i64, Ordering::SeqCst);
        }
        self.elapsed.load(Ordering::SeqCst)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp(START + self.elapsed() + self.offset.load(Ordering::SeqCst))
    }
}

pub(crate) struct FrozenClock<'a>(&'a SimClock);

impl Drop for FrozenClock<'_> {
    fn drop(&mut self) {
        self.0.frozen.store(false, Ordering::SeqCst);
    }
}
