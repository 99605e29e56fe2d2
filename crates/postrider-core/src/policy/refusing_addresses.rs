//! Whether refusals are about single addresses. Where an origin refuses because of too many calls, an address that was
//! refused is served the next time as often as others. Where it is the address, it is refused again. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;

/// Addresses that are remembered; those with the same slot take turns.
const SLOTS: usize = 64;
/// What was seen longer ago says nothing about now.
const REMEMBERED: Duration = Duration::from_secs(10);
/// An overloaded origin may refuse all calls of a moment: the next answer of an address counts after this time.
const APART: Duration = Duration::from_millis(500);
/// If it were chance, so many of the addresses that were refused would have been served the next time ...
const SERVED_EXPECTED: f64 = 9.0;
/// ... and with fewer than this part of them it is no chance.
const SERVED_SHARE: f64 = 1.0 / 3.0;

/// The last answer of some addresses. Takes memory from the first refusal on.
#[derive(Debug, Clone, Default)]
pub(super) struct RefusingAddresses {
    slots: Vec<Option<LastAnswer>>,
    /// Answers in all, and those that were refusals; older ones count less.
    all: f64,
    refused: f64,
    /// Answers of addresses that had refused the time before, and those of them that were no refusals.
    again: f64,
    served: f64,
    halved_at: Timestamp,
}

#[derive(Debug, Clone, Copy)]
struct LastAnswer {
    target: u64,
    refused: bool,
    at: Timestamp,
}

impl RefusingAddresses {
    pub(super) fn note(&mut self, target: u64, refused: bool, now: Timestamp) {
        if self.slots.is_empty() {
            if !refused {
                return;
            }
            self.slots.resize(SLOTS, None);
        }
        if now < self.halved_at || now.since(self.halved_at) >= REMEMBERED {
            self.halved_at = now;
            let counts = [&mut self.all, &mut self.refused, &mut self.again, &mut self.served];
            counts.into_iter().for_each(|count| *count /= 2.0);
        }
        self.all += 1.0;
        self.refused += f64::from(u8::from(refused));
        let slot = &mut self.slots[(target % SLOTS as u64) as usize];
        let is_recent = |last: &LastAnswer| last.at <= now && now.since(last.at) < REMEMBERED;
        match slot.filter(is_recent) {
            // One that refuses is watched until it is heard of again.
            Some(last) if last.target != target && last.refused => return,
            Some(last) if last.target == target && now.since(last.at) < APART => return,
            Some(last) if last.target == target && last.refused => {
                self.again += 1.0;
                self.served += f64::from(u8::from(!refused));
            }
            _ => {}
        }
        *slot = Some(LastAnswer { target, refused, at: now });
    }

    /// Those that were refused are refused again far more often than chance explains.
    pub(super) fn are_the_same(&self) -> bool {
        let expected = self.again * (1.0 - self.refused / self.all.max(1.0));
        expected >= SERVED_EXPECTED && self.served < expected * SERVED_SHARE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// Calls to forty addresses in turn.
    fn after(calls: u64, refuses: impl Fn(u64, u64) -> bool) -> bool {
        let mut addresses = RefusingAddresses::default();
        for n in 0..calls {
            let now = NOW + Duration::from_millis(n * 20);
            addresses.note(n % 40, refuses(n, n % 40), now);
        }
        addresses.are_the_same()
    }

    #[test]
    fn addresses_that_refuse_each_time_speak_for_themselves() {
        assert!(after(120, |_, address| address < 10));
        assert!(!after(70, |_, address| address < 10), "that may be chance");
    }

    #[test]
    fn calls_that_are_refused_in_the_same_moment_are_one() {
        let mut addresses = RefusingAddresses::default();
        (0..400).for_each(|n| addresses.note(n % 40, n % 40 < 10, NOW));
        assert!(!addresses.are_the_same());
    }

    #[test]
    fn an_origin_that_refuses_whoever_comes_is_overloaded() {
        assert!(!after(400, |n, _| n % 7 < 2));
        assert!(!after(400, |n, _| n % 11 != 0), "also where hardly any call is taken");
    }
}
