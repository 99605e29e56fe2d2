//! Everything that a seed decides before the run: traffic, behaviour of providers, actions of an
//! operator, faults. Pure: a plan is a function of its seed.

mod actions;
mod messages;
mod providers;
mod senders;

use std::time::Duration;

use postrider_core::Class;
use postrider_core::policy::breaker::BreakerPolicy;
use postrider_core::policy::budget::BudgetPolicy;
use postrider_core::policy::limiter::Rate;
use postrider_dispatch::DispatchLimits;

pub(crate) use actions::{DiskFault, DiskFaultKind, PlannedCrash, SimAction};
pub(crate) use messages::PlannedMessage;
pub(crate) use providers::{ProviderBehaviour, ProviderPlan, RetryAfterForm};
pub(crate) use senders::PlannedTenant;

use crate::intake::KINDS;
use crate::rng::SimRng;

/// The kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlanProfile {
    /// Some of everything.
    Mixed,
    /// Providers fail for minutes, and a backlog grows.
    Outage,
    /// Days: long TTLs, keys that repeat the next day, large jumps of the clock.
    Days,
    /// Nothing breaks; tenants compete for one provider that is too small for them.
    Contention,
}

pub(crate) struct SimPlan {
    pub seed: u64,
    pub profile: PlanProfile,
    /// Faults, traffic and actions happen until then.
    pub calm_at_ms: i64,
    pub tenants: Vec<PlannedTenant>,
    pub classes: Vec<Class>,
    pub providers: Vec<ProviderPlan>,
    pub limits: DispatchLimits,
    pub messages: Vec<PlannedMessage>,
    /// Sorted by time, in milliseconds from the start.
    pub actions: Vec<(i64, SimAction)>,
    /// Entries of one lane that the embedded store keeps in memory.
    pub lane_window: usize,
    /// How many workers wait for work at the same time.
    pub workers: usize,
    /// For draws during the run.
    pub rng: SimRng,
}

impl SimPlan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = SimRng::new(seed);
        let profile = match rng.below(24) {
            0..=13 => PlanProfile::Mixed,
            14..=18 => PlanProfile::Outage,
            19..=22 => PlanProfile::Days,
            _ => PlanProfile::Contention,
        };
        let calm_at_ms = match profile {
            PlanProfile::Mixed => rng.within(20, 900) as i64 * 1000,
            PlanProfile::Outage => rng.within(300, 1200) as i64 * 1000,
            PlanProfile::Days => rng.within(86_400, 3 * 86_400) as i64 * 1000,
            PlanProfile::Contention => rng.within(60, 240) as i64 * 1000,
        };
        let tenants = senders::tenants(profile, &mut rng.fork());
        let classes = senders::classes(profile, &mut rng.fork());
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
            messages: Vec::new(),
            actions: Vec::new(),
            workers: 1,
            lane_window: if rng.chance(0.3) { rng.within(2, 12) as usize } else { 4_096 },
            rng: rng.fork(),
        };
        messages::draw(&mut plan, &mut rng.fork());
        actions::draw(&mut plan, &mut rng.fork());
        actions::draw_workers(&mut plan, &mut rng.fork());
        plan.actions.sort_by_key(|(at, _)| *at);
        plan
    }
}

fn limits(profile: PlanProfile, rng: &mut SimRng) -> DispatchLimits {
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
        if profile != PlanProfile::Contention && rng.chance(0.35) {
            limits.rates.insert(kind, rate(rng));
        }
    }
    if profile == PlanProfile::Contention {
        contention(&mut limits, rng);
    }
    limits
}

/// Tenants compete for the provider: by concurrency or by rate.
fn contention(limits: &mut DispatchLimits, rng: &mut SimRng) {
    limits.concurrency = 256;
    for kind in KINDS {
        limits.per_origin.insert(kind, rng.within(8, 32) as usize);
        if rng.chance(0.5) {
            let per_s = rng.within(50, 100) as f64;
            limits.rates.insert(kind, Rate { per_s, burst: rng.within(1, 20) as u32, ramp_s: 0 });
        }
    }
}

fn rate(rng: &mut SimRng) -> Rate {
    Rate {
        per_s: rng.within(2, 50) as f64,
        burst: rng.within(1, 20) as u32,
        ramp_s: *rng.pick(&[0, 0, 30]),
    }
}

/// Mostly a breaker that few calls open, because simulated traffic is low.
fn breaker(rng: &mut SimRng) -> BreakerPolicy {
    if rng.chance(0.3) {
        return BreakerPolicy::default();
    }
    BreakerPolicy {
        open_s: rng.within(2, 15) as u32,
        storm_retries_min: rng.within(10, 100) as u32,
        gone_sends_min: rng.within(5, 50) as u32,
        ..BreakerPolicy::default()
    }
}
