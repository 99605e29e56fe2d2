//! Who got how much of a provider that all want more of. Judges only where nothing else holds anybody
//! up: in stories of contention, where every delivery is due at once and called once.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::model::message::Priority;
use postrider_core::policy::fairness::QUANTUM_MAX;

use super::{Judged, Known, promise};
use crate::plan::{Plan, Profile};

/// Nobody with a backlog gets less than this part of its share.
const PART: f64 = 0.5;
/// Urgent work is called within this time, whatever else waits.
const URGENT_WITHIN: Duration = Duration::from_secs(3);

pub(crate) struct Fairness {
    judges: bool,
    urgent: Vec<bool>,
    tenants: Vec<Share>,
    weights: f64,
}

#[derive(Debug, Default)]
struct Share {
    weight: f64,
    /// Not called yet.
    waiting: usize,
    /// Since it had nothing waiting: calls of all, and of its own.
    all: usize,
    own: usize,
    /// Calls of others since its last one.
    since: usize,
}

impl Fairness {
    pub(crate) fn new(plan: &Plan) -> Self {
        let share = |weight| Share { weight, ..Share::default() };
        Self {
            judges: plan.profile == Profile::Contention,
            urgent: plan.classes.iter().map(|class| class.priority == Priority::High).collect(),
            tenants: plan.tenants.iter().map(|tenant| share(tenant.weight)).collect(),
            weights: plan.tenants.iter().map(|tenant| tenant.weight).sum(),
        }
    }

    pub(super) fn arrived(&mut self, known: &Known) {
        if !self.judges || self.urgent[known.class] {
            return;
        }
        let share = &mut self.tenants[known.tenant];
        if share.waiting == 0 {
            *share = Share { weight: share.weight, ..Share::default() };
        }
        share.waiting += 1;
    }

    pub(super) fn called(&mut self, known: &Known, at: Timestamp) -> Judged {
        if !self.judges {
            return Ok(());
        }
        if self.urgent[known.class] {
            let waited = at.since(known.due);
            return promise(
                waited <= URGENT_WITHIN,
                "urgent work does not wait behind the rest",
                || format!("{waited:?} until it was called"),
            );
        }
        let weights = self.weights;
        for (tenant, share) in self.tenants.iter_mut().enumerate().filter(|(_, s)| s.waiting > 0) {
            share.all += 1;
            share.since += 1;
            if tenant == known.tenant {
                share.own += 1;
                share.since = 0;
            }
            share.judge(tenant, weights)?;
        }
        let share = &mut self.tenants[known.tenant];
        share.waiting = share.waiting.saturating_sub(1);
        Ok(())
    }
}

impl Share {
    /// A round gives each its weight in quanta. Two of them may pass before somebody's turn comes,
    /// and it takes some for shares to be what they are to be.
    fn judge(&self, tenant: usize, weights: f64) -> Judged {
        const FAIR: &str = "nobody with a backlog gets less than its share";
        let round = QUANTUM_MAX as f64 * weights;
        let others = QUANTUM_MAX as f64 * (weights - self.weight);
        promise(self.since as f64 <= 2.0 * others + QUANTUM_MAX as f64, FAIR, || {
            format!("tenant {tenant} saw {} calls of others go before its own", self.since)
        })?;
        let share = self.all as f64 * self.weight / weights;
        let late = self.all as f64 >= 4.0 * round && (self.own as f64) < PART * share;
        promise(!late, FAIR, || {
            format!(
                "tenant {tenant} got {} of {} calls, {share:.0} are its share",
                self.own, self.all
            )
        })
    }
}
