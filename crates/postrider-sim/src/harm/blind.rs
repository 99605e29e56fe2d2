//! Calls that nobody can know to be sick before they were made: the first to each address. If these alone take all
//! places, no policy can keep any for the others, and a world has no right answer.

use std::collections::{HashMap, HashSet};

use super::draw::draw;
use super::network::TIMEOUT;
use super::sick::{SickKind, SickPart};
use super::traffic::Arrival;

/// Half of the places of an origin (fewer where the operator set fewer), and how many calls of one that never
/// answered can last long.
const OF_ORIGIN: i32 = 128;
const OF_ORIGIN_AT_FIRST: i32 = 32;
/// Calls at once to an origin that did not answer for so long, and how long the first ones take to be answered.
const AT_FIRST: usize = 4;
const PROVEN_FOR_MS: i64 = 60_000;
const FIRST_MS: i64 = 300;
/// A place that is held for less is soon free again.
const HELD_MS: i64 = 50;

/// Whether the first calls to sick addresses leave half of the places to the others, at each origin and in all.
pub(super) fn leave_room(
    arrivals: &[Arrival],
    sick: &[SickPart],
    connections: usize,
    per_origin: Option<usize>,
) -> bool {
    let of_origin = per_origin.map_or(OF_ORIGIN, |calls| OF_ORIGIN.min(calls as i32));
    let healthy: HashSet<_> = arrivals.iter().filter(|a| !a.sick).map(|a| a.origin).collect();
    let mut called = HashSet::new();
    let mut changes = Vec::new();
    let mut meetings: HashMap<u32, FirstMeeting> = HashMap::new();
    for arrival in arrivals {
        let held = held_ms(arrival, sick);
        let meeting = meetings.entry(arrival.origin).or_default();
        if meeting.is_taken_up(arrival.at_ms, held) && healthy.contains(&arrival.origin) {
            return false;
        }
        if held > 0 && called.insert((arrival.tenant, arrival.origin, arrival.address)) {
            changes.push((arrival.at_ms, arrival.origin, 1));
            changes.push((arrival.at_ms + held, arrival.origin, -1));
        }
    }
    changes.sort_unstable();
    let mut standing: HashMap<u32, i32> = HashMap::new();
    let mut in_all = 0;
    changes.into_iter().all(|(_, origin, change)| {
        let own = standing.entry(origin).or_default();
        let before = (*own).min(OF_ORIGIN_AT_FIRST);
        *own += change;
        in_all += (*own).min(OF_ORIGIN_AT_FIRST) - before;
        let fits = *own <= of_origin || !healthy.contains(&origin);
        fits && 2 * in_all <= connections as i32
    })
}

/// The first calls to an origin that did not answer lately: it gets few until one of them is answered.
#[derive(Default)]
struct FirstMeeting {
    began: Option<i64>,
    last: i64,
    held: usize,
}

impl FirstMeeting {
    /// Counts a call that holds its place for so long; true if such calls take half of the first places.
    fn is_taken_up(&mut self, at: i64, held_ms: i64) -> bool {
        if self.began.is_none() || at - self.last >= PROVEN_FOR_MS {
            (self.began, self.held) = (Some(at), 0);
        }
        self.last = at;
        let is_first = self.began.is_some_and(|began| at - began < FIRST_MS);
        self.held += usize::from(is_first && held_ms >= HELD_MS);
        self.held > AT_FIRST / 2
    }
}

/// How long a first call holds its place because of a sick part.
fn held_ms(arrival: &Arrival, sick: &[SickPart]) -> i64 {
    let parts = sick.iter().enumerate().filter(|(nth, _)| arrival.is_in_part(*nth));
    let held = parts.map(|(nth, part)| {
        let mut rng = draw(arrival.key, "first call", nth as u64);
        if !rng.chance(part.chance * part.when.strength(arrival.at_ms)) {
            return 0;
        }
        match part.kind {
            SickKind::Hang => TIMEOUT.as_millis() as i64,
            SickKind::NoConnection { after_ms, .. } => after_ms as i64,
            SickKind::Slow(ref shape) => {
                let sick_for = part.when.since_onset(arrival.at_ms).unwrap_or(0);
                shape.extra_ms(&mut rng, sick_for) as i64
            }
            _ => 0,
        }
    });
    held.max().unwrap_or(0).min(TIMEOUT.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use postrider_testkit::sick_level::SickLevel;

    use super::super::sick::SickTime;
    use super::*;

    /// Every 10 ms a first call that hangs, to so many origins in turn; healthy ones are beside them.
    fn arrivals(calls: u32, origins: u32) -> Vec<Arrival> {
        let arrival = |id: u32, sick: bool| Arrival {
            at_ms: 1_000 + i64::from(id) * 10,
            id,
            key: id.into(),
            tenant: 0,
            origin: id % origins,
            address: id,
            class: 1,
            parts: sick.into(),
            sick,
        };
        let known = (0..origins).map(|id| Arrival { at_ms: 0, ..arrival(id, false) });
        known.chain((0..calls).flat_map(|id| [arrival(id, true), arrival(id, false)])).collect()
    }

    fn hangs() -> [SickPart; 1] {
        let level = SickLevel::Tenant(0);
        [SickPart { level, kind: SickKind::Hang, chance: 1.0, when: SickTime::Always }]
    }

    #[test]
    fn first_calls_that_take_half_of_an_origins_places_leave_room_and_more_do_not() {
        assert!(leave_room(&arrivals(128, 1), &hangs(), 4_096, None));
        assert!(!leave_room(&arrivals(129, 1), &hangs(), 4_096, None));
        assert!(leave_room(&arrivals(40, 1), &hangs(), 4_096, Some(40)));
        assert!(!leave_room(&arrivals(41, 1), &hangs(), 4_096, Some(40)));
    }

    #[test]
    fn first_calls_to_an_origin_that_did_not_answer_lately_leave_room_if_few_of_them_last() {
        let meet = |sick| {
            (0..sick).fold(FirstMeeting::default(), |mut meeting, n| {
                meeting.is_taken_up(n * 10, 1_000);
                meeting
            })
        };
        assert!(!meet(1).is_taken_up(200, 1_000));
        assert!(meet(2).is_taken_up(200, 1_000));
        assert!(!meet(2).is_taken_up(200, 0) && !meet(2).is_taken_up(400, 1_000));
    }

    #[test]
    fn first_calls_that_take_half_of_all_connections_leave_room_and_more_do_not() {
        assert!(leave_room(&arrivals(200, 50), &hangs(), 400, None));
        assert!(!leave_room(&arrivals(201, 50), &hangs(), 400, None));
    }
}
