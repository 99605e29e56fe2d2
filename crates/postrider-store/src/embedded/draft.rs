//! What a transaction will have changed in memory once it is committed; thrown away if it is not.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::{AddressHash, LaneKey, TenantId};

use super::board::Landing;
use super::dedup::Fresh;
use super::job::Job;
use super::tally::Delta;
use crate::progress::Mark;

#[derive(Default)]
pub(super) struct Draft {
    pub(super) dedup: Fresh,
    pub(super) new_lanes: Vec<(Arc<LaneKey>, u32)>,
    pub(super) new_tenants: Vec<TenantId>,
    pub(super) arrivals: Vec<Arc<Job>>,
    /// Due again: lane, due time, sequence.
    pub(super) replayed: Vec<(u32, i64, u64)>,
    pub(super) settling: Vec<(u64, Option<Landing>)>,
    /// Taken out of the queue before the transaction: lane, due time, sequence.
    pub(super) withdrawn: Vec<(u32, i64, u64)>,
    pub(super) deltas: HashMap<u32, Delta>,
    /// By how many deliveries a message's body is needed less.
    pub(super) released: HashMap<u64, i64>,
    pub(super) marks: Vec<(u64, Mark)>,
    pub(super) gone: Vec<(TenantId, AddressHash)>,
    pub(super) back: Vec<(TenantId, AddressHash)>,
    /// Rows written, as a measure of how much there is to checkpoint.
    pub(super) rows: u64,
}

impl Draft {
    pub(super) fn count(&mut self, tenant: u32) -> &mut Delta {
        self.deltas.entry(tenant).or_default()
    }
}
