//! Deliveries that will be leased soon. Bounded by bytes: what does not fit is read when it is leased.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::MemoryIndex;
use super::delivery::StoredDelivery;

/// How long a delivery keeps its room when others need it: a blocked lane must not fill the cache.
const STALE_AFTER_MS: i64 = 10_000;

#[derive(Default)]
pub(crate) struct DeliveryCache {
    deliveries: HashMap<u64, Arc<StoredDelivery>>,
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
        if let Some(old) = self.deliveries.insert(delivery.seq, delivery) {
            self.bytes -= old.bytes();
        }
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

    pub(crate) fn take(&mut self, seq: u64) -> Option<Arc<StoredDelivery>> {
        let delivery = self.deliveries.remove(&seq)?;
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
