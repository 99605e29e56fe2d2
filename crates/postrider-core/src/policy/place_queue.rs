//! Who waits for a place of ours, and who is told first that one is free: the tenant that holds the fewest by weight,
//! and in turn, so that one with thousands of lanes keeps no other waiting. Pure.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Among so many tenants, in the order of their turns, the one that holds the fewest is looked for.
const LOOKED_AT: usize = 64;
/// Weights are compared as whole numbers.
const THOUSANDTHS: f64 = 1_000.0;

/// `L` names a lane.
#[derive(Debug)]
pub struct PlaceQueue<L> {
    /// By a number that stands for the tenant.
    tenants: HashMap<u64, WaitingTenant<L>>,
    /// The tenants, in the order of their turns.
    turns: VecDeque<u64>,
    waiting: HashSet<L>,
}

#[derive(Debug)]
struct WaitingTenant<L> {
    /// In thousandths.
    weight: u64,
    lanes: VecDeque<L>,
}

impl<L> Default for PlaceQueue<L> {
    fn default() -> Self {
        Self { tenants: HashMap::new(), turns: VecDeque::new(), waiting: HashSet::new() }
    }
}

impl<L: Clone + Eq + Hash> PlaceQueue<L> {
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A lane that waits already keeps its place.
    pub fn join(&mut self, tenant: u64, weight: f64, lane: L) {
        if !self.waiting.insert(lane.clone()) {
            return;
        }
        match self.tenants.entry(tenant) {
            Entry::Occupied(mut own) => own.get_mut().lanes.push_back(lane),
            Entry::Vacant(own) => {
                let weight = ((weight * THOUSANDTHS) as u64).max(1);
                own.insert(WaitingTenant { weight, lanes: [lane].into() });
                self.turns.push_back(tenant);
            }
        }
    }

    /// A lane found a place without being told: nobody is told in its stead if it is told later.
    pub fn leave(&mut self, lane: &L) {
        if self.waiting.remove(lane) && self.waiting.is_empty() {
            self.tenants.clear();
            self.turns.clear();
        }
    }

    /// The lane whose turn it is to be told.
    pub fn pop(&mut self) -> Option<L> {
        loop {
            if let Some(lane) = self.pop_of(0)? {
                return Some(lane);
            }
        }
    }

    /// A lane of the tenant that holds the fewest places by weight.
    pub fn pop_least(&mut self, held: impl Fn(u64) -> usize) -> Option<L> {
        loop {
            let load = |tenant: &u64| {
                let weight = self.tenants.get(tenant).map_or(1, |own| own.weight);
                (held(*tenant) as u64).saturating_mul(u64::from(u32::MAX)) / weight
            };
            let turns = self.turns.iter().take(LOOKED_AT).map(load).enumerate();
            let (least, _) = turns.min_by_key(|(_, load)| *load)?;
            if let Some(lane) = self.pop_of(least)? {
                return Some(lane);
            }
        }
    }

    /// The next lane of the tenant with this turn, unless it found a place meanwhile.
    fn pop_of(&mut self, turn: usize) -> Option<Option<L>> {
        let tenant = self.turns.remove(turn)?;
        let own = self.tenants.get_mut(&tenant)?;
        let lane = own.lanes.pop_front()?;
        match own.lanes.is_empty() {
            true => _ = self.tenants.remove(&tenant),
            false => self.turns.push_back(tenant),
        }
        Some(self.waiting.remove(&lane).then_some(lane))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_one_lane_does_not_wait_for_the_thousands_of_another() {
        let mut queue = PlaceQueue::default();
        (0..10_000).for_each(|lane| queue.join(1, 1.0, lane));
        queue.join(2, 1.0, 77_777);
        let told: Vec<_> = (0..4).filter_map(|_| queue.pop()).collect();
        assert_eq!(told, [0, 77_777, 1, 2]);
    }

    #[test]
    fn the_tenant_that_holds_the_fewest_by_weight_is_told_first() {
        let mut queue = PlaceQueue::default();
        for (tenant, weight) in [(1, 1.0), (2, 1.0), (3, 4.0)] {
            queue.join(tenant, weight, tenant);
        }
        let held = |tenant| [0, 5, 3, 8][tenant as usize];
        let told: Vec<_> = std::iter::from_fn(|| queue.pop_least(held)).collect();
        assert_eq!(told, [3, 2, 1]);
        assert!(queue.is_empty() && queue.tenants.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn a_lane_that_found_a_place_by_itself_is_not_told() {
        let mut queue = PlaceQueue::default();
        (0..4).for_each(|lane| queue.join(lane % 2, 1.0, lane));
        [0, 1].iter().for_each(|lane| queue.leave(lane));
        queue.join(0, 1.0, 0);
        let told: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(told.len(), 3);
        assert!(!told.contains(&1) && queue.is_empty());
    }

    #[test]
    fn every_lane_is_told_once_however_often_it_asked() {
        let mut queue = PlaceQueue::default();
        (0..100).for_each(|n| queue.join(n % 3, 1.0, n % 10));
        let mut told: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        told.sort_unstable();
        assert_eq!(told, Vec::from_iter(0..10));
        assert!(queue.is_empty() && queue.tenants.is_empty() && queue.turns.is_empty());
    }
}
