//! Lanes that wait by themselves and are not listed meanwhile, found by their name and by where their calls
//! go, so that a change at one provider costs nothing for the lanes of others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use postrider_core::{LaneId, LaneKey};

use crate::lanes::ProviderKey;

#[derive(Default)]
pub(crate) struct LanesByOrigin {
    lanes: HashMap<Arc<LaneKey>, SuspendedLane>,
    by_origin: HashMap<ProviderKey, HashSet<Arc<LaneKey>>>,
}

struct SuspendedLane {
    id: LaneId,
    origins: Vec<ProviderKey>,
}

impl LanesByOrigin {
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn contains(&self, key: &LaneKey) -> bool {
        self.lanes.contains_key(key)
    }

    /// `origins` are all to which its calls can go.
    pub(crate) fn insert(&mut self, key: Arc<LaneKey>, id: LaneId, origins: Vec<ProviderKey>) {
        self.remove(&key);
        for origin in &origins {
            self.by_origin.entry(origin.clone()).or_default().insert(key.clone());
        }
        self.lanes.insert(key, SuspendedLane { id, origins });
    }

    pub(crate) fn remove(&mut self, key: &LaneKey) -> Option<LaneId> {
        let lane = self.lanes.remove(key)?;
        for origin in &lane.origins {
            if let Some(lanes) = self.by_origin.get_mut(origin) {
                lanes.remove(key);
                if lanes.is_empty() {
                    self.by_origin.remove(origin);
                }
            }
        }
        Some(lane.id)
    }

    /// Takes out those whose calls can go there.
    pub(crate) fn take_of(&mut self, origin: &ProviderKey) -> Vec<LaneId> {
        let lanes = self.by_origin.get(origin).cloned().unwrap_or_default();
        in_order(lanes.iter().filter_map(|key| self.remove(key)))
    }

    pub(crate) fn take_all(&mut self) -> Vec<LaneId> {
        self.by_origin.clear();
        in_order(self.lanes.drain().map(|(_, lane)| lane.id))
    }
}

fn in_order(lanes: impl Iterator<Item = LaneId>) -> Vec<LaneId> {
    let mut lanes: Vec<_> = lanes.collect();
    lanes.sort_unstable();
    lanes
}

#[cfg(test)]
mod tests {
    use postrider_core::{ChannelKind, TenantId};

    use super::*;

    fn lane(n: u64) -> Arc<LaneKey> {
        let (tenant, channel) = (TenantId::new(&format!("t{n}")), ChannelKind::new("email"));
        Arc::new(LaneKey { tenant, channel, provider: "email".into(), class: "news".into() })
    }

    fn account(name: &str) -> ProviderKey {
        (ChannelKind::new("email"), name.into())
    }

    #[test]
    fn a_change_at_an_account_reaches_the_lanes_that_can_use_it_and_no_others() {
        let mut suspended = LanesByOrigin::default();
        suspended.insert(lane(1), LaneId(1), vec![account("a"), account("b")]);
        suspended.insert(lane(2), LaneId(2), vec![account("b")]);
        suspended.insert(lane(3), LaneId(3), vec![account("c")]);
        assert_eq!(suspended.take_of(&account("a")), [LaneId(1)]);
        assert_eq!(suspended.take_of(&account("b")), [LaneId(2)]);
        assert_eq!((suspended.len(), suspended.by_origin.len()), (1, 1));
    }

    #[test]
    fn a_lane_that_is_suspended_again_is_known_under_where_it_can_go_now() {
        let mut suspended = LanesByOrigin::default();
        suspended.insert(lane(1), LaneId(1), vec![account("a")]);
        suspended.insert(lane(1), LaneId(1), vec![account("b")]);
        assert!(suspended.take_of(&account("a")).is_empty());
        assert_eq!(suspended.take_all(), [LaneId(1)]);
        assert!(!suspended.contains(&lane(1)));
    }
}
