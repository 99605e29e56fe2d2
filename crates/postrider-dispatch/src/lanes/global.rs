//! The calls under way in all lanes together, and the lanes that wait for one of these to end. Calls whose
//! length nobody knows (to an origin that has not answered yet, to a slow address) are counted apart, by tenant.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::LaneKey;
use postrider_core::model::message::Priority;
use postrider_core::policy::global_places::{PlaceUse, apart_places, apart_room, ordinary_room};
use postrider_core::policy::place_queue::PlaceQueue;

/// Lanes that are told when a call ends: the first may find that it has nothing to send any more.
const TOLD: usize = 2;

#[derive(Default)]
pub(super) struct GlobalCalls {
    in_flight: AtomicUsize,
    apart: Mutex<ApartCalls>,
    waiting: WaitingLanes,
    waiting_apart: WaitingLanes,
}

/// Which of our places a lane waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnPlaces {
    Any,
    /// For calls whose length nobody knows.
    Apart,
}

#[derive(Default)]
struct WaitingLanes {
    queue: Mutex<PlaceQueue<Arc<LaneKey>>>,
    count: AtomicUsize,
}

impl WaitingLanes {
    fn join(&self, tenant: u64, lane: Arc<LaneKey>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.join(tenant, lane);
        self.count.store(queue.len(), Ordering::Relaxed);
    }

    fn next(&self, most: usize) -> Vec<Arc<LaneKey>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let told = std::iter::from_fn(|| queue.pop()).take(most).collect();
        self.count.store(queue.len(), Ordering::Relaxed);
        told
    }
}

#[derive(Default)]
struct ApartCalls {
    all: usize,
    by_tenant: HashMap<u64, usize>,
}

impl GlobalCalls {
    /// How many more calls of this priority a tenant may make that has `held` under way to the origin.
    pub(super) fn room(&self, all: usize, held: usize, priority: Priority) -> usize {
        let used = self.in_flight.load(Ordering::Relaxed);
        ordinary_room(PlaceUse { all, used, held }, priority)
    }

    /// How many more calls a tenant (a number that stands for it) may make whose length nobody knows.
    pub(super) fn room_apart(&self, all: usize, tenant: u64) -> usize {
        let apart = self.apart();
        let held = apart.by_tenant.get(&tenant).copied().unwrap_or(0);
        apart_room(PlaceUse { all: apart_places(all), used: apart.all, held })
    }

    /// A lane finds no place; it is told when one may be free.
    pub(super) fn wait(&self, places: OwnPlaces, tenant: u64, lane: Arc<LaneKey>) {
        match places {
            OwnPlaces::Any => self.waiting.join(tenant, lane),
            OwnPlaces::Apart => self.waiting_apart.join(tenant, lane),
        }
    }

    /// The lanes that are told that a call ended.
    pub(super) fn told(&self, was_apart: bool) -> impl Iterator<Item = Arc<LaneKey>> {
        let apart = if was_apart { self.waiting_apart.next(TOLD) } else { Vec::new() };
        self.waiting.next(TOLD).into_iter().chain(apart)
    }

    pub(super) fn begin(&self, tenant: u64, is_apart: bool) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        if is_apart {
            self.becomes_apart(tenant);
        }
    }

    /// A call that is under way takes long.
    pub(super) fn becomes_apart(&self, tenant: u64) {
        let mut apart = self.apart();
        apart.all += 1;
        *apart.by_tenant.entry(tenant).or_default() += 1;
    }

    pub(super) fn end(&self, tenant: u64, is_apart: bool) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        if is_apart {
            let mut apart = self.apart();
            apart.all = apart.all.saturating_sub(1);
            if let Some(held) = apart.by_tenant.get_mut(&tenant) {
                *held = held.saturating_sub(1);
                if *held == 0 {
                    apart.by_tenant.remove(&tenant);
                }
            }
        }
    }

    fn apart(&self) -> MutexGuard<'_, ApartCalls> {
        self.apart.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
