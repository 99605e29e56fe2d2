//! What fails together with many others costs no attempt: an outage must not use up the attempts of a delivery. Judged
//! by the calls on the wire, where nobody can doubt that it is not the address alone.

use std::collections::HashMap;

use crate::harm::bounds::BrokenBound;
use crate::harm::network::WireCall;
use crate::harm::plan::HarmPlan;

/// How long a vote counts.
const VOTE_MS: i64 = 55_000;
/// So many addresses that fail, and none that works, are an outage ...
const DOWN_MIN: usize = 8;
/// ... and so large a part of so many addresses is more than single ones. Of more, some share a slot of the votes; a
/// larger part may have been an outage, after which bad votes are forgotten.
const SOME_MIN: usize = 10;
const SOME_MAX: usize = 40;
const SOME_SHARE: std::ops::Range<f64> = 0.3..0.6;
/// An address with more failures in a row may be sick itself.
const FAILURES_MAX: u32 = 2;
/// An answer is settled within this time.
const SETTLED_MS: i64 = 100;
/// Calls that began before may belong to another time.
const UNDER_WAY_MS: i64 = 1_000;

/// The latest that is known about the addresses of one tenant at one origin.
#[derive(Default)]
struct AddressVotes(HashMap<u32, AddressVote>);

#[derive(Default, Clone, Copy)]
struct AddressVote {
    failures: u32,
    good: Option<bool>,
    at: i64,
}

/// When attempts of each arrival were counted that failed.
pub(crate) type CountedFailures = HashMap<u32, Vec<i64>>;

pub(super) fn check(
    plan: &HarmPlan,
    calls: &[WireCall],
    counted: &CountedFailures,
) -> Option<BrokenBound> {
    let mut ended: Vec<_> = calls.iter().filter(|call| call.ended != i64::MAX).collect();
    ended.sort_unstable_by_key(|call| call.ended);
    let mut tenants: HashMap<(u32, u32), AddressVotes> = HashMap::new();
    ended.into_iter().find_map(|call| {
        let arrival = &plan.arrivals[call.arrival as usize];
        let own = tenants.entry((arrival.tenant, arrival.origin)).or_default();
        let is_free = own.ended(arrival.address, call);
        let is_counted = |at: &i64| (call.ended..=call.ended + SETTLED_MS).contains(at);
        if !is_free || !counted.get(&call.arrival).is_some_and(|times| times.iter().any(is_counted))
        {
            return None;
        }
        let detail = format!(
            "t{} at o{}, address {}: an attempt counted at {} ms",
            arrival.tenant, arrival.origin, arrival.address, call.ended
        );
        Some(BrokenBound { bound: "what fails with many others costs no attempt", detail })
    })
}

impl AddressVotes {
    /// A call ended. True if it failed and must not count as an attempt.
    fn ended(&mut self, address: u32, call: &WireCall) -> bool {
        let known = self.share(call.written - UNDER_WAY_MS);
        let own = self.0.entry(address).or_default();
        if call.accepted {
            *own = AddressVote { failures: 0, good: Some(true), at: call.ended };
            return false;
        }
        if call.refused {
            return false;
        }
        own.failures += 1;
        if call.is_first {
            (own.good, own.at) = (Some(false), call.ended);
        }
        let failures = own.failures;
        failures <= FAILURES_MAX && known.is_some() && known == self.share(call.ended)
    }

    /// Whether all of many addresses fail, or a good part of them; nothing where that is not sure.
    fn share(&self, at: i64) -> Option<bool> {
        let recent = |vote: &&AddressVote| at >= vote.at && at - vote.at < VOTE_MS;
        let votes = || self.0.values().filter(recent);
        let good = votes().filter(|vote| vote.good == Some(true)).count();
        let bad = votes().filter(|v| v.good == Some(false) && v.failures <= FAILURES_MAX).count();
        let share = bad as f64 / (good + bad).max(1) as f64;
        let sick = votes().filter(|vote| vote.failures > FAILURES_MAX).count();
        match good {
            0 if bad >= DOWN_MIN => Some(true),
            _ if 4 * sick > good + bad => None,
            _ if (SOME_MIN..SOME_MAX).contains(&(good + bad)) && SOME_SHARE.contains(&share) => {
                Some(false)
            }
            _ => None,
        }
    }
}
