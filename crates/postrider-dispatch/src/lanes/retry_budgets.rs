//! The retry budget of each lane that has retries. Lanes without any cost nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use postrider_core::policy::budget::{BudgetPolicy, RetryBudget};
use postrider_core::{LaneKey, Timestamp};

/// Beyond this many, budgets that remember nothing are forgotten.
const BUDGETS_MAX: usize = 10_000;

pub(super) struct RetryBudgets {
    policy: RwLock<BudgetPolicy>,
    lanes: Mutex<HashMap<Arc<LaneKey>, RetryBudget>>,
}

/// The retries that a lane's budget allows.
pub(crate) struct RetryAllowance {
    pub(crate) retries: usize,
    /// When there may be more.
    pub(crate) more_at: Timestamp,
}

impl RetryBudgets {
    pub(super) fn new(policy: BudgetPolicy) -> Self {
        Self { policy: RwLock::new(policy), lanes: Mutex::default() }
    }

    pub(super) fn adopt(&self, policy: BudgetPolicy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = policy;
        self.lanes().values_mut().for_each(|budget| budget.adopt(policy));
    }

    fn policy(&self) -> BudgetPolicy {
        *self.policy.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts first attempts, and takes as many of the retries as there is budget for.
    pub(super) fn spend(
        &self,
        lane: &Arc<LaneKey>,
        firsts: usize,
        retries: usize,
        now: Timestamp,
    ) -> RetryAllowance {
        let mut lanes = self.lanes();
        if retries == 0 {
            if let Some(budget) = lanes.get_mut(lane) {
                budget.first_attempts(firsts, now);
            }
            return RetryAllowance { retries: 0, more_at: now };
        }
        if lanes.len() >= BUDGETS_MAX {
            lanes.retain(|_, budget| !budget.is_fresh(now));
        }
        let new = || RetryBudget::new(self.policy());
        let budget = lanes.entry(lane.clone()).or_insert_with(new);
        budget.first_attempts(firsts, now);
        RetryAllowance { retries: budget.take(retries, now), more_at: budget.next(now) }
    }

    /// A retry succeeded. True if there was nothing left before.
    pub(super) fn earn(&self, lane: &LaneKey, now: Timestamp) -> bool {
        let mut lanes = self.lanes();
        let Some(budget) = lanes.get_mut(lane) else { return false };
        let was_spent = budget.left(now) == 0;
        budget.earn(now);
        was_spent
    }

    /// How many retries are left, and when there may be more; nothing if the lane has none.
    pub(super) fn left(&self, lane: &LaneKey, now: Timestamp) -> Option<(usize, Timestamp)> {
        let mut lanes = self.lanes();
        let budget = lanes.get_mut(lane)?;
        Some((budget.left(now), budget.next(now)))
    }

    fn lanes(&self) -> MutexGuard<'_, HashMap<Arc<LaneKey>, RetryBudget>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
