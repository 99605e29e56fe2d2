//! The calls under way to one provider and the room for more. Counts without a lock; the limit is
//! decided by [`Concurrency`](postrider_core::policy::concurrency::Concurrency).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use postrider_core::model::message::Priority;
use postrider_core::policy::fairness::places;

#[derive(Default)]
pub(super) struct CallSlots {
    limit: AtomicUsize,
    in_flight: AtomicUsize,
    /// Those of them that are not urgent.
    others: AtomicUsize,
    /// Somebody had more to send than there was room for.
    wanted: AtomicBool,
    /// The dispatcher is about to be told of a few free slots.
    gathering: AtomicBool,
}

/// Whether the end of a call is a reason to lease again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FreedSlots {
    /// Nobody waits for them.
    Unwanted,
    /// Soon: a slot or two are not worth a round of their own.
    Few,
    Enough,
}

impl CallSlots {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: AtomicUsize::new(limit), ..Self::default() }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Acquire)
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Release);
    }

    /// How many more calls of this priority there is room for.
    pub(super) fn free(&self, priority: Priority) -> usize {
        let limit = self.limit();
        let free = limit.saturating_sub(self.in_flight());
        places(free, limit, self.others.load(Ordering::Acquire), priority)
    }

    pub(super) fn take(&self, calls: usize, priority: Priority) {
        self.in_flight.fetch_add(calls, Ordering::AcqRel);
        if priority != Priority::High {
            self.others.fetch_add(calls, Ordering::AcqRel);
        }
    }

    /// Notes that more could be sent as soon as there is room.
    pub(super) fn want_more(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Frees the slot of a call that ended. It is worth leasing again when a quarter of the room is
    /// free, not for every single call, because leasing in batches keeps a delivery cheap.
    pub(super) fn free_one(&self, priority: Priority) -> FreedSlots {
        if priority != Priority::High {
            self.others.fetch_sub(1, Ordering::AcqRel);
        }
        let left = self.in_flight.fetch_sub(1, Ordering::AcqRel) - 1;
        let limit = self.limit();
        let enough = left <= limit - limit.div_ceil(4);
        if enough && self.wanted.swap(false, Ordering::AcqRel) {
            return FreedSlots::Enough;
        }
        let wanted = self.wanted.load(Ordering::Acquire);
        match wanted && !self.gathering.swap(true, Ordering::AcqRel) {
            true => FreedSlots::Few,
            false => FreedSlots::Unwanted,
        }
    }

    /// The dispatcher has been told of the few.
    pub(super) fn gathered(&self) {
        self.gathering.store(false, Ordering::Release);
    }
}
