//! Whether an origin refuses calls because they are too many. Where it is so, calls that begin while few are
//! under way are taken. Where these are refused as often as the others, it is not their number. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;

/// Up to so many calls under way, each number has a level of its own; above, four levels are a doubling.
const SINGLE: usize = 16;
const PER_DOUBLING: f64 = 4.0;
const LEVELS: usize = 48;
/// What was seen longer ago says nothing about now.
const REMEMBERED: Duration = Duration::from_secs(10);
/// From so many calls on, older ones of a level count half.
const CALLS_MAX: f32 = 64.0;
/// So many calls with few under way are needed for a judgement.
const FEW_MIN: f32 = 32.0;
/// Too many calls are the reason if those with few under way are refused less often than this share of all.
const LESS_OFTEN: f32 = 0.5;

/// How calls ended, by how many were under way when they began. Takes memory from the first refusal on.
#[derive(Debug, Clone, Default)]
pub(super) struct RefusalLevels(Vec<LevelCount>);

#[derive(Debug, Clone, Copy, Default)]
struct LevelCount {
    calls: f32,
    refused: f32,
    at: Timestamp,
}

impl RefusalLevels {
    /// A call ended that began as one of so many under way.
    pub(super) fn note(&mut self, under_way: usize, refused: bool, now: Timestamp) {
        if self.0.is_empty() {
            if !refused {
                return;
            }
            self.0.resize(LEVELS, LevelCount::default());
        }
        let level = &mut self.0[level_of(under_way)];
        if !level.is_recent(now) {
            *level = LevelCount::default();
        }
        if level.calls >= CALLS_MAX {
            (level.calls, level.refused) = (level.calls / 2.0, level.refused / 2.0);
        }
        level.calls += 1.0;
        level.refused += f32::from(u8::from(refused));
        level.at = now;
    }

    /// Whether fewer calls are refused as long as no more than `few` are under way; nothing if that is not known.
    pub(super) fn depend_on_calls(&self, few: f64, now: Timestamp) -> Option<bool> {
        if few < 1.0 || self.0.is_empty() {
            return None;
        }
        let all = LevelCount::sum(&self.0, now);
        let few = LevelCount::sum(&self.0[..=level_of(few as usize)], now);
        (few.calls >= FEW_MIN).then(|| few.share() < all.share() * LESS_OFTEN)
    }
}

impl LevelCount {
    fn is_recent(&self, now: Timestamp) -> bool {
        self.at <= now && now.since(self.at) < REMEMBERED
    }

    fn sum(levels: &[Self], now: Timestamp) -> Self {
        let mut sum = Self::default();
        for level in levels.iter().filter(|level| level.is_recent(now)) {
            sum.calls += level.calls;
            sum.refused += level.refused;
        }
        sum
    }

    fn share(&self) -> f32 {
        self.refused / self.calls
    }
}

fn level_of(under_way: usize) -> usize {
    let beyond = (under_way as f64 / SINGLE as f64).log2() * PER_DOUBLING;
    let level = if under_way <= SINGLE { under_way.max(1) - 1 } else { SINGLE + beyond as usize };
    level.min(LEVELS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// Bursts of 40 calls at once.
    fn after_bursts(refuses: impl Fn(usize, usize) -> bool) -> RefusalLevels {
        let mut levels = RefusalLevels::default();
        for n in 0..400 {
            let under_way = n % 40 + 1;
            levels.note(under_way, refuses(n, under_way), NOW);
        }
        levels
    }

    #[test]
    fn an_origin_that_takes_so_many_at_once_refuses_because_of_our_calls() {
        let levels = after_bursts(|_, under_way| under_way > 20);
        assert_eq!(levels.depend_on_calls(10.0, NOW), Some(true));
    }

    #[test]
    fn an_origin_that_refuses_as_often_while_few_calls_are_under_way_does_not() {
        let levels = after_bursts(|n, _| n % 7 == 0);
        assert_eq!(levels.depend_on_calls(17.0, NOW), Some(false));
    }

    #[test]
    fn nothing_is_known_from_long_ago_or_where_all_calls_are_many() {
        let levels = after_bursts(|n, _| n % 7 == 0);
        assert_eq!(levels.depend_on_calls(17.0, NOW + REMEMBERED), None);
        assert_eq!(levels.depend_on_calls(0.4, NOW), None, "not even one call would do");
        let mut levels = RefusalLevels::default();
        (0..200).for_each(|n| levels.note(40, n % 2 == 0, NOW));
        assert_eq!(levels.depend_on_calls(20.0, NOW), None);
    }
}
