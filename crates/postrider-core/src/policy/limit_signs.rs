//! The two signs that an origin gets too many calls: it queues them, or it refuses them. Pure.

use std::time::Duration;

use crate::model::time::Timestamp;
use crate::policy::cohort::{Cohort, ENOUGH_ANSWERS, RefusalSample};
use crate::policy::refusal_levels::RefusalLevels;
use crate::policy::refused_tenants::RefusedTenants;
use crate::policy::refusing_addresses::RefusingAddresses;
use crate::policy::tenant_pair::TenantPair;

/// This many refused calls of a sample of 64, from so many addresses, are no noise: more than 5 %.
const REFUSED_MIN: usize = 4;
const REFUSING_MIN: usize = 3;
/// While the limit doubles, this share of enough answers at least: if it was too much already, the next doubling
/// shows it more clearly.
const REFUSED_SURE: f64 = 2.0 / 3.0;
/// So many calls have to go well before the time spent in calls is compared.
const WELL_JUDGED: u32 = 48;
const WELL_JUDGED_LATE: u32 = 16;
/// A tenant that called within this time is active.
const ACTIVE: Duration = Duration::from_secs(60);

/// The state before a row of cuts, to which the limit returns if they do not help.
#[derive(Debug, Clone, Copy)]
pub(super) struct CutTrial {
    pub(super) limit: f64,
    /// Latency, or calls that went well at once.
    pub(super) measure: f64,
}

#[derive(Debug, Clone)]
pub(super) struct LatencySign {
    pub(super) cohort: Cohort,
    /// Smoothed over a few cohorts.
    p10_ms: f64,
    /// The lowest p10; raised only where cuts did not lower it.
    pub(super) base_ms: u32,
    /// Cohorts in a row that show queueing.
    pub(super) queueing: u32,
    pub(super) trial: Option<CutTrial>,
    pub(super) ignored_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(super) struct RefusalSign {
    pub(super) sample: RefusalSample,
    pub(super) spent: TimeSpent,
    pub(super) tenants: TenantPair,
    pub(super) refused_tenants: RefusedTenants,
    pub(super) trial: Option<CutTrial>,
    pub(super) levels: RefusalLevels,
    pub(super) addresses: RefusingAddresses,
    pub(super) ignored_at: Option<Timestamp>,
}

/// Time spent in calls since the limit was cut or doubled; older calls count less.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TimeSpent {
    well: u32,
    well_ms: f64,
    refused_ms: f64,
    /// Calls that ended, and how many were under way when each began, all together.
    ended: f64,
    under_way: f64,
    began: Option<Timestamp>,
}

impl TimeSpent {
    /// Enough calls went well for a judgement: fewer if it is late.
    pub(super) fn is_known(&self, is_late: bool) -> bool {
        self.well >= if is_late { WELL_JUDGED_LATE } else { WELL_JUDGED }
    }

    /// Some calls went well. Where none does, it is not that they are too many.
    pub(super) fn has_well(&self) -> bool {
        self.well > 0
    }

    /// How long it is counted for.
    pub(super) fn time(&self, now: Timestamp) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now.since(began))
    }

    pub(super) fn add(&mut self, refused: bool, latency_ms: u32, under_way: u32, now: Timestamp) {
        self.began.get_or_insert(now);
        self.ended += 1.0;
        self.under_way += f64::from(under_way);
        // A call shorter than the clock's step takes half a step on the average.
        let ms = f64::from(latency_ms) + 0.5;
        if refused {
            self.refused_ms += ms;
            return;
        }
        self.well_ms += ms;
        self.well += 1;
        if self.well >= 2 * WELL_JUDGED {
            self.well /= 2;
            self.well_ms /= 2.0;
            self.refused_ms /= 2.0;
            self.ended /= 2.0;
            self.under_way /= 2.0;
        }
    }

    /// How many of the calls under way went well at once, on the average.
    pub(super) fn well_at_once(&self, limit: f64) -> f64 {
        (self.under_way / self.ended).min(limit) * (1.0 - self.refused_share())
    }

    /// The share of the time in calls that were refused.
    pub(super) fn refused_share(&self) -> f64 {
        self.refused_ms / (self.well_ms + self.refused_ms)
    }
}

impl LatencySign {
    pub(super) fn new() -> Self {
        Self {
            cohort: Cohort::new(),
            p10_ms: 0.0,
            base_ms: u32::MAX,
            queueing: 0,
            trial: None,
            ignored_at: None,
        }
    }

    /// The lowest p10 of a few cohorts together: the lowest of one would be chance.
    pub(super) fn learn_base(&mut self, p10_ms: u32) -> u32 {
        let p10 = f64::from(p10_ms);
        self.p10_ms += (p10 - self.p10_ms) * if self.base_ms == u32::MAX { 1.0 } else { 0.25 };
        self.base_ms = self.base_ms.min(self.p10_ms.ceil() as u32);
        self.base_ms
    }

    pub(super) fn adopt_base(&mut self, p10_ms: u32) {
        (self.base_ms, self.p10_ms) = (p10_ms, f64::from(p10_ms));
    }
}

impl RefusalSign {
    pub(super) fn new() -> Self {
        Self {
            sample: RefusalSample::new(),
            spent: TimeSpent::default(),
            tenants: TenantPair::default(),
            refused_tenants: RefusedTenants::default(),
            trial: None,
            levels: RefusalLevels::default(),
            addresses: RefusingAddresses::default(),
            ignored_at: None,
        }
    }

    /// Less than half of the calls are refused: that may be about single addresses.
    pub(super) fn are_of_some(&self) -> bool {
        2 * self.sample.refused() < self.sample.answers()
    }

    /// Enough addresses refuse, and more than one tenant's where two are active.
    pub(super) fn is_refused(&self, is_doubling: bool, now: Timestamp) -> bool {
        let addresses_min = REFUSING_MIN.min(self.sample.addresses_in_use());
        let (answers, refused) = (self.sample.answers(), self.sample.refused());
        let is_sure = answers >= ENOUGH_ANSWERS && refused as f64 >= answers as f64 * REFUSED_SURE;
        refused >= REFUSED_MIN
            && (is_sure || !is_doubling)
            && self.sample.addresses().1 >= addresses_min
            && (self.refused_tenants.are_several() || !self.tenants.are_two(ACTIVE, now))
    }
}
