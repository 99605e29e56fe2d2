//! Whether it is always the same addresses that refuse. An origin with too much to do refuses whoever comes;
//! where those that refused before refuse far more often than others, it is they. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;

const SLOTS: usize = 256;
/// What an address did is remembered for one to two of these.
const REMEMBERED: Duration = Duration::from_secs(30);
/// So many refusals are needed for a judgement, and so many standard deviations beyond chance.
const REFUSED_MIN: f64 = 8.0;
const BEYOND_CHANCE: f64 = 3.0;
/// From so many refusals on, older ones count half.
const REFUSED_MAX: f64 = 64.0;

#[derive(Debug, Clone, Default)]
pub(super) struct RefusingAddresses {
    /// The addresses that refused, by slot: in the time before, and lately.
    before: [u64; SLOTS / 64],
    lately: [u64; SLOTS / 64],
    turned_at: Timestamp,
    calls: AnswerCount,
    refused: AnswerCount,
}

#[derive(Debug, Clone, Copy, Default)]
struct AnswerCount {
    all: f64,
    /// Those of addresses that had refused before.
    known: f64,
}

impl RefusingAddresses {
    /// An address (a number that stands for it) answered. True if it refuses of its own account.
    pub(super) fn note(&mut self, target: u64, refused: bool, now: Timestamp) -> bool {
        if now.since(self.turned_at) >= REMEMBERED || now < self.turned_at {
            self.before = std::mem::take(&mut self.lately);
            self.turned_at = now;
        }
        let slot = target as usize % SLOTS;
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        let is_known = (self.before[word] | self.lately[word]) & bit != 0;
        self.calls.add(is_known);
        if refused {
            self.lately[word] |= bit;
            self.refused.add(is_known);
            if self.refused.all >= REFUSED_MAX {
                self.calls.halve();
                self.refused.halve();
            }
        }
        is_known && refused && self.are_the_same()
    }

    fn are_the_same(&self) -> bool {
        let by_chance = self.calls.known / self.calls.all;
        let deviation = (by_chance * (1.0 - by_chance) / self.refused.all).sqrt();
        self.refused.all >= REFUSED_MIN
            && self.refused.known / self.refused.all > by_chance + BEYOND_CHANCE * deviation
    }
}

impl AnswerCount {
    fn add(&mut self, is_known: bool) {
        self.all += 1.0;
        self.known += f64::from(u8::from(is_known));
    }

    fn halve(&mut self) {
        self.all /= 2.0;
        self.known /= 2.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// How many of 2 000 calls to 20 addresses are counted as refusals of their own account.
    fn own(refuses: impl Fn(u64, u64) -> bool) -> usize {
        let mut addresses = RefusingAddresses::default();
        let answer = |n: u64| {
            let target = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            let address = target % 20;
            addresses.note(address, refuses(address, target / 20 % 100), NOW)
        };
        (0..2_000).map(answer).filter(|own| *own).count()
    }

    #[test]
    fn a_few_addresses_that_refuse_a_third_of_their_calls_do_it_of_their_own_account() {
        let found = own(|address, random| address < 5 && random < 36);
        assert!((120..190).contains(&found), "{found} of about 180");
    }

    #[test]
    fn an_origin_that_refuses_whoever_comes_has_no_such_addresses() {
        for share in [2, 10, 50, 90] {
            let found = own(|_, random| random < share);
            assert!(found < 20, "{found} at {share} %");
        }
    }
}
