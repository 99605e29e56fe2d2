//! How many calls to sick addresses an origin gets: so many per second, however many addresses are sick there.
//! One that succeeds does not count. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::limiter::{Limiter, Rate};

const PER_S: u32 = 8;
/// How far apart calls are put off that are too many.
const APART: Duration = Duration::from_millis(1_000 / PER_S as u64);

#[derive(Debug, Clone)]
pub struct SickCalls(Limiter);

/// What is left at one moment.
#[derive(Debug, Clone, Copy)]
pub struct SickCallRoom {
    left: usize,
    used: usize,
    next: Timestamp,
}

impl Default for SickCalls {
    fn default() -> Self {
        Self(Limiter::new(Rate { per_s: PER_S.into(), burst: PER_S, ramp_s: 0 }))
    }
}

impl SickCalls {
    pub fn room(&mut self, now: Timestamp) -> SickCallRoom {
        let left = self.0.available(PER_S as usize, now);
        SickCallRoom { left, used: 0, next: self.0.next(now).max(now) }
    }

    /// Takes what was used.
    pub fn take(&mut self, room: SickCallRoom, now: Timestamp) {
        self.0.take(room.used, now);
    }

    /// A call to a sick address succeeded.
    pub fn succeeded(&mut self, now: Timestamp) {
        self.0.refund(1, now);
    }
}

impl SickCallRoom {
    /// Takes one call, or says when there may be one.
    pub(super) fn take(&mut self) -> Result<(), Timestamp> {
        if self.left == 0 {
            self.next = self.next + APART;
            return Err(self.next);
        }
        self.left -= 1;
        self.used += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// How many of a thousand calls that are tried each tenth of a second may go within ten seconds.
    fn going(succeed: bool) -> usize {
        let mut calls = SickCalls::default();
        let mut going = 0;
        for tenth in 0..100 {
            let now = NOW + Duration::from_millis(tenth * 100);
            let mut room = calls.room(now);
            let gone = (0..1_000).filter(|_| room.take().is_ok()).count();
            calls.take(room, now);
            (0..gone).filter(|_| succeed).for_each(|_| calls.succeeded(now));
            going += gone;
        }
        going
    }

    #[test]
    fn an_origin_gets_so_many_calls_to_sick_addresses_unless_they_succeed() {
        assert!((80..=88).contains(&going(false)), "{}", going(false));
        assert!(going(true) >= 790, "{}", going(true));
    }
}
