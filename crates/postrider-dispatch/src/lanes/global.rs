//! The calls under way in all lanes together. Those whose length nobody knows (to an origin that has not
//! answered yet, to a slow address) are counted apart, by tenant.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::model::message::Priority;
use postrider_core::policy::global_places::{PlaceUse, apart_places, apart_room, ordinary_room};

/// How soon a lane asks again that waits for a place of ours, and how many may do so in that time.
const PAUSE: Duration = Duration::from_millis(100);
const LANES_PER_PAUSE: u32 = 100;
const STRETCH: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct GlobalCalls {
    in_flight: AtomicUsize,
    apart: Mutex<ApartCalls>,
    refused: Mutex<RefusedLanes>,
}

/// Lanes that found no place of ours, in a stretch of time and in the one before.
#[derive(Default)]
struct RefusedLanes {
    began: Timestamp,
    now: u32,
    before: u32,
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

    /// A lane finds no place. Says how long it waits: the more of them there are, the longer, so that
    /// those that wait cost little however many they are.
    pub(super) fn refuse(&self, now: Timestamp) -> Duration {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(refused.began) >= STRETCH || now < refused.began {
            let is_next = now.since(refused.began) < STRETCH * 2;
            let before = if is_next { refused.now } else { 0 };
            *refused = RefusedLanes { began: now, now: 0, before };
        }
        refused.now += 1;
        PAUSE.mul_f64(f64::from(refused.now.max(refused.before) / LANES_PER_PAUSE).clamp(1.0, 50.0))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_lanes_wait_for_a_place_the_more_rarely_each_of_them_asks() {
        let calls = GlobalCalls::default();
        let at = |ms: i64| Timestamp(1_800_000_000_000 + ms);
        assert_eq!(calls.refuse(at(0)), PAUSE);
        let last = (0..10_000).map(|n| calls.refuse(at(n / 100))).last();
        assert_eq!(last, Some(PAUSE * 50));
        assert_eq!(calls.refuse(at(1_500)), PAUSE * 50, "as many as just before");
        assert_eq!(calls.refuse(at(60_000)), PAUSE, "they are gone");
    }
}
