//! How many calls went well in each half of the last ten seconds. Small, because every tenant at every
//! origin has one.

use crate::model::time::Timestamp;

const SLOTS: usize = 20;
const SLOT_MS: i64 = 500;

#[derive(Debug, Clone, Copy, Default)]
pub struct RecentCalls {
    calls: [u16; SLOTS],
    /// The number of the newest half second that was counted.
    newest: i64,
}

impl RecentCalls {
    pub fn count(&mut self, now: Timestamp) {
        let number = now.0.div_euclid(SLOT_MS);
        if number > self.newest {
            let passed = number.saturating_sub(self.newest).min(SLOTS as i64);
            (0..passed).for_each(|n| self.calls[slot(number - n)] = 0);
            self.newest = number;
        }
        let calls = &mut self.calls[slot(self.newest)];
        *calls = calls.saturating_add(1);
    }

    /// When there were calls, oldest first, and how many: the middle of each half second stands for it.
    pub fn counts(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, usize)> {
        let oldest = now.0.div_euclid(SLOT_MS) - SLOTS as i64;
        let numbers = (self.newest - SLOTS as i64 + 1..=self.newest).filter(move |n| *n > oldest);
        let counts = numbers.map(move |number| {
            let middle = Timestamp(number * SLOT_MS + SLOT_MS / 2).min(now);
            (middle, usize::from(self.calls[slot(number)]))
        });
        counts.filter(|(_, calls)| *calls > 0)
    }
}

fn slot(number: i64) -> usize {
    number.rem_euclid(SLOTS as i64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_seconds_are_known_and_no_more() {
        let mut recent = RecentCalls::default();
        let at = |ms: i64| Timestamp(1_800_000_000_000 + ms);
        [0, 100, 5_000, 12_300, 12_400, 12_499].into_iter().for_each(|ms| recent.count(at(ms)));
        let counts: Vec<_> = recent.counts(at(12_499)).collect();
        assert_eq!(counts, [(at(5_250), 1), (at(12_250), 3)]);
        assert_eq!(recent.counts(at(30_000)).count(), 0);
    }
}
