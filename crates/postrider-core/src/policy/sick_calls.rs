//! How many calls to sick addresses an origin gets: so many per second, however many addresses are sick there. One
//! tenant leaves some of them to the others. A call that succeeds does not count. Reads no clock.

use std::collections::HashMap;
use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::limiter::{Limiter, Rate};

const PER_S: u32 = 8;
/// How far apart calls are put off that are too many.
const APART: Duration = Duration::from_millis(1_000 / PER_S as u64);
/// From so many tenants on, those are forgotten that made no call lately.
const TENANTS_MAX: usize = 64;

#[derive(Debug, Clone)]
pub struct SickCalls {
    all: Limiter,
    /// By tenant.
    recent: HashMap<u64, RecentSickCalls>,
}

/// Calls of one tenant: those a second ago count a third.
#[derive(Debug, Clone, Copy, Default)]
struct RecentSickCalls {
    calls: f64,
    at: Timestamp,
}

/// What is left to a tenant at one moment.
#[derive(Debug, Clone, Copy)]
pub struct SickCallRoom {
    left: usize,
    /// What the tenant took lately.
    own: f64,
    used: usize,
    next: Timestamp,
}

impl Default for SickCalls {
    fn default() -> Self {
        let all = Limiter::new(Rate { per_s: PER_S.into(), burst: PER_S, ramp_s: 0 });
        Self { all, recent: HashMap::new() }
    }
}

impl SickCalls {
    /// `tenant` is a number that stands for it.
    pub fn room(&mut self, tenant: u64, now: Timestamp) -> SickCallRoom {
        let left = self.all.available(PER_S as usize, now);
        let own = self.recent.get(&tenant).map_or(0.0, |recent| recent.calls(now));
        SickCallRoom { left, own, used: 0, next: self.all.next(now).max(now) }
    }

    /// Takes what was used.
    pub fn take(&mut self, tenant: u64, room: SickCallRoom, now: Timestamp) {
        if room.used == 0 {
            return;
        }
        self.all.take(room.used, now);
        if self.recent.len() >= TENANTS_MAX {
            self.recent.retain(|_, recent| recent.calls(now) > 0.1);
        }
        self.recent.insert(tenant, RecentSickCalls { calls: room.own, at: now });
    }

    /// A call to a sick address succeeded.
    pub fn succeeded(&mut self, tenant: u64, now: Timestamp) {
        self.all.refund(1, now);
        if let Some(recent) = self.recent.get_mut(&tenant) {
            *recent = RecentSickCalls { calls: (recent.calls(now) - 1.0).max(0.0), at: now };
        }
    }
}

impl RecentSickCalls {
    fn calls(&self, now: Timestamp) -> f64 {
        self.calls * (-now.since(self.at).as_secs_f64()).exp()
    }
}

impl SickCallRoom {
    /// Takes one call, or says when there may be one. A tenant takes no more than it leaves.
    pub(super) fn take(&mut self) -> Result<(), Timestamp> {
        if self.left as f64 <= self.own {
            self.next = self.next + APART;
            return Err(self.next);
        }
        self.left -= 1;
        self.own += 1.0;
        self.used += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    /// How many of the calls to these many sick addresses of each tenant, tried each tenth of a second in this order,
    /// may go within ten seconds.
    fn going<const N: usize>(tried: [usize; N], succeed: bool) -> [usize; N] {
        let mut calls = SickCalls::default();
        let mut going = [0; N];
        for tenth in 0..100 {
            let now = NOW + Duration::from_millis(tenth * 100);
            for tenant in 0..N {
                let number = tenant as u64;
                let mut room = calls.room(number, now);
                let gone = (0..tried[tenant]).filter(|_| room.take().is_ok()).count();
                calls.take(number, room, now);
                (0..gone).filter(|_| succeed).for_each(|_| calls.succeeded(number, now));
                going[tenant] += gone;
            }
        }
        going
    }

    #[test]
    fn an_origin_gets_so_many_calls_to_sick_addresses_unless_they_succeed() {
        let [failing] = going([1_000], false);
        assert!((55..=88).contains(&failing), "{failing}");
        let [succeeding] = going([1_000], true);
        assert!(succeeding >= 390, "{succeeding}");
    }

    #[test]
    fn a_tenant_with_very_many_sick_addresses_delays_no_other() {
        let [many, one] = going([10_000, 1], false);
        assert!(one >= 25 && many >= 25 && many + one <= 88, "{many} and {one}");
    }
}
