//! Leases in memory, from their beginning to their settlement.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ShardIndex, ShardLease, ShardLeasePhase};
use crate::sharded::{LeaseRecord, LeasedRow, QueueEntry, ShardId, shard_of};

impl ShardIndex {
    pub(in crate::sharded) fn start_lease(
        &mut self,
        row: LeasedRow,
        token: u64,
        batch: i64,
        until: i64,
    ) {
        let id = row.id;
        let lease = ShardLease {
            token,
            batch,
            until,
            row: Arc::new(row),
            phase: ShardLeasePhase::Held,
            receipt: None,
        };
        self.end_lease(id);
        self.leasing.remove(&id);
        self.leases.insert(id, lease);
        self.lease_ends.insert((until, id));
        *self.batches.entry((shard_of(id), batch)).or_default() += 1;
    }

    /// Takes a delivery out of its lane, wherever it waits. False if it is leased.
    pub(in crate::sharded) fn take_one(&mut self, entry: &QueueEntry) -> bool {
        let lease = self.leases.get(&entry.id);
        let place = match lease {
            _ if self.leasing.contains(&entry.id) => return false,
            Some(lease) if lease.phase != ShardLeasePhase::Ended => return false,
            Some(lease) => (lease.until, entry.id),
            None => (entry.due, entry.id),
        };
        self.suspects.forget_held_back(entry.id);
        if let Some(known) = self.lanes.get_mut(&entry.lane) {
            known.remove(place);
        }
        self.leasing.insert(entry.id);
        self.list(entry.lane);
        true
    }

    pub(in crate::sharded) fn end_lease(&mut self, id: u128) {
        let Some(lease) = self.leases.remove(&id) else { return };
        self.lease_ends.remove(&(lease.until, id));
        let key = (shard_of(id), lease.batch);
        if let Some(left) = self.batches.get_mut(&key) {
            *left -= 1;
            if *left == 0 {
                self.batches.remove(&key);
                self.ended_batches.push(key);
            }
        }
    }

    /// Batches that end with the settlement of these deliveries, and those that ended before.
    pub(in crate::sharded) fn batches_ending_with(&mut self, ids: &[u128]) -> Vec<(ShardId, i64)> {
        let mut settled: BTreeMap<(ShardId, i64), u32> = BTreeMap::new();
        for lease in ids.iter().filter_map(|id| self.leases.get(id)) {
            *settled.entry((shard_of(lease.row.id), lease.batch)).or_default() += 1;
        }
        let mut ending = self.take_ended_batches();
        let ends = settled.into_iter().filter(|(key, n)| self.batches.get(key) == Some(n));
        ending.extend(ends.map(|(key, _)| key));
        ending
    }

    pub(in crate::sharded) fn take_ended_batches(&mut self) -> Vec<(ShardId, i64)> {
        std::mem::take(&mut self.ended_batches)
    }

    pub(in crate::sharded) fn keep_ended_batches(&mut self, batches: Vec<(ShardId, i64)>) {
        self.ended_batches.extend(batches);
    }

    /// The leases that run, for the engine.
    pub(in crate::sharded) fn lease_records(
        &self,
        nonce_of: impl Fn(ShardId) -> Option<i64>,
    ) -> Vec<LeaseRecord> {
        let mut records: BTreeMap<(ShardId, i64), LeaseRecord> = BTreeMap::new();
        for (id, lease) in &self.leases {
            let shard = shard_of(*id);
            let Some(nonce) = nonce_of(shard) else { continue };
            let record = records.entry((shard, lease.batch)).or_default();
            (record.shard, record.nonce, record.batch) = (shard, nonce, lease.batch);
            record.until = record.until.max(lease.until);
            record.ids.push(*id);
        }
        records.into_values().collect()
    }

    /// Whether an attempt may start under this lease.
    pub(in crate::sharded) fn is_startable(&mut self, id: u128, token: u64, now: i64) -> bool {
        self.advance(now);
        self.leases.get(&id).is_some_and(|lease| {
            lease.token == token
                && lease.phase == ShardLeasePhase::Held
                && !lease.row.mark.cancelled
        })
    }

    /// On success nobody leases the delivery while its settlement is written.
    pub(in crate::sharded) fn begin_settling(
        &mut self,
        id: u128,
        token: u64,
    ) -> Option<ShardLease> {
        let lease = self.leases.get_mut(&id).filter(|lease| lease.token == token)?;
        match lease.phase {
            ShardLeasePhase::Settling => return None,
            ShardLeasePhase::Held => drop(self.lease_ends.remove(&(lease.until, id))),
            ShardLeasePhase::Ended => {
                let (lane, until) = (lease.row.lane, lease.until);
                if let Some(known) = self.lanes.get_mut(&lane) {
                    known.remove((until, id));
                }
                lease.phase = ShardLeasePhase::Settling;
                let lease = lease.clone();
                self.list(lane);
                return Some(lease);
            }
        }
        lease.phase = ShardLeasePhase::Settling;
        Some(lease.clone())
    }

    /// The settlement was not written, or nobody knows whether it was.
    pub(in crate::sharded) fn undo_settling(&mut self, id: u128, receipt: Option<u128>) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.phase = ShardLeasePhase::Held;
            lease.receipt = receipt;
            self.lease_ends.insert((lease.until, id));
        }
    }
}
