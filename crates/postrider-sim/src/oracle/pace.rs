//! Rates, counted beside the limiters: a bucket of one burst, refilled at the rate.

use std::collections::BTreeMap;

use postrider_core::Timestamp;
use postrider_core::policy::limiter::Rate;

use super::{Judged, promise};
use crate::plan::Plan;

pub(super) struct Pace {
    providers: Vec<(usize, Option<Bucket>)>,
    tenants: BTreeMap<usize, Bucket>,
}

#[derive(Debug, Clone)]
struct Bucket {
    rate: Rate,
    left: f64,
    at: Option<Timestamp>,
}

impl Bucket {
    fn new(rate: Rate) -> Self {
        Self { rate, left: f64::from(rate.burst.max(1)), at: None }
    }

    /// How much more than the burst was taken.
    fn take(&mut self, at: Timestamp) -> f64 {
        let burst = f64::from(self.rate.burst.max(1));
        let passed = self.at.map_or(0.0, |before| at.since(before).as_secs_f64());
        self.left = (self.left + passed * self.rate.per_s).min(burst) - 1.0;
        self.at = Some(at);
        -self.left
    }
}

/// A millisecond's worth of rounding is no breach.
const TOLERANCE: f64 = 0.2;

impl Pace {
    pub(super) fn new(plan: &Plan) -> Self {
        let limits = &plan.limits;
        let provider = |kind| {
            let at_once = limits.per_origin.get(&kind).copied().unwrap_or(64);
            (at_once, limits.rates.get(&kind).copied().map(Bucket::new))
        };
        let tenants = plan.tenants.iter().enumerate();
        Self {
            providers: plan.providers.iter().map(|p| provider(p.kind)).collect(),
            tenants: tenants.filter_map(|(n, t)| Some((n, Bucket::new(t.rate?)))).collect(),
        }
    }

    /// The limiters of a new process have nothing behind them.
    pub(super) fn new_life(&mut self) {
        let providers = self.providers.iter_mut().filter_map(|(_, bucket)| bucket.as_mut());
        for bucket in providers.chain(self.tenants.values_mut()) {
            *bucket = Bucket::new(bucket.rate);
        }
    }

    pub(super) fn at_once(&self, provider: usize) -> usize {
        self.providers[provider].0
    }

    pub(super) fn counted(&mut self, tenant: usize, provider: usize, at: Timestamp) -> Judged {
        let bucket = self.providers[provider].1.as_mut();
        let over = bucket.map_or(0.0, |bucket| bucket.take(at));
        promise(over <= TOLERANCE, "no rate is exceeded by more than its burst", || {
            format!("provider {provider}: {over:.2} calls too many")
        })?;
        let over = self.tenants.get_mut(&tenant).map_or(0.0, |bucket| bucket.take(at));
        promise(over <= TOLERANCE, "no rate is exceeded by more than its burst", || {
            format!("tenant {tenant}: {over:.2} calls too many")
        })
    }
}
