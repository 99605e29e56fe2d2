//! The clock of a server: runs with monotonic time, and compares itself with the system's clock every second.
//! `policy::clock_step` decides what is believed.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use postrider_core::policy::clock_step::SteadyTime;
use postrider_core::{Clock, ClockDoubt, TimeBounds, Timestamp};

use super::SystemClock;

const COMPARED_EVERY_MS: i64 = 1_000;

/// A smaller difference is left alone, so that times are shown as they were given.
const NOTICED_MS: i64 = 100;

type ReadMs = Box<dyn Fn() -> i64 + Send + Sync>;

pub struct SteadyClock {
    monotonic: ReadMs,
    wall: ReadMs,
    time: Mutex<SteadyTime>,
    /// As in `time`, readable without its lock.
    ahead: AtomicI64,
    compare_at: AtomicI64,
}

impl SteadyClock {
    pub fn of_system() -> Self {
        Self::new(Box::new(monotonic_ms), Box::new(|| SystemClock.now().0))
    }

    /// A clock that reads its milliseconds from elsewhere.
    pub fn new(monotonic: ReadMs, wall: ReadMs) -> Self {
        let (at, wall_at) = (monotonic(), wall());
        let time = SteadyTime::new(at, wall_at);
        let ahead = AtomicI64::new(time.ahead());
        Self {
            monotonic,
            wall,
            time: Mutex::new(time),
            ahead,
            compare_at: AtomicI64::new(at.saturating_add(COMPARED_EVERY_MS)),
        }
    }

    fn time(&self) -> MutexGuard<'_, SteadyTime> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The current monotonic time, and what is believed after a comparison with the system's clock.
    fn compared(&self) -> (i64, i64, MutexGuard<'_, SteadyTime>) {
        let mut time = self.time();
        let (monotonic, wall) = ((self.monotonic)(), (self.wall)());
        self.compare(&mut time, monotonic, wall);
        (monotonic, wall, time)
    }

    fn compare(&self, time: &mut SteadyTime, monotonic: i64, wall: i64) {
        time.compare(monotonic, wall);
        self.ahead.store(time.ahead(), Ordering::Relaxed);
        self.compare_at.store(monotonic.saturating_add(COMPARED_EVERY_MS), Ordering::Relaxed);
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        let monotonic = (self.monotonic)();
        if monotonic >= self.compare_at.load(Ordering::Relaxed) {
            let time = match self.time.try_lock() {
                Ok(time) => Some(time),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                // Somebody else compares.
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut time) = time {
                self.compare(&mut time, monotonic, (self.wall)());
            }
        }
        Timestamp(monotonic.saturating_add(self.ahead.load(Ordering::Relaxed)))
    }

    fn now_rounded_up(&self) -> Timestamp {
        self.now() + Duration::from_millis(1)
    }

    fn wall_offset_ms(&self) -> i64 {
        let offset = (self.wall)().saturating_sub(self.now().0);
        if offset.abs() < NOTICED_MS { 0 } else { offset }
    }

    fn wall(&self) -> Timestamp {
        Timestamp((self.wall)())
    }

    fn bounds(&self) -> TimeBounds {
        let (monotonic, wall, time) = self.compared();
        time.bounds(monotonic, wall)
    }

    fn start_after(&self, newest: Timestamp) {
        let mut time = self.time();
        time.start_after(newest.0, (self.monotonic)());
        self.ahead.store(time.ahead(), Ordering::Relaxed);
    }

    fn doubt(&self) -> Option<ClockDoubt> {
        let (monotonic, wall, time) = self.compared();
        time.doubt(monotonic, wall)
    }
}

/// Also runs while the machine sleeps, so that a laptop that wakes up sees no step.
#[cfg(target_os = "linux")]
pub(crate) fn monotonic_ms() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.saturating_mul(1_000).saturating_add(now.tv_nsec / 1_000_000)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn monotonic_ms() -> i64 {
    use std::sync::LazyLock;
    use std::time::Instant;
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    i64::try_from(START.elapsed().as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const START: i64 = 1_800_000_000_000;

    #[test]
    fn a_step_of_the_system_changes_only_what_others_see() {
        let (at, off) = (Arc::new(AtomicI64::new(7)), Arc::new(AtomicI64::new(0)));
        let (a, b, c) = (at.clone(), at.clone(), off.clone());
        let clock = SteadyClock::new(
            Box::new(move || a.load(Ordering::SeqCst)),
            Box::new(move || START + b.load(Ordering::SeqCst) + c.load(Ordering::SeqCst)),
        );
        assert_eq!(clock.now(), Timestamp(START + 7));
        at.store(5_000, Ordering::SeqCst);
        off.store(-90_000, Ordering::SeqCst);
        assert_eq!(clock.now(), Timestamp(START + 5_000));
        assert_eq!(clock.wall(), Timestamp(START + 5_000 - 90_000));
        assert_eq!(clock.wall_offset_ms(), -90_000);
        assert_eq!(clock.bounds().earliest, clock.wall());
        assert_eq!(clock.doubt(), Some(ClockDoubt::Differs(-90_000)));
        off.store(400, Ordering::SeqCst);
        for second in 6..=20 {
            at.store(second * 1_000, Ordering::SeqCst);
            clock.now();
        }
        assert_eq!(clock.now(), clock.wall(), "a small difference is followed");
    }

    #[test]
    fn the_clock_of_the_system_agrees_with_itself() {
        let clock = SteadyClock::of_system();
        assert!(clock.wall_offset_ms().abs() < 1_000);
        assert_eq!(clock.doubt(), None);
    }
}
