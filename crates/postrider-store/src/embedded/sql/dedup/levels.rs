//! Which runs are merged. Four runs of a level make one of the next level, as long as the time in which their
//! keys were accepted is short compared to how long they live: a run is dropped as a whole.

use super::run::{KeyRun, RunPlace};

/// So many runs of a level are merged.
const FAN: usize = 4;
/// A merged run spans at most this part of the life of its keys.
const SPAN_PARTS: i64 = 6;

/// The runs to merge now: their first and how many. A run that is mostly expired, or in the old form, is
/// written anew alone.
pub(super) fn runs_to_merge(runs: &[KeyRun], expired_before: i64) -> Option<(usize, usize)> {
    let is_stale = |run: &KeyRun| {
        matches!(run.place, RunPlace::Table(_))
            || run.median <= expired_before && expired_before < run.latest
    };
    if let Some(at) = runs.iter().position(is_stale) {
        return Some((at, 1));
    }
    let top = runs.iter().map(|run| run.level).max()?;
    (0..=top).find_map(|level| among_level(runs, level))
}

/// Neighbours in time of one level. Runs are sorted by time, and higher levels are older, so those of a level
/// are side by side, except for a few.
fn among_level(runs: &[KeyRun], level: u32) -> Option<(usize, usize)> {
    if runs.iter().filter(|run| run.level == level).count() < FAN {
        return None;
    }
    let count_from = |first: usize| {
        let rest = &runs[first..];
        let fits = |count: &usize| {
            let some = &rest[..*count];
            some.iter().all(|run| run.level == level) && is_short(some)
        };
        (2..=FAN.min(rest.len())).rev().find(fits)
    };
    let candidates = (0..runs.len()).filter_map(|first| Some((first, count_from(first)?)));
    // The most at once, and of these the oldest.
    candidates.rev().max_by_key(|(_, count)| *count)
}

fn is_short(runs: &[KeyRun]) -> bool {
    let opened = runs.iter().map(|run| run.opened).min().unwrap_or(0);
    let closed = runs.iter().map(|run| run.closed).max().unwrap_or(0);
    let latest = runs.iter().map(|run| run.latest).max().unwrap_or(0);
    closed.saturating_sub(opened) <= latest.saturating_sub(closed) / SPAN_PARTS
}

#[cfg(test)]
mod tests {
    use super::super::filter::BloomFilter;
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// What is left of `count` runs, each accepted within `each` ms, with keys that live for a day.
    fn after(count: i64, each: i64) -> Vec<KeyRun> {
        let mut runs = Vec::new();
        for n in 0..count {
            let (opened, closed) = (n * each, (n + 1) * each);
            runs.retain(|run: &KeyRun| run.latest > closed);
            let latest = closed + 24 * HOUR;
            let filter = BloomFilter::sized_for(0);
            let place = RunPlace::Pages(n);
            let run =
                KeyRun { place, level: 0, keys: 1, opened, closed, median: latest, latest, filter };
            runs.push(run);
            while let Some((at, count)) = runs_to_merge(&runs, 0) {
                let merged: Vec<_> = runs.drain(at..at + count).collect();
                let last = merged.last().unwrap();
                let run = KeyRun {
                    level: last.level + 1,
                    keys: merged.iter().map(|run| run.keys).sum(),
                    opened: merged[0].opened,
                    filter: BloomFilter::sized_for(0),
                    ..*last
                };
                runs.insert(at, run);
            }
        }
        runs
    }

    #[test]
    fn a_lookup_asks_few_filters_whatever_the_rate() {
        for per_s in [0, 1, 30, 100, 1_000, 5_000, 20_000] {
            let each = if per_s == 0 { HOUR } else { (114_688_000 / per_s).min(HOUR) };
            let count = 40 * HOUR / each;
            let most = (count - count / 3..count).step_by(97).map(|n| after(n, each).len()).max();
            let most = most.unwrap();
            assert!(most <= 25, "{most} filters at {per_s} keys/s");
        }
    }

    #[test]
    fn keys_stay_little_longer_than_they_live() {
        for run in after(1_500, 115_000) {
            assert!(run.closed - run.opened <= 4 * HOUR, "{} ms", run.closed - run.opened);
        }
    }

    #[test]
    fn a_run_that_is_mostly_expired_is_written_anew() {
        let mut runs = after(3, HOUR);
        assert_eq!(runs_to_merge(&runs, 0), None);
        runs[1].median = 5;
        assert_eq!(runs_to_merge(&runs, 5), Some((1, 1)));
        assert_eq!(runs_to_merge(&runs, runs[1].latest), None, "it is dropped");
    }
}
