//! Draws the tenants and the classes.

use postrider_core::Class;
use postrider_core::TenantId;
use postrider_core::model::class::{OnAmbiguous, OnExpiry, WhenOpen};
use postrider_core::model::message::Priority;
use postrider_core::policy::backoff::{BackoffKind, Jitter, RetryPolicy};
use postrider_core::policy::limiter::Rate;

use super::PlanProfile;
use crate::rng::SimRng;

#[derive(Debug, Clone)]
pub(crate) struct PlannedTenant {
    pub name: TenantId,
    pub weight: f64,
    pub rate: Option<Rate>,
    /// Share of the traffic, relative to the others.
    pub traffic: u64,
}

/// One, a few or many tenants; sometimes one of them sends a hundred times as much.
pub(super) fn tenants(profile: PlanProfile, rng: &mut SimRng) -> Vec<PlannedTenant> {
    let count = match profile {
        PlanProfile::Contention => rng.within(2, 5),
        _ => rng.magnitude(200),
    };
    let huge = rng.chance(0.5).then(|| rng.below(count));
    let tenant = |n: u64| PlannedTenant {
        name: TenantId::new(&format!("t{n}")),
        weight: *rng.pick(&[1.0, 1.0, 1.0, 2.0, 5.0]),
        rate: (profile != PlanProfile::Contention && rng.chance(0.05)).then(|| Rate {
            per_s: rng.within(1, 20) as f64,
            burst: rng.within(1, 10) as u32,
            ramp_s: 0,
        }),
        traffic: if huge == Some(n) { 100 } else { 1 },
    };
    (0..count).map(tenant).collect()
}

/// Classes with TTLs from 0 to days, each with its own policy.
pub(super) fn classes(profile: PlanProfile, rng: &mut SimRng) -> Vec<Class> {
    if profile == PlanProfile::Contention {
        return contention_classes();
    }
    let count = rng.within(1, 5);
    let class = |n: u64| Class {
        name: if n == 0 { "transactional".into() } else { format!("c{n}").into() },
        ttl_s: *rng.pick(&[0, 1, 5, 30, 120, 600, 3_600, 86_400, 259_200]),
        priority: *rng.pick(&[Priority::Low, Priority::Normal, Priority::High]),
        retry: retry(rng),
        on_ambiguous: *rng.pick(&[
            OnAmbiguous::Resend,
            OnAmbiguous::Resend,
            OnAmbiguous::Park,
            OnAmbiguous::Drop,
        ]),
        when_open: *rng.pick(&[
            WhenOpen::Wait,
            WhenOpen::Wait,
            WhenOpen::FallBack,
            WhenOpen::Reject,
        ]),
        on_expiry: *rng.pick(&[OnExpiry::DeadLetter, OnExpiry::Expire]),
        retry_all: rng.chance(0.1),
        ..Class::default()
    };
    (0..count).map(class).collect()
}

/// The default class for backlogs, and an urgent one.
fn contention_classes() -> Vec<Class> {
    let class = |name: &str, priority| Class {
        name: name.into(),
        priority,
        ttl_s: 86_400,
        ..Class::default()
    };
    vec![class("transactional", Priority::Normal), class("urgent", Priority::High)]
}

fn retry(rng: &mut SimRng) -> RetryPolicy {
    let base_ms = rng.within(200, 5_000);
    RetryPolicy {
        retries: *rng.pick(&[0, 1, 3, 5, 12]),
        base_ms,
        factor: *rng.pick(&[1.5, 2.0, 3.0]),
        cap_ms: base_ms + rng.within(1_000, 120_000),
        kind: *rng.pick(&[BackoffKind::Exponential, BackoffKind::Linear, BackoffKind::Fixed]),
        jitter: *rng.pick(&[
            Jitter::None,
            Jitter::Additive,
            Jitter::Proportional,
            Jitter::Full,
            Jitter::Equal,
            Jitter::Decorrelated,
        ]),
        schedule_ms: Vec::new(),
        ..RetryPolicy::default()
    }
}
