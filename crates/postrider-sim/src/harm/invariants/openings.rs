//! An origin that nobody can connect to is tried rarely. Judged by the openings alone.

use std::collections::HashMap;

use crate::harm::bounds::BrokenBound;
use crate::harm::network::{FailedOpening, WireCall};
use crate::harm::plan::HarmPlan;

/// So many failed openings in a row, each begun after the one before had ended, over so long, are no chance.
const FAILED_MIN: usize = 8;
const FAILED_FOR_MS: i64 = 2_000;
/// Openings that were under way may begin so much later.
const UNDER_WAY_MS: i64 = 1_000;
/// Openings per interval from then on, and the shortest interval.
const PROBES: usize = 3;
const INTERVAL_MS: i64 = 3_500;

/// What happened at one origin, in order of time.
enum OpeningMoment {
    Opened,
    /// It began then.
    Failed(i64),
    Begins,
}

#[derive(Default)]
struct OriginOpenings {
    /// Failures in a row, and when the first of them ended.
    failed: usize,
    first: i64,
    last: i64,
    known_at: Option<i64>,
    /// When openings began that came after it was known.
    late: Vec<i64>,
}

pub(super) fn check(
    plan: &HarmPlan,
    calls: &[WireCall],
    failed: &[FailedOpening],
) -> Option<BrokenBound> {
    let origin = |arrival: u32| plan.arrivals[arrival as usize].origin;
    let written = calls.iter().map(|c| (c.written, origin(c.arrival), OpeningMoment::Opened));
    let openings = failed.iter().flat_map(|opening| {
        let origin = origin(opening.arrival);
        [
            (opening.ended, origin, OpeningMoment::Failed(opening.began)),
            (opening.began, origin, OpeningMoment::Begins),
        ]
    });
    let mut moments: Vec<_> = written.chain(openings).collect();
    moments.sort_by_key(|(at, ..)| *at);
    let mut origins: HashMap<u32, OriginOpenings> = HashMap::new();
    moments.into_iter().find_map(|(at, origin, moment)| {
        let from = origins.entry(origin).or_default().look(at, &moment)?;
        let detail = format!("o{origin}: 4 openings from {from} to {at} ms");
        Some(BrokenBound { bound: "what cannot be reached is tried rarely", detail })
    })
}

impl OriginOpenings {
    /// Returns since when there are too many.
    fn look(&mut self, at: i64, moment: &OpeningMoment) -> Option<i64> {
        match moment {
            OpeningMoment::Opened => *self = Self::default(),
            OpeningMoment::Failed(began) if self.failed == 0 || *began >= self.last => {
                if self.failed == 0 {
                    self.first = at;
                }
                self.failed += 1;
                self.last = at;
                if self.failed >= FAILED_MIN && at - self.first >= FAILED_FOR_MS {
                    self.known_at = self.known_at.or(Some(at));
                }
            }
            OpeningMoment::Failed(_) => {}
            OpeningMoment::Begins => {
                if self.known_at.is_none_or(|known_at| at < known_at + UNDER_WAY_MS) {
                    return None;
                }
                self.late.push(at);
                let earlier = self.late.len().checked_sub(PROBES + 1).map(|nth| self.late[nth]);
                return earlier.filter(|earlier| at - earlier < INTERVAL_MS);
            }
        }
        None
    }
}
