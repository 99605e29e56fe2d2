//! When each API key was last used: exact in memory, written to the store now and then. A request writes nothing.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use postrider_core::Timestamp;

/// Uses within this time are one use.
const RESOLUTION: Duration = Duration::from_secs(1);

/// The last use of one key, in milliseconds; 0 for none.
#[derive(Debug, Default)]
pub(super) struct LastUse {
    at: AtomicI64,
    written: AtomicI64,
}

impl LastUse {
    pub(super) fn note(&self, now: Timestamp) {
        if now.since(Timestamp(self.at.load(Ordering::Relaxed))) >= RESOLUTION {
            self.at.fetch_max(now.0, Ordering::Relaxed);
        }
    }

    pub(super) fn at(&self) -> Option<Timestamp> {
        Some(Timestamp(self.at.load(Ordering::Relaxed))).filter(|at| at.0 > 0)
    }

    /// The time to write, if it is that much newer than the written one.
    pub(super) fn unwritten(&self, older_by: Duration) -> Option<Timestamp> {
        let written = Timestamp(self.written.load(Ordering::Relaxed));
        self.at().filter(|at| *at > written && at.since(written) >= older_by)
    }

    /// The store has this time now.
    pub(super) fn note_written(&self, at: Timestamp) {
        self.written.fetch_max(at.0, Ordering::Relaxed);
        self.at.fetch_max(at.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_written_once_in_a_while() {
        let (last, minute) = (LastUse::default(), Duration::from_secs(60));
        assert_eq!((last.at(), last.unwritten(minute)), (None, None));
        last.note(Timestamp(5_000_000));
        assert_eq!(last.unwritten(minute), Some(Timestamp(5_000_000)));
        last.note_written(Timestamp(5_000_000));
        last.note(Timestamp(5_030_000));
        assert_eq!(last.at(), Some(Timestamp(5_030_000)));
        assert_eq!(last.unwritten(minute), None);
        assert_eq!(last.unwritten(Duration::ZERO), Some(Timestamp(5_030_000)));
        last.note_written(Timestamp(5_090_000));
        assert_eq!(last.at(), Some(Timestamp(5_090_000)), "another server saw it later");
    }
}
