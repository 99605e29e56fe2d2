//! Pending deliveries that are not in the table `waiting` yet, by lane. Most deliveries end before they would be
//! listed there, and the others are listed many at a time (see `sql::waiting`).

use std::collections::{BTreeMap, HashMap};

use super::lanes::DueKey;

#[derive(Default)]
pub(crate) struct RecentDeliveries {
    /// Every pending delivery before this sequence is listed on disk.
    pub(crate) listed_before: u64,
    /// Per lane: due times by sequence, as the disk has them.
    lanes: HashMap<u32, BTreeMap<u64, i64>>,
}

impl RecentDeliveries {
    /// A delivery waits, for the first time or again.
    pub(crate) fn add(&mut self, lane: u32, (due, seq): DueKey) {
        if seq >= self.listed_before {
            self.lanes.entry(lane).or_default().insert(seq, due);
        }
    }

    /// A delivery is not pending any more, or not in this lane.
    pub(crate) fn remove(&mut self, lane: u32, seq: u64) {
        if seq < self.listed_before {
            return;
        }
        let Some(entries) = self.lanes.get_mut(&lane) else { return };
        entries.remove(&seq);
        if entries.is_empty() {
            self.lanes.remove(&lane);
        }
    }

    /// The entries of a lane from a key on, in no order.
    pub(crate) fn of_lane(&self, lane: u32, from: DueKey) -> impl Iterator<Item = DueKey> {
        let entries = self.lanes.get(&lane).into_iter().flatten();
        entries.map(|(seq, due)| (*due, *seq)).filter(move |key| *key >= from)
    }

    /// Every entry before a sequence, by lane and due time: the order on disk.
    pub(crate) fn before(&self, seq: u64) -> Vec<(u32, DueKey)> {
        let entries = self.lanes.iter().flat_map(|(lane, entries)| {
            entries.range(..seq).map(|(seq, due)| (*lane, (*due, *seq)))
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_unstable();
        entries
    }

    /// Every pending delivery before a sequence is on disk now.
    pub(crate) fn mark_listed(&mut self, before: u64) {
        self.listed_before = self.listed_before.max(before);
        self.lanes.retain(|_, entries| {
            *entries = entries.split_off(&before);
            !entries.is_empty()
        });
    }
}
