//! Whether an origin stands still: of many calls that began, none ended well within the usual time. Then it is not some
//! calls that take long. It takes the calls to three addresses, and of two tenants where two call. Reads no clock.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::tenant_pair::TenantPair;

/// So many calls, so many of them to one address at most, over so long.
const CALLS_MIN: usize = 12;
const PER_ADDRESS: usize = 4;
const TIME_MIN: Duration = Duration::from_secs(1);
/// A tenant that called within this time is active.
const ACTIVE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OriginStall {
    /// When a call last ended well within the usual time, or the first one began.
    since: Timestamp,
    /// Calls that began from then on.
    calls: [AwaitedCall; CALLS_MIN],
    begun: usize,
    tenants: TenantPair,
}

/// Numbers stand for tenant and address.
#[derive(Debug, Clone, Copy, Default)]
struct AwaitedCall {
    tenant: u64,
    target: u64,
    at: Timestamp,
}

impl OriginStall {
    /// A call of a tenant to an address begins (numbers that stand for them).
    pub(super) fn begin(&mut self, tenant: u64, target: u64, now: Timestamp) {
        if self.begun == 0 {
            self.since = now;
        }
        self.tenants.note(tenant, now);
        let call = AwaitedCall { tenant, target, at: now };
        let same = self.begun().iter().filter(|other| other.target == target).count();
        if same < PER_ADDRESS && self.begun < CALLS_MIN {
            self.calls[self.begun] = call;
            self.begun += 1;
        } else if self.begun == CALLS_MIN && self.begun().iter().all(|c| c.tenant != tenant) {
            // One that says nothing new makes room.
            self.calls[CALLS_MIN - 1] = call;
        }
    }

    /// A call ended well within the usual time.
    pub(super) fn moves(&mut self) {
        self.begun = 0;
    }

    /// A call to an address ended within the usual time, but not well: it says nothing.
    pub(super) fn forget(&mut self, target: u64) {
        let same = self.begun().iter().position(|other| other.target == target);
        if let Some(nth) = same {
            self.begun -= 1;
            self.calls.swap(nth, self.begun);
        }
    }

    /// `usual` is the usual time of a call. A call that began just now says nothing about its tenant yet.
    pub(super) fn stands(&self, usual: Duration, now: Timestamp) -> bool {
        let first = self.calls[0].tenant;
        let is_old = |call: &AwaitedCall| now.since(call.at) >= usual;
        let others = || self.begun().iter().any(|call| call.tenant != first && is_old(call));
        self.begun >= CALLS_MIN
            && now.since(self.since) >= TIME_MIN + usual
            && (!self.tenants.are_two(ACTIVE, now) || others())
    }

    fn begun(&self) -> &[AwaitedCall] {
        &self.calls[..self.begun]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const USUAL: Duration = Duration::from_millis(250);

    fn stands(calls: u64, tenants: u64, after_ms: u64) -> bool {
        let mut stall = OriginStall::default();
        // Another tenant was served before.
        stall.begin(9, 9, NOW);
        stall.moves();
        (0..calls).for_each(|n| stall.begin(n % tenants, n, NOW));
        stall.stands(USUAL, NOW + Duration::from_millis(after_ms))
    }

    #[test]
    fn an_origin_stands_if_no_call_of_two_tenants_ends() {
        assert!(stands(12, 2, 1_250));
        assert!(!stands(11, 2, 1_250) && !stands(12, 2, 1_249));
    }

    #[test]
    fn calls_that_fail_at_once_do_not_stand() {
        let mut stall = OriginStall::default();
        for n in 0..99 {
            stall.begin(0, n, NOW);
            stall.forget(n);
        }
        assert!(!stall.stands(USUAL, NOW + Duration::from_secs(60)));
    }

    #[test]
    fn two_slow_addresses_say_nothing_about_the_others() {
        let mut stall = OriginStall::default();
        (0..99).for_each(|n| stall.begin(0, n % 2, NOW));
        assert!(!stall.stands(USUAL, NOW + Duration::from_secs(60)));
    }

    #[test]
    fn one_tenants_calls_say_nothing_about_another_tenant() {
        assert!(!stands(200, 1, 30_000));
        assert!(stands(200, 1, 61_000), "the other one was not there for a minute");
    }

    #[test]
    fn calls_that_began_just_now_say_nothing_about_their_tenants() {
        let mut stall = OriginStall::default();
        (0..20).for_each(|n| stall.begin(0, n, NOW));
        let burst = NOW + Duration::from_secs(9);
        (20..40).for_each(|n| stall.begin(n, n, burst));
        assert!(!stall.stands(USUAL, burst));
        assert!(stall.stands(USUAL, burst + USUAL));
    }

    #[test]
    fn a_call_of_another_tenant_that_failed_at_once_says_nothing() {
        let mut stall = OriginStall::default();
        (0..20).for_each(|n| stall.begin(0, n, NOW));
        stall.begin(1, 99, NOW);
        stall.forget(99);
        stall.begin(0, 21, NOW);
        assert!(!stall.stands(USUAL, NOW + Duration::from_secs(9)));
    }
}
