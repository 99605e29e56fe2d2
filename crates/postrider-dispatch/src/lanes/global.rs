//! The calls under way in all lanes together, by tenant, and the lanes that wait for one of these to end. Calls whose
//! length nobody knows (to an origin that has not answered yet, to a slow address) are counted apart, by tenant.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_core::LaneKey;
use postrider_core::model::message::Priority;
use postrider_core::policy::global_places::{
    ApartCalls, PlaceUse, apart_of_origin, apart_places, apart_room, ordinary_room,
};
use postrider_core::policy::place_queue::PlaceQueue;

use super::own_places::LongPlaceUse;

/// Lanes that are told when a call ends: the first may find that it has nothing to send any more.
const TOLD: usize = 2;

#[derive(Default)]
pub(super) struct GlobalCalls {
    all: Mutex<HeldCalls>,
    apart: Mutex<HeldApart>,
    waiting: WaitingLanes,
    waiting_apart: WaitingLanes,
    /// Told first, because places are kept for them.
    waiting_urgent: WaitingLanes,
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
    fn join(&self, tenant: u64, weight: f64, lane: Arc<LaneKey>) {
        let mut queue = lock(&self.queue);
        queue.join(tenant, weight, lane);
        self.count.store(queue.len(), Ordering::Relaxed);
    }

    fn leave(&self, lane: &Arc<LaneKey>) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut queue = lock(&self.queue);
        queue.leave(lane);
        self.count.store(queue.len(), Ordering::Relaxed);
    }

    /// The first is of the tenant that holds the fewest places. The others follow in turn: the first may be held by
    /// something else, again and again.
    fn next(&self, most: usize, calls: &Mutex<HeldCalls>) -> Vec<Arc<LaneKey>> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let calls = lock(calls);
        let mut queue = lock(&self.queue);
        let next = |nth| match nth {
            0 => queue.pop_least(|tenant| calls.held_by(tenant)),
            _ => queue.pop(),
        };
        let told = (0..most).map_while(next).collect();
        self.count.store(queue.len(), Ordering::Relaxed);
        told
    }
}

/// Calls under way, by tenant and origin.
#[derive(Default)]
struct HeldCalls {
    used: usize,
    by_holder: HashMap<(u64, u64), usize>,
    by_tenant: HashMap<u64, usize>,
}

impl HeldCalls {
    /// What a tenant sees of so many places when it calls an origin.
    fn places(&self, all: usize, tenant: u64, origin: u64) -> PlaceUse {
        let held = self.by_holder.get(&(tenant, origin)).copied().unwrap_or(0);
        PlaceUse { all, used: self.used, held }
    }

    fn held_by(&self, tenant: u64) -> usize {
        self.by_tenant.get(&tenant).copied().unwrap_or(0)
    }

    fn begin(&mut self, tenant: u64, origin: u64) {
        self.used += 1;
        *self.by_tenant.entry(tenant).or_default() += 1;
        *self.by_holder.entry((tenant, origin)).or_default() += 1;
    }

    fn end(&mut self, tenant: u64, origin: u64) {
        self.used = self.used.saturating_sub(1);
        count_down(&mut self.by_holder, (tenant, origin));
        count_down(&mut self.by_tenant, tenant);
    }
}

/// Those whose length nobody knows, by origin: of each tenant, and of all.
#[derive(Default)]
struct HeldApart {
    by_tenant: HashMap<u64, ApartCalls>,
    all: ApartCalls,
}

impl HeldApart {
    fn room(&mut self, all: usize, tenant: u64, origin: u64, is_known: bool) -> usize {
        let held = self.by_tenant.get_mut(&tenant).map_or(0, |own| own.used(all));
        let used = self.all.used(all).max(held);
        let room = apart_room(PlaceUse { all, used, held }, is_known);
        room.min(apart_of_origin(all).saturating_sub(self.all.at(origin)))
    }

    fn begin(&mut self, tenant: u64, origin: u64) {
        self.all.begin(origin);
        self.by_tenant.entry(tenant).or_default().begin(origin);
    }

    fn end(&mut self, tenant: u64, origin: u64) {
        self.all.end(origin);
        if let Some(own) = self.by_tenant.get_mut(&tenant) {
            own.end(origin);
            if own.is_empty() {
                self.by_tenant.remove(&tenant);
            }
        }
    }
}

fn count_down<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() = count.get().saturating_sub(1);
        if *count.get() == 0 {
            count.remove();
        }
    }
}

impl GlobalCalls {
    /// How many more calls of this priority a tenant may make to an origin (numbers that stand for them).
    pub(super) fn room(&self, all: usize, tenant: u64, origin: u64, priority: Priority) -> usize {
        ordinary_room(lock(&self.all).places(all, tenant, origin), priority)
    }

    /// How many more calls a tenant may make to an origin whose length nobody knows, or that are known to last long.
    pub(super) fn room_apart(&self, all: usize, tenant: u64, origin: u64, is_known: bool) -> usize {
        lock(&self.apart).room(apart_places(all), tenant, origin, is_known)
    }

    /// How the places for calls that may take long are held, as a tenant sees it at an origin; `is_known` as for
    /// [`room_apart`](Self::room_apart).
    pub(super) fn long_use(
        &self,
        all: usize,
        tenant: u64,
        origin: u64,
        is_known: bool,
    ) -> LongPlaceUse {
        let places = apart_places(all);
        let mut apart = lock(&self.apart);
        let own = apart.by_tenant.get_mut(&tenant).map_or(0, |own| own.used(places));
        let of = if is_known { places.div_ceil(2) } else { places };
        LongPlaceUse {
            used: apart.all.used(places).max(own).min(of),
            of,
            own,
            at_origin: apart.all.at(origin),
            origin_max: apart_of_origin(places),
        }
    }

    /// The tenant (a number that stands for it) that holds the most of these, how many, and one of the origins that it
    /// calls. Looks at all tenants: not for the path of a delivery.
    pub(super) fn longest_holder(&self, all: usize) -> Option<(u64, usize, u64)> {
        let places = apart_places(all);
        let mut apart = lock(&self.apart);
        let held = apart.by_tenant.iter_mut().map(|(tenant, own)| (own.used(places), *tenant));
        let (held, tenant) = held.max()?;
        let origin = apart.by_tenant.get(&tenant)?.origins().next()?;
        Some((tenant, held, origin))
    }

    /// How all places are held, as a tenant sees it at an origin.
    pub(super) fn server_use(&self, all: usize, tenant: u64, origin: u64) -> PlaceUse {
        lock(&self.all).places(all, tenant, origin)
    }

    /// A lane finds no place; it is told when one may be free.
    pub(super) fn wait(
        &self,
        places: OwnPlaces,
        tenant: u64,
        weight: f64,
        lane: Arc<LaneKey>,
        priority: Priority,
    ) {
        let queue = match places {
            _ if priority == Priority::High => &self.waiting_urgent,
            OwnPlaces::Any => &self.waiting,
            OwnPlaces::Apart => &self.waiting_apart,
        };
        queue.join(tenant, weight, lane);
    }

    /// A lane has found a place.
    pub(super) fn found(&self, lane: &Arc<LaneKey>) {
        let queues = [&self.waiting, &self.waiting_apart, &self.waiting_urgent];
        queues.into_iter().for_each(|queue| queue.leave(lane));
    }

    /// The lanes that are told that a call ended.
    pub(super) fn told(&self, was_apart: bool) -> impl Iterator<Item = Arc<LaneKey>> {
        let next = |waiting: &WaitingLanes| waiting.next(TOLD, &self.all);
        let (urgent, others) = (next(&self.waiting_urgent), next(&self.waiting));
        let apart = if was_apart { next(&self.waiting_apart) } else { Vec::new() };
        urgent.into_iter().chain(others).chain(apart)
    }

    /// A call of a tenant to an origin (numbers that stand for them) begins.
    pub(super) fn begin(&self, tenant: u64, origin: u64, is_apart: bool) {
        lock(&self.all).begin(tenant, origin);
        if is_apart {
            self.becomes_apart(tenant, origin);
        }
    }

    /// A call that is under way takes long.
    pub(super) fn becomes_apart(&self, tenant: u64, origin: u64) {
        lock(&self.apart).begin(tenant, origin);
    }

    pub(super) fn end(&self, tenant: u64, origin: u64, is_apart: bool) {
        lock(&self.all).end(tenant, origin);
        if is_apart {
            lock(&self.apart).end(tenant, origin);
        }
    }
}

fn lock<T>(calls: &Mutex<T>) -> MutexGuard<'_, T> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}
