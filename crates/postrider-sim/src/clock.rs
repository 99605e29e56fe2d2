//! The clock that the simulated process reads: the runtime's virtual time, which goes on evenly, and
//! what an administrator or a time server did to the wall clock, which jumps.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use postrider_core::{Clock, Timestamp};
use tokio::time::Instant;

/// Where every simulation begins: 2027-01-15, some time in the morning.
const START: i64 = 1_800_000_000_000;

/// Belongs to the thread that made it; others (a store's writer) see the time as that one last read
/// it, which is the present, because it waits for them.
pub(crate) struct SimClock {
    home: ThreadId,
    /// Milliseconds since the beginning; never goes back.
    elapsed: AtomicI64,
    offset: AtomicI64,
    /// Somebody is waited for, whatever clock is around us.
    frozen: AtomicBool,
    /// When the running life began, by the runtime and by `elapsed`.
    life: Mutex<Option<(Instant, i64)>>,
}

impl SimClock {
    pub(crate) fn new() -> Self {
        Self {
            home: thread::current().id(),
            elapsed: AtomicI64::new(0),
            offset: AtomicI64::new(0),
            frozen: AtomicBool::new(false),
            life: Mutex::default(),
        }
    }

    /// Stands still until what this returns is dropped.
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        self.elapsed();
        self.frozen.store(true, Ordering::SeqCst);
        Frozen(self)
    }

    /// From here on time is that of the runtime around us.
    pub(crate) fn begin_life(&self) {
        let life = (Instant::now(), self.elapsed.load(Ordering::SeqCst));
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) = Some(life);
    }

    /// Time stands still, until the next life, but for what passes by hand.
    pub(crate) fn end_life(&self) {
        self.elapsed();
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(crate) fn pass(&self, ms: i64) {
        self.elapsed.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock forth or back.
    pub(crate) fn jump(&self, ms: i64) {
        self.offset.fetch_add(ms, Ordering::SeqCst);
    }

    /// True time since the beginning, in milliseconds.
    pub(crate) fn elapsed(&self) -> i64 {
        if !self.frozen.load(Ordering::SeqCst)
            && thread::current().id() == self.home
            && let Some((began, at)) = *self.life.lock().unwrap_or_else(PoisonError::into_inner)
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

pub(crate) struct Frozen<'a>(&'a SimClock);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.frozen.store(false, Ordering::SeqCst);
    }
}
