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
    /// The addresses of calls that began from then on.
    targets: [u64; CALLS_MIN],
    begun: usize,
    /// The tenant of the first, and whether another one's are among them.
    first: u64,
    others: bool,
    tenants: TenantPair,
}

impl OriginStall {
    /// A call of a tenant to an address begins (numbers that stand for them).
    pub(super) fn begin(&mut self, tenant: u64, target: u64, now: Timestamp) {
        if self.begun == 0 {
            (self.since, self.first, self.others) = (now, tenant, false);
        }
        self.others |= tenant != self.first;
        self.tenants.note(tenant, now);
        let same = self.targets[..self.begun].iter().filter(|other| **other == target).count();
        if same < PER_ADDRESS && self.begun < CALLS_MIN {
            self.targets[self.begun] = target;
            self.begun += 1;
        }
    }

    /// A call ended well within the usual time.
    pub(super) fn moves(&mut self) {
        self.begun = 0;
    }

    /// A call to an address ended within the usual time, but not well: it says nothing.
    pub(super) fn forget(&mut self, target: u64) {
        let same = self.targets[..self.begun].iter().position(|other| *other == target);
        if let Some(nth) = same {
            self.begun -= 1;
            self.targets.swap(nth, self.begun);
        }
    }

    /// `usual` is the usual time of a call.
    pub(super) fn stands(&self, usual: Duration, now: Timestamp) -> bool {
        self.begun >= CALLS_MIN
            && now.since(self.since) >= TIME_MIN + usual
            && (self.others || !self.tenants.are_two(ACTIVE, now))
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
}
