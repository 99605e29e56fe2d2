//! Who waits for a place of ours, and who is told first that one is free: tenants take turns, so that one
//! with thousands of lanes keeps no other waiting. Pure.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// `L` names a lane.
#[derive(Debug)]
pub struct PlaceQueue<L> {
    /// By a number that stands for the tenant.
    lanes: HashMap<u64, VecDeque<L>>,
    /// The tenants, in the order of their turns.
    turns: VecDeque<u64>,
    waiting: HashSet<L>,
}

impl<L> Default for PlaceQueue<L> {
    fn default() -> Self {
        Self { lanes: HashMap::new(), turns: VecDeque::new(), waiting: HashSet::new() }
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
    pub fn join(&mut self, tenant: u64, lane: L) {
        if !self.waiting.insert(lane.clone()) {
            return;
        }
        match self.lanes.entry(tenant) {
            Entry::Occupied(mut lanes) => lanes.get_mut().push_back(lane),
            Entry::Vacant(lanes) => {
                lanes.insert([lane].into());
                self.turns.push_back(tenant);
            }
        }
    }

    /// A lane found a place without being told: nobody is told in its stead if it is told later.
    pub fn leave(&mut self, lane: &L) {
        if self.waiting.remove(lane) && self.waiting.is_empty() {
            self.lanes.clear();
            self.turns.clear();
        }
    }

    /// The lane that is told next.
    pub fn pop(&mut self) -> Option<L> {
        loop {
            let tenant = self.turns.pop_front()?;
            let lanes = self.lanes.get_mut(&tenant)?;
            let lane = lanes.pop_front()?;
            match lanes.is_empty() {
                true => _ = self.lanes.remove(&tenant),
                false => self.turns.push_back(tenant),
            }
            if self.waiting.remove(&lane) {
                return Some(lane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_one_lane_does_not_wait_for_the_thousands_of_another() {
        let mut queue = PlaceQueue::default();
        (0..10_000).for_each(|lane| queue.join(1, lane));
        queue.join(2, 77_777);
        let told: Vec<_> = (0..4).filter_map(|_| queue.pop()).collect();
        assert_eq!(told, [0, 77_777, 1, 2]);
    }

    #[test]
    fn a_lane_that_found_a_place_by_itself_is_not_told() {
        let mut queue = PlaceQueue::default();
        (0..4).for_each(|lane| queue.join(lane % 2, lane));
        [0, 1].iter().for_each(|lane| queue.leave(lane));
        queue.join(0, 0);
        let told: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(told.len(), 3);
        assert!(!told.contains(&1) && queue.is_empty());
    }

    #[test]
    fn every_lane_is_told_once_however_often_it_asked() {
        let mut queue = PlaceQueue::default();
        (0..100).for_each(|n| queue.join(n % 3, n % 10));
        let mut told: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        told.sort_unstable();
        assert_eq!(told, Vec::from_iter(0..10));
        assert!(queue.is_empty() && queue.lanes.is_empty() && queue.turns.is_empty());
    }
}
