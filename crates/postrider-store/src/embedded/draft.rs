//! What a transaction will have changed in memory once it is committed; thrown away if it is not.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::{AddressHash, LaneKey, TenantId};

use super::board::Landing;
use super::dedup::Fresh;
use super::job::Job;
use super::tally::Delta;
use crate::progress::Mark;

/// Due again.
pub(super) struct Replayed {
    pub(super) lane: u32,
    pub(super) due: i64,
    pub(super) seq: u64,
    pub(super) expires: i64,
}

/// How many deliveries less need a body: to be kept at all, and because they are pending.
#[derive(Debug, Clone, Copy)]
pub(super) struct Released {
    pub(super) tenant: u32,
    pub(super) bytes: usize,
    pub(super) holds: i64,
    pub(super) pending: i64,
}

#[derive(Default)]
pub(super) struct Draft {
    pub(super) dedup: Fresh,
    pub(super) new_lanes: Vec<(Arc<LaneKey>, u32)>,
    pub(super) new_tenants: Vec<TenantId>,
    pub(super) arrivals: Vec<Arc<Job>>,
    pub(super) replayed: Vec<Replayed>,
    pub(super) settling: Vec<(u64, Option<Landing>)>,
    /// Taken out of the queue before the transaction: lane, due time, sequence.
    pub(super) withdrawn: Vec<(u32, i64, u64)>,
    pub(super) deltas: HashMap<u32, Delta>,
    /// By message: what a body that several deliveries share is needed less for.
    pub(super) released: HashMap<u64, Released>,
    pub(super) marks: Vec<(u64, Mark)>,
    pub(super) gone: Vec<(TenantId, AddressHash)>,
    pub(super) back: Vec<(TenantId, AddressHash)>,
    /// Whether an address is blamed for anything now.
    pub(super) struck: HashMap<(TenantId, AddressHash), bool>,
    /// Rows written, as a measure of how much there is to checkpoint.
    pub(super) rows: u64,
}

impl Draft {
    pub(super) fn release(&mut self, message: u64, change: Released) {
        let sum =
            self.released.entry(message).or_insert(Released { holds: 0, pending: 0, ..change });
        sum.holds += change.holds;
        sum.pending += change.pending;
    }

    pub(super) fn count(&mut self, tenant: u32) -> &mut Delta {
        self.deltas.entry(tenant).or_default()
    }
}
