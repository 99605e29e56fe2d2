//! Checks the rate limits with its own token buckets.

use std::collections::{BTreeMap, VecDeque};

use postrider_core::Timestamp;
use postrider_core::policy::limiter::Rate;

use super::{CheckResult, EventTime, check};
use crate::plan::SimPlan;

pub(super) struct RateCheck {
    providers: Vec<(usize, Option<RateBucket>)>,
    tenants: BTreeMap<usize, RateBucket>,
}

/// A token bucket. A call may begin later than one that was permitted after it, while its start is written
/// to disk: tokens are taken in the order of permission.
#[derive(Debug, Clone)]
struct RateBucket {
    rate: Rate,
    /// Before the recent calls.
    state: BucketState,
    recent: VecDeque<EventTime>,
}

#[derive(Debug, Clone, Copy)]
struct BucketState {
    left: f64,
    at: Option<Timestamp>,
}

/// Calls that another one may still come before.
const RECENT_MAX: usize = 256;

impl RateBucket {
    fn new(rate: Rate) -> Self {
        let state = BucketState { left: f64::from(rate.burst.max(1)), at: None };
        Self { rate, state, recent: VecDeque::new() }
    }

    /// Takes a token for a call that was permitted then; returns how far the bucket is overdrawn.
    fn take(&mut self, permitted: EventTime) -> f64 {
        let nth = self.recent.partition_point(|call| call.seq <= permitted.seq);
        self.recent.insert(nth, permitted);
        if self.recent.len() > RECENT_MAX
            && let Some(oldest) = self.recent.pop_front()
        {
            self.state.take(self.rate, oldest.at);
        }
        let mut state = self.state;
        let left = self.recent.iter().map(|call| state.take(self.rate, call.at));
        -left.fold(f64::MAX, f64::min)
    }
}

impl BucketState {
    /// Takes a token; returns what is left.
    fn take(&mut self, rate: Rate, at: Timestamp) -> f64 {
        let burst = f64::from(rate.burst.max(1));
        let passed = self.at.map_or(0.0, |before| at.since(before).as_secs_f64());
        self.left = (self.left + passed * rate.per_s).min(burst) - 1.0;
        self.at = Some(at);
        self.left
    }
}

/// Allows for rounding to milliseconds.
const TOLERANCE: f64 = 0.2;

impl RateCheck {
    pub(super) fn new(plan: &SimPlan) -> Self {
        let limits = &plan.limits;
        let provider = |kind| {
            let at_once = limits.per_origin.get(&kind).copied().unwrap_or(64);
            (at_once, limits.rates.get(&kind).copied().map(RateBucket::new))
        };
        let tenants = plan.tenants.iter().enumerate();
        Self {
            providers: plan.providers.iter().map(|p| provider(p.kind)).collect(),
            tenants: tenants.filter_map(|(n, t)| Some((n, RateBucket::new(t.rate?)))).collect(),
        }
    }

    /// The limiters of a new process start full.
    pub(super) fn process_started(&mut self) {
        let providers = self.providers.iter_mut().filter_map(|(_, bucket)| bucket.as_mut());
        for bucket in providers.chain(self.tenants.values_mut()) {
            *bucket = RateBucket::new(bucket.rate);
        }
    }

    pub(super) fn at_once(&self, provider: usize) -> usize {
        self.providers[provider].0
    }

    pub(super) fn counted(
        &mut self,
        tenant: usize,
        provider: usize,
        permitted: EventTime,
    ) -> CheckResult {
        let bucket = self.providers[provider].1.as_mut();
        let over = bucket.map_or(0.0, |bucket| bucket.take(permitted));
        check(over <= TOLERANCE, "no rate is exceeded by more than its burst", || {
            format!("provider {provider}: {over:.2} calls too many")
        })?;
        let over = self.tenants.get_mut(&tenant).map_or(0.0, |bucket| bucket.take(permitted));
        check(over <= TOLERANCE, "no rate is exceeded by more than its burst", || {
            format!("tenant {tenant}: {over:.2} calls too many")
        })
    }
}
