//! The newest deliveries in their order, each with its lane: those that are in no block of the order on disk yet (see
//! `sql::ledger_order`). So a list of one tenant finds them without looking at the rows of others.

use std::collections::VecDeque;

/// A delivery by its sequence, with the number of its lane.
pub(crate) type OrderEntry = (u64, u32);

/// More than this is not kept: the order is not used any more until the next start.
const ENTRIES_MAX: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(crate) struct OrderTail {
    /// Everything before this sequence is in the blocks.
    from: u64,
    entries: VecDeque<OrderEntry>,
    is_unusable: bool,
}

impl OrderTail {
    pub(crate) fn starting_at(from: u64, entries: Vec<OrderEntry>) -> Self {
        Self { from, entries: entries.into(), is_unusable: false }
    }

    pub(crate) fn add(&mut self, entries: impl Iterator<Item = OrderEntry>) {
        if self.is_unusable {
            return;
        }
        self.entries.extend(entries);
        if self.entries.len() > ENTRIES_MAX {
            self.give_up();
        }
    }

    /// Lists look at all rows from now on.
    pub(crate) fn give_up(&mut self) {
        *self = Self { is_unusable: true, ..Self::default() };
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.is_unusable
    }

    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// The oldest ones, if there are so many.
    pub(crate) fn oldest(&self, count: usize) -> Option<Vec<OrderEntry>> {
        (self.entries.len() >= count).then(|| self.entries.iter().take(count).copied().collect())
    }

    /// The oldest ones are in a block now, which ends before this sequence.
    pub(crate) fn forget_oldest(&mut self, count: usize, from: u64) {
        self.entries.drain(..count.min(self.entries.len()));
        self.from = from;
    }

    /// Entries in a range of sequences that `fits`, oldest first.
    pub(crate) fn matching(
        &self,
        (from, before): (u64, u64),
        fits: impl Fn(OrderEntry) -> bool,
    ) -> Vec<u64> {
        let first = self.entries.partition_point(|(seq, _)| *seq < from);
        let entries = self.entries.range(first..).take_while(|(seq, _)| *seq < before);
        entries.filter(|entry| fits(**entry)).map(|(seq, _)| *seq).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_block_is_not_in_the_tail() {
        let mut tail = OrderTail::starting_at(5, vec![(5, 0), (6, 1)]);
        tail.add([(8, 0), (9, 1)].into_iter());
        assert_eq!(tail.matching((0, 9), |(_, lane)| lane == 0), [5, 8]);
        assert_eq!(tail.oldest(5), None);
        assert_eq!(tail.oldest(3), Some(vec![(5, 0), (6, 1), (8, 0)]));
        tail.forget_oldest(3, 9);
        assert_eq!((tail.from(), tail.matching((0, u64::MAX), |_| true)), (9, vec![9]));
    }

    #[test]
    fn its_memory_is_bounded() {
        let mut tail = OrderTail::default();
        tail.add((0..ENTRIES_MAX as u64 + 1).map(|seq| (seq, 0)));
        assert!(!tail.is_usable() && tail.matching((0, u64::MAX), |_| true).is_empty());
    }
}
