//! Checks the shares of tenants that compete for a provider. Only in runs of contention, where no other
//! gate holds a lane and every delivery is called once.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::model::message::Priority;
use postrider_core::policy::fairness::QUANTUM_MAX;

use super::{CheckResult, DeliveryRecord, check};
use crate::plan::{PlanProfile, SimPlan};

/// A tenant with a backlog gets at least this part of its share.
const PART: f64 = 0.5;
/// Urgent work is called within this time.
const URGENT_WITHIN: Duration = Duration::from_secs(3);

pub(crate) struct FairnessCheck {
    enabled: bool,
    urgent: Vec<bool>,
    tenants: Vec<TenantShare>,
    weights: f64,
}

#[derive(Debug, Default)]
struct TenantShare {
    weight: f64,
    /// Not called yet.
    waiting: usize,
    /// Calls of all tenants and of this one, since its queue was last empty.
    all: usize,
    own: usize,
    /// Calls of other tenants since its last one.
    since: usize,
}

impl FairnessCheck {
    pub(crate) fn new(plan: &SimPlan) -> Self {
        let share = |weight| TenantShare { weight, ..TenantShare::default() };
        Self {
            enabled: plan.profile == PlanProfile::Contention,
            urgent: plan.classes.iter().map(|class| class.priority == Priority::High).collect(),
            tenants: plan.tenants.iter().map(|tenant| share(tenant.weight)).collect(),
            weights: plan.tenants.iter().map(|tenant| tenant.weight).sum(),
        }
    }

    pub(super) fn arrived(&mut self, record: &DeliveryRecord) {
        if !self.enabled || self.urgent[record.class] {
            return;
        }
        let share = &mut self.tenants[record.tenant];
        if share.waiting == 0 {
            *share = TenantShare { weight: share.weight, ..TenantShare::default() };
        }
        share.waiting += 1;
    }

    pub(super) fn called(&mut self, record: &DeliveryRecord, at: Timestamp) -> CheckResult {
        if !self.enabled {
            return Ok(());
        }
        if self.urgent[record.class] {
            let waited = at.since(record.due);
            return check(
                waited <= URGENT_WITHIN,
                "urgent work does not wait behind the rest",
                || format!("{waited:?} until it was called"),
            );
        }
        let weights = self.weights;
        for (tenant, share) in self.tenants.iter_mut().enumerate().filter(|(_, s)| s.waiting > 0) {
            share.all += 1;
            share.since += 1;
            if tenant == record.tenant {
                share.own += 1;
                share.since = 0;
            }
            share.check_share(tenant, weights)?;
        }
        let share = &mut self.tenants[record.tenant];
        share.waiting = share.waiting.saturating_sub(1);
        Ok(())
    }
}

impl TenantShare {
    /// A round gives each tenant its weight in quanta. Two rounds may pass before a tenant's turn, and
    /// shares need some rounds to settle.
    fn check_share(&self, tenant: usize, weights: f64) -> CheckResult {
        const FAIR: &str = "nobody with a backlog gets less than its share";
        let round = QUANTUM_MAX as f64 * weights;
        let others = QUANTUM_MAX as f64 * (weights - self.weight);
        check(self.since as f64 <= 2.0 * others + QUANTUM_MAX as f64, FAIR, || {
            format!("tenant {tenant} saw {} calls of others go before its own", self.since)
        })?;
        let share = self.all as f64 * self.weight / weights;
        let late = self.all as f64 >= 4.0 * round && (self.own as f64) < PART * share;
        check(!late, FAIR, || {
            format!(
                "tenant {tenant} got {} of {} calls, {share:.0} are its share",
                self.own, self.all
            )
        })
    }
}
