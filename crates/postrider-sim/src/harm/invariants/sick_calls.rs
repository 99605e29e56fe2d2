//! An address or a tenant's origin that fails is called rarely. Judged by the calls on the wire alone: an
//! address is seen to be sick, and a tenant's origin to be down, where nobody can doubt it.

use std::collections::HashMap;

use crate::harm::bounds::BrokenBound;
use crate::harm::network::WireCall;
use crate::harm::plan::HarmPlan;

/// Failures in a row, each begun after the one before had ended.
const FAILURES_MIN: u32 = 3;
/// Others that vote, and for how long their votes count.
const VOTERS_MIN: usize = 5;
/// So many addresses that fail, and none that works, are no chance.
const DOWN_MIN: usize = 8;
const VOTE_MS: i64 = 55_000;
const VOTE_MS_MAX: i64 = 65_000;
/// Calls that were handed to the channel before may be written so much later.
const UNDER_WAY_MS: i64 = 1_000;
/// Calls to a sick address in its first minutes, and the time between calls from then on.
const FIRST_CALLS_MAX: usize = 9;
const FIRST_MS: i64 = 300_000;
const LATER_EVERY_MS: i64 = 180_000;
/// Calls per interval where all is down, and the shortest interval.
const PROBES: usize = 3;
const INTERVAL_MS: i64 = 3_500;
/// All calls to sick addresses of an origin: a share of its calls, and so many per second.
const SHARE: f64 = 0.1;
const PER_S: i64 = 10;
const WINDOW_MS: i64 = 10_000;

#[derive(Default)]
struct TenantCalls {
    addresses: HashMap<u32, AddressCalls>,
    /// Since when everything fails, and the calls written from then on.
    down: Option<(i64, Vec<i64>)>,
}

#[derive(Default)]
struct AddressCalls {
    failures: u32,
    first_failure: i64,
    ended: i64,
    /// Its latest vote: well or not, and when.
    vote: Option<(bool, i64)>,
    /// When it was last answered by 503: that may be the origin.
    unavailable: Option<i64>,
    /// Since when it is seen to be sick, and the calls written from then on.
    sick: Option<(i64, Vec<i64>)>,
    /// Calls under way that were written since then.
    standing: u32,
}

pub(super) fn check(plan: &HarmPlan, calls: &[WireCall]) -> Vec<BrokenBound> {
    let mut moments: Vec<_> = calls
        .iter()
        .enumerate()
        .flat_map(|(nth, call)| [(call.ended, false, nth), (call.written, true, nth)])
        .collect();
    moments.sort_unstable();
    let mut tenants: HashMap<(u32, u32), TenantCalls> = HashMap::new();
    let mut windows: HashMap<(u32, i64), (u32, u32)> = HashMap::new();
    let mut broken = Vec::new();
    for (at, begins, nth) in moments {
        let call = &calls[nth];
        if at == i64::MAX {
            break;
        }
        let arrival = &plan.arrivals[call.arrival as usize];
        let own = tenants.entry((arrival.tenant, arrival.origin)).or_default();
        let who = || format!("t{} at o{}", arrival.tenant, arrival.origin);
        if begins {
            let window = windows.entry((arrival.origin, at / WINDOW_MS)).or_default();
            window.0 += 1;
            window.1 += u32::from(own.is_sick(arrival.address));
            broken.extend(own.began(arrival.address, call, at).map(|(bound, detail)| {
                BrokenBound {
                    bound,
                    detail: format!("{}, address {}: {detail}", who(), arrival.address),
                }
            }));
        } else {
            own.ended(arrival.address, call);
        }
    }
    let too_many = windows.into_iter().filter(|(_, (all, sick))| {
        f64::from(*sick) > SHARE * f64::from(*all) + (PER_S * WINDOW_MS / 1_000) as f64
    });
    broken.extend(too_many.map(|((origin, window), (all, sick))| BrokenBound {
        bound: "calls to sick addresses are few",
        detail: format!("o{origin}: {sick} of {all} from {} ms on", window * WINDOW_MS),
    }));
    broken
}

impl TenantCalls {
    fn is_sick(&self, address: u32) -> bool {
        self.addresses.get(&address).is_some_and(|own| own.sick.is_some())
    }

    /// A request is written. Says what is wrong about it.
    fn began(&mut self, address: u32, call: &WireCall, at: i64) -> Option<(&'static str, String)> {
        let own = self.addresses.entry(address).or_default();
        let of_address = own.began(at);
        let Some((since, calls)) = self.down.as_mut() else { return of_address };
        // What asks for less says nothing: another call may try.
        if at < *since + UNDER_WAY_MS || own.sick.is_some() || call.refused {
            return of_address;
        }
        calls.push(at);
        let earlier = calls.len().checked_sub(PROBES + 1).map(|nth| calls[nth]);
        let too_many = earlier.filter(|earlier| at - earlier < INTERVAL_MS).map(|earlier| {
            ("what is down is called rarely", format!("4 calls from {earlier} to {at} ms"))
        });
        of_address.or(too_many)
    }

    fn ended(&mut self, address: u32, call: &WireCall) {
        let at = call.ended;
        let first_failure = self.addresses.entry(address).or_default().first_failure;
        let others = self.addresses.iter().filter(|(other, _)| **other != address);
        // Good votes count from the first failure on: before, there was no reason to remember any.
        let (mut good, mut good_since, mut bad, mut unavailable) = (0, 0, 0, 0);
        for (_, other) in others {
            unavailable += usize::from(other.unavailable.is_some_and(|when| at - when < VOTE_MS));
            let Some((is_good, when)) = other.vote else { continue };
            let is_recent = at - when < VOTE_MS;
            bad += usize::from(!is_good && is_recent);
            good += usize::from(is_good && at - when < VOTE_MS_MAX);
            good_since += usize::from(is_good && is_recent && when >= first_failure);
        }
        let own = self.addresses.entry(address).or_default();
        own.stands_no_more(call);
        if call.accepted {
            let vote = Some((true, at));
            *own = AddressCalls { ended: at, vote, ..AddressCalls::default() };
            self.down = None;
            return;
        }
        // Whoever asks for less is not ill.
        if call.refused {
            if call.failed && call.is_first {
                own.unavailable = Some(at);
            }
            return;
        }
        if own.sick.is_none() && call.is_first {
            own.vote = Some((false, at));
        }
        own.failed(call, good_since >= VOTERS_MIN && good_since > 2 * (bad + unavailable));
        let all_fail = good == 0 && bad >= DOWN_MIN;
        if all_fail && own.sick.is_none() {
            self.down.get_or_insert_with(|| (at, Vec::new()));
        }
    }
}

impl AddressCalls {
    fn began(&mut self, at: i64) -> Option<(&'static str, String)> {
        let (since, calls) = self.sick.as_mut().filter(|(since, _)| at >= since + UNDER_WAY_MS)?;
        self.standing += 1;
        let last = calls.last().copied();
        calls.push(at);
        let early = calls.iter().filter(|call| **call < *since + FIRST_MS).count();
        if self.standing > 1 {
            let detail = format!("{} calls at once at {at} ms, sick since {since}", self.standing);
            return Some(("one call at a time to a sick address", detail));
        }
        let is_early = at < *since + FIRST_MS;
        let too_soon = last.is_some_and(|last| !is_early && at - last < LATER_EVERY_MS);
        if (is_early && early > FIRST_CALLS_MAX) || too_soon {
            let detail = format!("{} calls by {at} ms, sick since {since}", calls.len());
            return Some(("a sick address is called rarely", detail));
        }
        None
    }

    fn stands_no_more(&mut self, call: &WireCall) {
        if self.sick.as_ref().is_some_and(|(since, _)| call.written >= since + UNDER_WAY_MS) {
            self.standing -= 1;
        }
    }

    /// `others_work` says that nobody can doubt that it is the address.
    fn failed(&mut self, call: &WireCall, others_work: bool) {
        // It began when a connection was opened for it.
        if call.written - call.opening_ms < self.ended {
            return;
        }
        if self.failures == 0 {
            self.first_failure = call.ended;
        }
        self.failures += 1;
        self.ended = call.ended;
        if self.failures >= FAILURES_MIN && others_work {
            self.sick.get_or_insert_with(|| (call.ended, Vec::new()));
        }
    }
}
