//! What is pending, by tenant: what the server said last, and what this node did since.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use postrider_core::TenantId;
use postrider_core::ports::store::Load;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LoadChange {
    pub(crate) deliveries: i64,
    pub(crate) bytes: i64,
}

type LoadByTenant = HashMap<TenantId, LoadChange>;

#[derive(Default)]
pub(crate) struct PendingLoad {
    known: Mutex<KnownLoad>,
    /// Writes that began, and that ended.
    began: AtomicU64,
    ended: AtomicU64,
}

#[derive(Default)]
struct KnownLoad {
    loads: LoadByTenant,
    /// Changes since the last question to the server began.
    since: LoadByTenant,
}

/// A write that changes the load is under way as long as this lives.
pub(crate) struct LoadWrite<'a>(&'a PendingLoad);

impl Drop for LoadWrite<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
    }
}

/// A question to the server about the load.
pub(crate) struct LoadQuestion {
    began: u64,
    is_quiet: bool,
}

impl LoadQuestion {
    /// Whether no write was under way when it began: otherwise the answer cannot be exact.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet
    }
}

impl PendingLoad {
    fn known(&self) -> MutexGuard<'_, KnownLoad> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin_write(&self) -> LoadWrite<'_> {
        self.began.fetch_add(1, Ordering::AcqRel);
        LoadWrite(self)
    }

    pub(crate) fn change(&self, tenant: &TenantId, by: LoadChange) {
        let mut known = self.known();
        for loads in [true, false] {
            let map = if loads { &mut known.loads } else { &mut known.since };
            let load = map.entry(tenant.clone()).or_default();
            load.deliveries += by.deliveries;
            load.bytes += by.bytes;
        }
    }

    pub(crate) fn begin_question(&self) -> LoadQuestion {
        let began = self.began.load(Ordering::Acquire);
        self.known().since.clear();
        LoadQuestion { began, is_quiet: began == self.ended.load(Ordering::Acquire) }
    }

    /// Whether no write was under way since the question began: then the answer is exact.
    pub(crate) fn was_quiet(&self, question: &LoadQuestion) -> bool {
        question.is_quiet && self.began.load(Ordering::Acquire) == question.began
    }

    /// What was written during the question is added; it may be in the answer already, until the next one.
    pub(crate) fn answer(&self, mut loads: LoadByTenant) {
        let mut known = self.known();
        for (tenant, change) in known.since.drain() {
            let load = loads.entry(tenant).or_default();
            load.deliveries += change.deliveries;
            load.bytes += change.bytes;
        }
        known.loads = loads;
    }

    pub(crate) fn load(&self, tenant: Option<&TenantId>) -> Load {
        let known = self.known();
        let sum = match tenant {
            Some(tenant) => known.loads.get(tenant).copied().unwrap_or_default(),
            None => known.loads.values().fold(LoadChange::default(), |sum, load| LoadChange {
                deliveries: sum.deliveries + load.deliveries,
                bytes: sum.bytes + load.bytes,
            }),
        };
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        Load { deliveries: count(sum.deliveries), bytes: count(sum.bytes) }
    }
}
