//! The names of lanes by their numbers.

use std::sync::Arc;

use postrider_core::LaneKey;

use super::MemoryIndex;

impl MemoryIndex {
    pub(crate) fn lane_key(&self, lane: u32) -> Option<&Arc<LaneKey>> {
        self.names.get(lane as usize)?.as_ref().map(|(key, _)| key)
    }

    pub(crate) fn tenant_of(&self, lane: u32) -> Option<u32> {
        self.names.get(lane as usize)?.as_ref().map(|(_, tenant)| *tenant)
    }

    pub(crate) fn name_lane(&mut self, lane: u32, name: Option<(Arc<LaneKey>, u32)>) {
        if self.names.len() <= lane as usize {
            self.names.resize(lane as usize + 1, None);
        }
        let new = name.as_ref().map(|(_, tenant)| *tenant);
        let old = std::mem::replace(&mut self.names[lane as usize], name);
        if let Some((_, tenant)) = old
            && let Some(own) = self.tenant_lanes.get_mut(&tenant)
        {
            own.remove(&lane);
            if own.is_empty() {
                self.tenant_lanes.remove(&tenant);
            }
        }
        if let Some(tenant) = new {
            self.tenant_lanes.entry(tenant).or_default().insert(lane);
        }
    }

    /// The lanes of a tenant that have a name, with their keys. The time that it takes depends on no other tenant.
    pub(crate) fn lanes_of(&self, tenant: u32) -> impl Iterator<Item = (u32, &Arc<LaneKey>)> {
        let own = self.tenant_lanes.get(&tenant).into_iter().flatten();
        own.filter_map(|lane| Some((*lane, self.lane_key(*lane)?)))
    }

    /// No lane has this number or a higher one.
    pub(crate) fn lane_numbers_end(&self) -> u32 {
        u32::try_from(self.names.len()).unwrap_or(u32::MAX)
    }

    /// The lanes that have a name, with their numbers.
    pub(crate) fn named_lanes(&self) -> impl Iterator<Item = (u32, &Arc<LaneKey>)> {
        (0..).zip(&self.names).filter_map(|(lane, name)| Some((lane, &name.as_ref()?.0)))
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::{ChannelKind, TenantId};

    use super::*;

    #[test]
    fn a_tenant_finds_its_own_lanes_also_after_a_number_was_given_to_another() {
        let mut index = MemoryIndex::default();
        let key = |tenant: &str| {
            Arc::new(LaneKey {
                tenant: TenantId::new(tenant),
                channel: ChannelKind::parse("webhook").unwrap(),
                provider: "https://example.com".into(),
                class: "news".into(),
            })
        };
        let own = |index: &MemoryIndex, tenant: u32| -> Vec<u32> {
            index.lanes_of(tenant).map(|(lane, _)| lane).collect()
        };
        index.name_lane(3, Some((key("acme"), 0)));
        index.name_lane(1, Some((key("acme"), 0)));
        index.name_lane(2, Some((key("other"), 1)));
        assert_eq!((own(&index, 0), own(&index, 1)), (vec![1, 3], vec![2]));
        index.name_lane(3, Some((key("other"), 1)));
        index.name_lane(1, None);
        assert_eq!((own(&index, 0), own(&index, 1)), (vec![], vec![2, 3]));
        assert!(index.tenant_lanes.len() == 1, "a tenant without lanes is forgotten");
    }
}
