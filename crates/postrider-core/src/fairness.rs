//! Who is next: the tenant that has had the least for its weight, the more urgent class first. A
//! tenant that was away comes back without credit or debt, so that nobody can save up, and nobody's
//! backlog, however old, keeps the others waiting. Reads no clock.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::message::{Priority, TenantId};

/// Tenants remembered at most; those with the most are forgotten last.
const TENANTS_MAX: usize = 100_000;
/// Who waits, held up by something else, can be owed no more than this.
const CREDIT_MAX: f64 = 512.0;
/// Of an origin's places, so many in a hundred are kept for urgent work.
const RESERVED_PERCENT: usize = 10;

/// How much each tenant has had, for its weight.
#[derive(Debug, Default)]
pub struct Fairness {
    weights: HashMap<TenantId, f64>,
    had: HashMap<TenantId, f64>,
    /// What the least served of those that waited last time had had.
    level: f64,
}

impl Fairness {
    /// Whoever is not named weighs 1.
    pub fn new(weights: HashMap<TenantId, f64>) -> Self {
        Self { weights, ..Self::default() }
    }

    /// Other weights from now on; what everyone has had stays.
    pub fn adopt(&mut self, weights: HashMap<TenantId, f64>) {
        self.weights = weights;
    }

    /// Puts those that wait in the order in which they are to be served. Equals keep their order.
    pub fn order<T>(&mut self, waiting: &mut [T], of: impl Fn(&T) -> (&TenantId, Priority)) {
        let had =
            |level: f64, item: &T| self.had.get(of(item).0).map_or(level, |had| had.max(level));
        let all = waiting.iter().map(|item| had(self.level, item));
        let (least, most) = all.fold((f64::MAX, 0.0_f64), |(l, m), h| (l.min(h), m.max(h)));
        let level = if waiting.is_empty() { self.level } else { least.max(most - CREDIT_MAX) };
        // What was had is never negative, so that its bits sort as it does.
        waiting.sort_by_cached_key(|item| (Reverse(of(item).1), had(level, item).to_bits()));
        self.level = level;
    }

    /// The tenant has been served so much.
    pub fn served(&mut self, tenant: &TenantId, count: usize) {
        if count == 0 {
            return;
        }
        let weight = self.weights.get(tenant).copied().unwrap_or(1.0).max(1e-3);
        let level = self.level;
        let had = self.had.entry(tenant.clone()).or_insert(level);
        *had = had.max(level) + count as f64 / weight;
        if self.had.len() > TENANTS_MAX {
            self.had.retain(|_, had| *had > level);
        }
    }
}

/// How many of an origin's free places work of this priority may use.
pub fn places(free: usize, limit: usize, priority: Priority) -> usize {
    match priority {
        Priority::High => free,
        // Rounded down: of a few places, none can be spared.
        _ => free.saturating_sub(limit * RESERVED_PERCENT / 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name)
    }

    /// Serves one `quantum` at a time to whoever is first, all of them always having more.
    fn shares(fairness: &mut Fairness, names: &[&str], turns: usize) -> Vec<usize> {
        let mut had = vec![0; names.len()];
        for _ in 0..turns {
            let mut waiting: Vec<_> =
                names.iter().enumerate().map(|(n, name)| (n, tenant(name))).collect();
            fairness.order(&mut waiting, |(_, tenant)| (tenant, Priority::Normal));
            let (first, tenant) = &waiting[0];
            fairness.served(tenant, 8);
            had[*first] += 8;
        }
        had
    }

    #[test]
    fn equals_get_equal_shares() {
        let had = shares(&mut Fairness::default(), &["a", "b", "c", "d"], 400);
        assert_eq!(had, [800, 800, 800, 800]);
    }

    #[test]
    fn a_weight_of_three_gets_three_times_as_much() {
        let mut fairness = Fairness::new([(tenant("a"), 3.0)].into());
        let had = shares(&mut fairness, &["a", "b"], 400);
        assert!((2_390..=2_410).contains(&had[0]), "{had:?}");
    }

    #[test]
    fn who_was_away_neither_saved_up_nor_owes() {
        let mut fairness = Fairness::default();
        shares(&mut fairness, &["a", "b"], 1_000);
        let had = shares(&mut fairness, &["a", "b", "new"], 300);
        assert!(had.iter().all(|had| (784..=816).contains(had)), "{had:?}");
    }

    #[test]
    fn urgent_work_goes_first_whoever_had_how_much() {
        let mut fairness = Fairness::default();
        fairness.served(&tenant("a"), 1_000);
        let mut waiting = [(tenant("b"), Priority::Low), (tenant("a"), Priority::High)];
        fairness.order(&mut waiting, |(tenant, priority)| (tenant, *priority));
        assert_eq!(waiting[0].0, tenant("a"));
    }

    #[test]
    fn places_are_kept_for_urgent_work() {
        assert_eq!(places(100, 100, Priority::Low), 90);
        assert_eq!(places(10, 100, Priority::Normal), 0);
        assert_eq!(places(10, 100, Priority::High), 10);
        assert_eq!(places(1, 1, Priority::Low), 1);
    }
}
