//! Everything that a seed decides before anything runs: who sends what when, how providers behave,
//! what an operator does, what breaks. Pure: a plan is a function of its seed.

mod acts;
mod letters;
mod people;
mod providers;

use std::time::Duration;

use postrider_core::Class;
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::policy::budget::BudgetPolicy;
use postrider_core::policy::limiter::Rate;
use postrider_dispatch::DispatchLimits;

pub(crate) use acts::{Act, Crash, DiskFault, DiskTrouble};
pub(crate) use letters::Letter;
pub(crate) use people::Tenant;
pub(crate) use providers::{Mood, ProviderPlan, Wait};

use crate::intake::KINDS;
use crate::rng::Rng;

/// What kind of story it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// A little of everything.
    Mixed,
    /// Providers fail for minutes, work piles up.
    Outage,
    /// Days: long TTLs, keys that repeat the next day, large jumps of the clock.
    Days,
    /// Nothing breaks; tenants compete for one provider that is too small for them.
    Contention,
}

pub(crate) struct Plan {
    pub seed: u64,
    pub profile: Profile,
    /// Faults, traffic and acts happen until then; afterwards all is well.
    pub calm_at_ms: i64,
    pub tenants: Vec<Tenant>,
    pub classes: Vec<Class>,
    pub providers: Vec<ProviderPlan>,
    pub limits: DispatchLimits,
    pub letters: Vec<Letter>,
    /// By time, in milliseconds from the beginning.
    pub acts: Vec<(i64, Act)>,
    /// Entries of one lane that the embedded store keeps in memory.
    pub lane_window: usize,
    /// For whatever is drawn while it runs.
    pub chance: Rng,
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let profile = match rng.below(24) {
            0..=13 => Profile::Mixed,
            14..=18 => Profile::Outage,
            19..=22 => Profile::Days,
            _ => Profile::Contention,
        };
        let calm_at_ms = match profile {
            Profile::Mixed => rng.within(20, 900) as i64 * 1000,
            Profile::Outage => rng.within(300, 1200) as i64 * 1000,
            Profile::Days => rng.within(86_400, 3 * 86_400) as i64 * 1000,
            Profile::Contention => rng.within(60, 240) as i64 * 1000,
        };
        let tenants = people::tenants(profile, &mut rng.fork());
        let classes = people::classes(profile, &mut rng.fork());
        let providers = providers::draw(profile, calm_at_ms, &mut rng.fork());
        let mut limits = limits(profile, &mut rng.fork());
        for tenant in &tenants {
            limits.weights.insert(tenant.name.clone(), tenant.weight);
            if let Some(rate) = tenant.rate {
                limits.tenant_rates.insert(tenant.name.clone(), rate);
            }
        }
        let mut plan = Self {
            seed,
            profile,
            calm_at_ms,
            tenants,
            classes,
            providers,
            limits,
            letters: Vec::new(),
            acts: Vec::new(),
            lane_window: if rng.chance(0.3) { rng.within(2, 12) as usize } else { 4_096 },
            chance: rng.fork(),
        };
        letters::draw(&mut plan, &mut rng.fork());
        acts::draw(&mut plan, &mut rng.fork());
        plan.acts.sort_by_key(|(at, _)| *at);
        plan
    }
}

fn limits(profile: Profile, rng: &mut Rng) -> DispatchLimits {
    let mut limits = DispatchLimits {
        concurrency: rng.within(4, 128) as usize,
        lease: Duration::from_secs(rng.within(30, 90)),
        settle_batch: rng.magnitude(128) as usize,
        settle_linger: Duration::from_millis(rng.below(5)),
        breaker: breaker(rng),
        retry_budget: BudgetPolicy {
            share: *rng.pick(&[0.1, 0.2, 0.5]),
            floor_per_s: *rng.pick(&[0.5, 1.0, 10.0]),
            window_s: *rng.pick(&[10, 20]),
        },
        ..DispatchLimits::default()
    };
    for kind in KINDS {
        limits.per_origin.insert(kind, rng.within(1, 64) as usize);
        if profile != Profile::Contention && rng.chance(0.35) {
            limits.rates.insert(kind, rate(rng));
        }
    }
    if profile == Profile::Contention {
        contention(&mut limits, rng);
    }
    limits
}

/// The provider's share is what is fought for: by places or by rate.
fn contention(limits: &mut DispatchLimits, rng: &mut Rng) {
    limits.concurrency = 256;
    for kind in KINDS {
        limits.per_origin.insert(kind, rng.within(8, 32) as usize);
        if rng.chance(0.5) {
            let per_s = rng.within(50, 100) as f64;
            limits.rates.insert(kind, Rate { per_s, burst: rng.within(1, 20) as u32, ramp_s: 0 });
        }
    }
}

fn rate(rng: &mut Rng) -> Rate {
    Rate {
        per_s: rng.within(2, 50) as f64,
        burst: rng.within(1, 20) as u32,
        ramp_s: *rng.pick(&[0, 0, 30]),
    }
}

/// Often one that opens after a few calls: simulated traffic is thin.
fn breaker(rng: &mut Rng) -> BreakerPolicy {
    if rng.chance(0.3) {
        return BreakerPolicy::default();
    }
    BreakerPolicy {
        calls_min: rng.within(5, 40) as u32,
        burst_calls_min: rng.within(3, 20) as u32,
        open_s: rng.within(2, 15) as u32,
        storm_retries_min: rng.within(10, 100) as u32,
        gone_sends_min: rng.within(5, 50) as u32,
        ..BreakerPolicy::default()
    }
}
