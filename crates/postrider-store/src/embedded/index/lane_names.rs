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
        self.names[lane as usize] = name;
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
