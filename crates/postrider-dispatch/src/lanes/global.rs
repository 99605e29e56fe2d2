//! The calls under way in all lanes together. Those whose length nobody knows (to an origin that has not
//! answered yet, to a slow address) are counted apart, by tenant.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use postrider_core::model::message::Priority;
use postrider_core::policy::global_places::{PlaceUse, apart_places, apart_room, ordinary_room};

#[derive(Default)]
pub(super) struct GlobalCalls {
    in_flight: AtomicUsize,
    apart: Mutex<ApartCalls>,
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
