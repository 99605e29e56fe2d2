//! What a transaction changes in memory once it is committed. Thrown away if it is not.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_core::{AddressHash, LaneKey, MessageId, TenantId};

use super::AfterSettle;
use super::counts::CountChange;
use super::delivery::StoredDelivery;
use crate::embedded::sql::ended::EndedWaitingEntry;
use crate::progress::DeliveryMark;

/// A dead letter that is pending again.
pub(crate) struct ReplayedDelivery {
    pub(crate) lane: u32,
    pub(crate) due: i64,
    pub(crate) seq: u64,
    pub(crate) expires: i64,
}

/// Takes deliveries from the reference counts of a shared body: those that hold it, and those of them
/// that are pending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodyRelease {
    pub(crate) tenant: u32,
    pub(crate) bytes: usize,
    pub(crate) holds: i64,
    pub(crate) pending: i64,
}

/// What is remembered of an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DedupEntry {
    pub(crate) message: MessageId,
    pub(crate) fingerprint: [u8; 16],
    pub(crate) expires: i64,
}

/// The idempotency keys of a transaction that is not committed yet. The flag says that the key's window is
/// a long one.
pub(crate) type UncommittedKeys = HashMap<[u8; 16], (bool, DedupEntry)>;

#[derive(Default)]
pub(crate) struct TransactionEffects {
    pub(crate) dedup: UncommittedKeys,
    /// Number, key, and number of the tenant.
    pub(crate) new_lanes: Vec<(u32, Arc<LaneKey>, u32)>,
    /// Lanes whose bound was raised, each with the old one.
    pub(crate) lanes_used: Vec<(u32, u64)>,
    pub(crate) new_tenants: Vec<TenantId>,
    pub(crate) arrivals: Vec<Arc<StoredDelivery>>,
    pub(crate) replayed: Vec<ReplayedDelivery>,
    /// `None` until the settlement is written.
    pub(crate) settling: Vec<(u64, Option<AfterSettle>)>,
    /// Entries of the list of waiting deliveries that are to be deleted later.
    pub(crate) ended: Vec<EndedWaitingEntry>,
    /// Taken out of the queue before the transaction: lane, due time, sequence.
    pub(crate) withdrawn: Vec<(u32, i64, u64)>,
    /// By tenant number.
    pub(crate) counts: HashMap<u32, CountChange>,
    /// By message: changed reference counts of a shared body.
    pub(crate) released: HashMap<u64, BodyRelease>,
    pub(crate) marks: Vec<(u64, DeliveryMark)>,
    /// Whether an address is gone now.
    pub(crate) gone: Vec<(TenantId, AddressHash, bool)>,
    /// Whether an address has strikes now.
    pub(crate) struck: HashMap<(TenantId, AddressHash), bool>,
    /// Up to where the disk knows that expiries are listed.
    pub(crate) listed_before: Option<u64>,
    /// Where pruning was before this transaction moved it.
    pub(crate) pruned_before: Option<u64>,
}

impl TransactionEffects {
    pub(crate) fn release(&mut self, message: u64, change: BodyRelease) {
        let sum =
            self.released.entry(message).or_insert(BodyRelease { holds: 0, pending: 0, ..change });
        sum.holds += change.holds;
        sum.pending += change.pending;
    }

    pub(crate) fn counts_of(&mut self, tenant: u32) -> &mut CountChange {
        self.counts.entry(tenant).or_default()
    }
}
