//! An origin that cannot take more is not given more: blindness to overload is a fault, too.

use std::collections::{HashMap, HashSet};

use postrider_testkit::sick_level::SickLevel;

use super::MeasuredBreach;
use crate::harm::network::WireCall;
use crate::harm::plan::HarmPlan;
use crate::harm::sick::{SickKind, SickPart};

/// When an overloaded origin can be known for it, and when calls there, and its refusals, are looked at, counted from
/// when it was met.
const FOUND_AFTER_MS: i64 = 5_000;
const STANDING_AFTER_MS: i64 = 15_000;
const REFUSED_AFTER_MS: i64 = 30_000;
/// How long it is remembered that an origin is overloaded.
const KNOWN_FOR_MS: i64 = 60_000;
/// Calls that may be too many: that is what it takes to find out.
const TOO_MANY: i64 = 32;
/// A queue is seen once it makes an answer take twice as long, and so much longer.
const SEEN_MS: u64 = 50;
/// Failures in a row from which on an address is sick, and the calls to sick addresses that are allowed: so many per
/// second, and a share of all.
const SICK_FAILURES: u32 = 3;
const SICK_PER_S: f64 = 10.0;
const SICK_SHARE: f64 = 0.1;
/// Those per second are counted over so long at the least.
const SICK_WINDOW_S: f64 = 10.0;

pub(super) fn check(plan: &HarmPlan, calls: &[WireCall]) -> Vec<MeasuredBreach> {
    let mut broken = Vec::new();
    let parts = plan.sick.iter().enumerate().filter(|(_, part)| part.kind.depends_on_load());
    for (nth, part) in parts {
        let is_of_part = |call: &&WireCall| plan.arrivals[call.arrival as usize].is_in_part(nth);
        let mut calls: Vec<_> = calls.iter().filter(is_of_part).collect();
        calls.sort_unstable_by_key(|call| call.written);
        broken.extend(standing(plan, &calls, nth, part));
        broken.extend(refused(plan, &calls, nth, part));
    }
    broken
}

fn standing(
    plan: &HarmPlan,
    calls: &[&WireCall],
    nth: usize,
    part: &SickPart,
) -> Option<MeasuredBreach> {
    let (slots, seen_from) = match part.kind {
        SickKind::Queue { slots, work_ms } => {
            let work_ms = work_ms.max(1);
            let slow_ms = (2 * work_ms).max(work_ms + SEEN_MS);
            (slots as i64, (slots as u64 * slow_ms / work_ms) as i64)
        }
        SickKind::Slots { slots, .. } => (slots as i64, slots as i64),
        _ => return None,
    };
    let own: Vec<_> = calls.iter().copied().filter(|call| !lasts_anyway(plan, call, nth)).collect();
    let most = most_standing(&own, part, seen_from);
    let detail = format!("{most} calls at once to one that takes {slots}");
    let times = most as f64 / (2 * slots + TOO_MANY) as f64;
    let bound = "calls standing at an overloaded origin";
    (times > 1.0).then(|| MeasuredBreach::new(bound, detail, times))
}

fn refused(
    plan: &HarmPlan,
    calls: &[&WireCall],
    nth: usize,
    part: &SickPart,
) -> Option<MeasuredBreach> {
    let sick = to_sick_addresses(plan, calls);
    let late = late_calls(calls, nth, part);
    let (first, last) = (late.first()?, late.last()?);
    let seconds = (calls[*last].written - calls[*first].written) as f64 / 1_000.0;
    let is_refused = |n: &&usize| calls[**n].refused_by == Some(nth);
    let of_sick = late.iter().filter(is_refused).filter(|n| sick.contains(n)).count() as f64;
    let others = late.iter().filter(is_refused).count() as f64 - of_sick;
    let tenant = |n: &usize| plan.arrivals[calls[*n].arrival as usize].tenant;
    let tenants = late.iter().map(tenant).collect::<HashSet<_>>().len() as f64;
    let all = late.len() as f64;
    // A burst beyond one tenant's quota is met by every new burst.
    let is_quota = matches!(part.level, SickLevel::TenantAtOrigin { .. });
    let share = if is_quota { 0.25 } else { 0.05 };
    let of_sick_addresses = SICK_PER_S * seconds.max(SICK_WINDOW_S) + SICK_SHARE * all;
    let allowed = match part.kind {
        // All share the limit of the origin.
        SickKind::Slots { status: 503, .. } => TOO_MANY as f64 + seconds + share * all,
        // A 503 does not say that it is too much: it may be about its address as well.
        SickKind::Rate { status: 503, .. } => TOO_MANY as f64 * tenants + of_sick_addresses,
        // Each tenant finds out by itself.
        _ => TOO_MANY as f64 * tenants + seconds + share * all,
    };
    let detail = format!("{others} of {all} calls, and {of_sick} to sick addresses");
    let times = (others / allowed).max(of_sick / of_sick_addresses);
    let bound = "calls refused by an overloaded origin";
    (times > 1.0).then(|| MeasuredBreach::new(bound, detail, times))
}

/// Calls to addresses of which the last calls failed. These have a bound of their own: a 503 makes an address sick,
/// and nobody can know whether it is the address or the load before it is called again.
fn to_sick_addresses(plan: &HarmPlan, calls: &[&WireCall]) -> HashSet<usize> {
    let mut moments: Vec<_> = calls
        .iter()
        .enumerate()
        .flat_map(|(n, call)| [(call.ended, false, n), (call.written, true, n)])
        .collect();
    moments.sort_unstable();
    let mut failures: HashMap<(u32, u32), u32> = HashMap::new();
    let mut sick = HashSet::new();
    for (_, begins, n) in moments {
        let arrival = &plan.arrivals[calls[n].arrival as usize];
        let own = failures.entry((arrival.tenant, arrival.address)).or_default();
        match begins {
            true if *own >= SICK_FAILURES => _ = sick.insert(n),
            true => {}
            false if calls[n].accepted => *own = 0,
            false => *own += u32::from(calls[n].failed),
        }
    }
    sick
}

/// Whether another sick part makes the call last, however many there are.
fn lasts_anyway(plan: &HarmPlan, call: &WireCall, nth: usize) -> bool {
    let arrival = &plan.arrivals[call.arrival as usize];
    let mut others = plan.sick.iter().enumerate().filter(|(other, _)| *other != nth);
    others.any(|(other, part)| arrival.is_in_part(other) && part.kind.makes_calls_last())
}

/// The numbers of the calls to an origin that has refused some for long enough to be known for it.
fn late_calls(calls: &[&WireCall], nth: usize, part: &SickPart) -> Vec<usize> {
    let mut trouble = KnownTrouble::default();
    let is_late = |call: &WireCall| {
        trouble.look(call.refused_by == Some(nth), call.written);
        is_sick_for(part, REFUSED_AFTER_MS, call.written)
            && trouble.lasts(REFUSED_AFTER_MS, call.written)
    };
    let late: Vec<_> = calls.iter().copied().map(is_late).collect();
    (0..calls.len()).filter(|n| late[*n]).collect()
}

/// The most calls under way at once, after the limit has had time to find its size. Without those that began
/// before anybody could know: they may last until they are given up.
fn most_standing(calls: &[&WireCall], part: &SickPart, seen_from: i64) -> i64 {
    let numbers = calls.iter().enumerate();
    let mut changes: Vec<_> =
        numbers.flat_map(|(n, call)| [(call.written, 1, n), (call.ended, -1, n)]).collect();
    changes.sort_unstable();
    let mut trouble = KnownTrouble::default();
    let mut is_late = vec![false; calls.len()];
    let (mut all, mut standing, mut most) = (0, 0, 0);
    for (at, change, nth) in changes {
        all += change;
        trouble.look(all > seen_from, at);
        let is_known = is_sick_for(part, FOUND_AFTER_MS, at) && trouble.lasts(FOUND_AFTER_MS, at);
        is_late[nth] |= change > 0 && is_known;
        standing += if is_late[nth] { change } else { 0 };
        if is_sick_for(part, STANDING_AFTER_MS, at) && trouble.lasts(STANDING_AFTER_MS, at) {
            most = most.max(standing);
        }
    }
    most
}

/// Since when an origin is met overloaded. After a quiet minute, nobody knows any more.
#[derive(Default)]
struct KnownTrouble {
    since: Option<i64>,
    last: i64,
}

impl KnownTrouble {
    fn look(&mut self, is_there: bool, at: i64) {
        self.since = self.since.filter(|_| at - self.last <= KNOWN_FOR_MS);
        if is_there {
            self.since = self.since.or(Some(at));
            self.last = at;
        }
    }

    fn lasts(&self, ms: i64, at: i64) -> bool {
        self.since.is_some_and(|since| at - since >= ms)
    }
}

/// Whether the part is sick at that time, and has been for at least so long.
fn is_sick_for(part: &SickPart, ms: i64, at: i64) -> bool {
    part.when.strength(at) > 0.0 && part.when.since_onset(at).is_some_and(|since| since >= ms)
}
