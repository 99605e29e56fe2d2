//! Deliveries that will be leased soon. Bounded by bytes: what does not fit is read when it is leased.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::MemoryIndex;
use super::delivery::StoredDelivery;

/// How long a delivery keeps its room when others need it: a blocked lane must not fill the cache.
const STALE_AFTER_MS: i64 = 10_000;
/// What has its room for so long, and comes after what is read ahead, makes room for it.
const LATER_AFTER_MS: i64 = 1_000;

#[derive(Default)]
pub(crate) struct DeliveryCache {
    /// By sequence, each with the time since which it is here.
    deliveries: BTreeMap<u64, (i64, Arc<StoredDelivery>)>,
    arrivals: VecDeque<(i64, u64)>,
    bytes: usize,
    limit: usize,
}

impl DeliveryCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    pub(crate) fn put(&mut self, delivery: Arc<StoredDelivery>, now: i64) {
        let bytes = delivery.bytes();
        if !self.make_room(bytes, now) {
            return;
        }
        self.arrivals.push_back((now, delivery.seq));
        self.bytes += bytes;
        if let Some((_, old)) = self.deliveries.insert(delivery.seq, (now, delivery)) {
            self.bytes -= old.bytes();
        }
    }

    pub(crate) fn contains(&self, seq: u64) -> bool {
        self.deliveries.contains_key(&seq)
    }

    /// How many bytes may be read ahead in one go.
    pub(crate) fn ahead_bytes(&self) -> usize {
        self.limit / 16
    }

    /// Drops deliveries that had their room for long. False if so many bytes still do not fit in.
    pub(crate) fn make_room(&mut self, bytes: usize, now: i64) -> bool {
        while self.bytes + bytes > self.limit
            || self.arrivals.len() > 4 * self.deliveries.len() + 1024
        {
            let Some(&(at, seq)) = self.arrivals.front() else { break };
            let there = self.deliveries.contains_key(&seq);
            if there && at.saturating_add(STALE_AFTER_MS) > now {
                break;
            }
            self.arrivals.pop_front();
            self.take(seq);
        }
        self.bytes + bytes <= self.limit
    }

    /// Makes room for what is read from this sequence on. What comes after it is needed later: the last ones give
    /// way, unless they came just now. False if there is still no room.
    pub(crate) fn make_room_ahead(&mut self, bytes: usize, from: u64, now: i64) -> bool {
        if self.make_room(bytes, now) {
            return true;
        }
        let excess = self.bytes + bytes - self.limit;
        let (mut later, mut freed) = (Vec::new(), 0);
        for (seq, (at, delivery)) in self.deliveries.range(from..).rev() {
            if freed >= excess {
                break;
            }
            if at.saturating_add(LATER_AFTER_MS) <= now {
                later.push(*seq);
                freed += delivery.bytes();
            }
        }
        later.into_iter().for_each(|seq| drop(self.take(seq)));
        freed >= excess
    }

    pub(crate) fn take(&mut self, seq: u64) -> Option<Arc<StoredDelivery>> {
        let (_, delivery) = self.deliveries.remove(&seq)?;
        self.bytes -= delivery.bytes();
        Some(delivery)
    }
}

impl MemoryIndex {
    /// Takes in a delivery that was read ahead, if it still waits as it was read and will be leased soon.
    pub(crate) fn read_ahead(&mut self, delivery: StoredDelivery, now: i64) -> bool {
        let key = (delivery.progress.due.0, delivery.seq);
        let is_next = self.lanes.is_next(delivery.lane, key);
        if is_next {
            self.cache.put(Arc::new(delivery), now);
        }
        is_next
    }
}
