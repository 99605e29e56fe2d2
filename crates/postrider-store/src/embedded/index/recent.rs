//! Pending deliveries that are not in the table `waiting` yet, by lane. Most deliveries end before they would be
//! listed there, and the others are listed many at a time (see `sql::waiting`).

use std::collections::BTreeMap;

use super::lanes::DueKey;

/// Which deliveries are in the table, if they are pending.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct ListedRange {
    /// All before this sequence.
    pub(crate) before: u64,
    /// While more are being listed: those before this sequence, too, if their lane is below `lanes`.
    pub(crate) next: u64,
    pub(crate) lanes: u32,
}

impl ListedRange {
    pub(crate) fn all_before(seq: u64) -> Self {
        Self { before: seq, next: seq, lanes: 0 }
    }

    pub(crate) fn contains(&self, lane: u32, seq: u64) -> bool {
        seq < self.before || (seq < self.next && lane < self.lanes)
    }
}

#[derive(Default)]
pub(crate) struct RecentDeliveries {
    listed: ListedRange,
    /// By the number of the lane: due times by sequence, as the disk has them.
    lanes: Vec<BTreeMap<u64, i64>>,
}

impl RecentDeliveries {
    /// A delivery waits, for the first time or again.
    pub(crate) fn add(&mut self, lane: u32, (due, seq): DueKey) {
        if self.listed.contains(lane, seq) {
            return;
        }
        let lane = lane as usize;
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, BTreeMap::new);
        }
        self.lanes[lane].insert(seq, due);
    }

    /// A delivery is not pending any more, or not in this lane.
    pub(crate) fn remove(&mut self, lane: u32, seq: u64) {
        if self.listed.contains(lane, seq) {
            return;
        }
        if let Some(entries) = self.lanes.get_mut(lane as usize) {
            entries.remove(&seq);
        }
    }

    /// The entries of a lane from a key on, in no order.
    pub(crate) fn of_lane(&self, lane: u32, from: DueKey) -> impl Iterator<Item = DueKey> {
        let entries = self.lanes.get(lane as usize).into_iter().flatten();
        entries.map(|(seq, due)| (*due, *seq)).filter(move |key| *key >= from)
    }

    /// The next entries to be listed, by lane and due time, which is the order on disk: all of a lane, and of so many
    /// lanes that they are at least `limit`. And what is listed after that.
    pub(crate) fn to_list(&self, limit: usize) -> (Vec<(u32, DueKey)>, ListedRange) {
        let ListedRange { next, lanes, .. } = self.listed;
        let mut found = Vec::new();
        for (lane, entries) in (0..).zip(&self.lanes).skip(lanes as usize) {
            if found.len() >= limit {
                return (found, ListedRange { lanes: lane, ..self.listed });
            }
            let first = found.len();
            found.extend(entries.range(..next).map(|(seq, due)| (lane, (*due, *seq))));
            found[first..].sort_unstable();
        }
        (found, ListedRange::all_before(next))
    }

    /// These are on disk now, or are to be listed next.
    pub(crate) fn set_listed(&mut self, listed: ListedRange) {
        let old = std::mem::replace(&mut self.listed, listed);
        let is_whole = listed.before > old.before;
        let end = if is_whole { self.lanes.len() } else { listed.lanes as usize };
        let first = (old.lanes as usize).min(end);
        for entries in self.lanes.iter_mut().take(end).skip(first).filter(|all| !all.is_empty()) {
            *entries = entries.split_off(&old.next);
        }
    }
}
