//! When pending deliveries expire. Few of them ever do, so most are never listed one by one. Sequences are
//! divided into blocks of about four seconds, and each recent block has a summary of what is pending in
//! it. A delivery that is still pending after a minute, or when its block may expire, is listed on disk by
//! its expiry, once (see `sql::expiry`). An entry that is no longer true is dropped when its time comes.

use std::collections::BTreeMap;

use postrider_core::Timestamp;

/// Sequences of one block: those of about four seconds.
const BLOCK_BITS: u32 = 15 + 12;
/// A delivery that is pending for so long is listed.
const LONG_MS: i64 = 60_000;
/// The pause between two checks for expired deliveries.
pub(crate) const PAUSE_MS: i64 = 1_000;

#[derive(Default)]
pub(crate) struct ExpiryIndex {
    /// Every pending delivery before this sequence is listed on disk.
    pub(crate) listed_before: u64,
    /// What the disk knows of `listed_before`.
    pub(crate) saved: u64,
    /// `blocks` is complete from this sequence on.
    known_from: u64,
    blocks: BTreeMap<u64, BlockSummary>,
    /// No listed delivery expires before this time. `None` if none is listed.
    pub(crate) next_listed: Option<i64>,
    /// The time of the last check.
    checked_at: Option<i64>,
    /// No check before this time.
    paused_until: i64,
}

/// The pending deliveries of one block.
struct BlockSummary {
    pending: u64,
    /// None of them expires before this time.
    first: i64,
}

/// A block as a clean end stores it: number, pending deliveries, first expiry.
pub(crate) type SavedBlock = (u64, u64, i64);

impl ExpiryIndex {
    /// `blocks` is absent if the previous process did not shut down cleanly. Then everything between
    /// `listed_before` and `last_id` has to be listed again.
    pub(crate) fn load(
        listed_before: u64,
        next_listed: Option<i64>,
        blocks: Option<Vec<SavedBlock>>,
        last_id: u64,
    ) -> Self {
        let known_from = if blocks.is_some() { listed_before } else { last_id + 1 };
        let blocks = blocks.into_iter().flatten();
        let blocks = blocks.map(|(block, pending, first)| (block, BlockSummary { pending, first }));
        Self {
            listed_before,
            saved: listed_before,
            known_from,
            blocks: blocks.collect(),
            next_listed,
            checked_at: None,
            paused_until: i64::MIN,
        }
    }

    /// The blocks for the next start; `None` if they are not complete.
    pub(crate) fn save_blocks(&self) -> Option<Vec<SavedBlock>> {
        let entry =
            |(block, summary): (&u64, &BlockSummary)| (*block, summary.pending, summary.first);
        self.is_complete().then(|| self.blocks.iter().map(entry).collect())
    }

    fn is_complete(&self) -> bool {
        self.listed_before >= self.known_from
    }

    /// A delivery is pending, for the first time or again.
    pub(crate) fn add(&mut self, seq: u64, expires: i64) {
        if seq < self.listed_before {
            self.note_listed(expires);
        } else if seq >= self.known_from {
            let block = self.blocks.entry(seq >> BLOCK_BITS);
            let block = block.or_insert(BlockSummary { pending: 0, first: i64::MAX });
            block.pending += 1;
            block.first = block.first.min(expires);
        }
    }

    /// A delivery is not pending any more.
    pub(crate) fn remove(&mut self, seq: u64) {
        if seq >= self.listed_before.max(self.known_from) {
            self.remove_from_block(seq);
        }
    }

    fn remove_from_block(&mut self, seq: u64) {
        let number = seq >> BLOCK_BITS;
        let Some(block) = self.blocks.get_mut(&number) else { return };
        block.pending = block.pending.saturating_sub(1);
        if block.pending == 0 {
            self.blocks.remove(&number);
        }
    }

    /// A delivery was in flight and waits again.
    pub(crate) fn returned(&mut self, seq: u64, expires: Timestamp) {
        if seq < self.listed_before {
            self.note_listed(expires.0);
        }
    }

    fn note_listed(&mut self, expires: i64) {
        self.next_listed = Some(self.next_listed.map_or(expires, |first| first.min(expires)));
    }

    /// Whether anything may be over by this time. The caller is woken for the next check.
    pub(crate) fn check(&mut self, now: i64, over_by: i64) -> bool {
        self.checked_at = Some(now);
        now >= self.paused_until && self.first().is_some_and(|first| first <= over_by)
    }

    /// When to check again; `None` if nobody ever checked or nothing expires. What is over by `now - lag` expires.
    pub(crate) fn next_check(&self, lag: i64) -> Option<i64> {
        let first = self.first()?.saturating_add(lag).max(self.paused_until);
        Some(first.max(self.checked_at?.saturating_add(PAUSE_MS)))
    }

    pub(crate) fn pause(&mut self, until: i64) {
        self.paused_until = until;
    }

    fn first(&self) -> Option<i64> {
        if !self.is_complete() {
            return Some(i64::MIN);
        }
        let blocks = self.blocks.values().map(|block| block.first).min();
        [self.next_listed, blocks].into_iter().flatten().min()
    }

    /// The range of sequences whose pending deliveries are to be listed now.
    pub(crate) fn range_to_list(&self, now: i64, last_id: u64) -> Option<(u64, u64)> {
        if !self.is_complete() {
            return Some((self.listed_before, self.known_from));
        }
        let is_old = |block: u64| ((((block + 1) << BLOCK_BITS) >> 15) as i64) + LONG_MS <= now;
        let is_ripe =
            |(number, block): &(&u64, &BlockSummary)| block.first <= now || is_old(**number);
        let (last, _) = self.blocks.iter().rfind(is_ripe)?;
        let from = self.listed_before.max(self.blocks.first_key_value()?.0 << BLOCK_BITS);
        Some((from, ((last + 1) << BLOCK_BITS).min(last_id + 1)))
    }

    /// Every pending delivery before `to` is listed now; `new` are the new entries.
    pub(crate) fn mark_listed(&mut self, to: u64, new: &[(i64, u64)]) {
        self.listed_before = self.listed_before.max(to);
        self.blocks = self.blocks.split_off(&(self.listed_before >> BLOCK_BITS));
        for (expires, seq) in new {
            self.note_listed(*expires);
            // No block counts a delivery from before a crash.
            if *seq >= self.known_from {
                self.remove_from_block(*seq);
            }
        }
    }

    /// Nothing is listed any more: everything up to `last_id` has to be listed again.
    pub(crate) fn list_all(&mut self, last_id: u64) {
        *self = Self { checked_at: self.checked_at, ..Self::load(0, None, None, last_id) };
    }

    /// Skips blocks in which nothing is pending.
    pub(crate) fn advance(&mut self, last_id: u64) {
        if self.is_complete() {
            let first = self.blocks.first_key_value();
            let to = first.map_or(last_id + 1, |(block, _)| block << BLOCK_BITS);
            self.listed_before = self.listed_before.max(to);
        }
    }
}
