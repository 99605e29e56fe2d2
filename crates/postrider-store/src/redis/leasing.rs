//! Leases: one entry per batch and shard, written before anything is sent.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_util::future::try_join_all;
use postrider_core::{Message, MessageId};

use super::changes::{ChangeResult, ShardChange, ShardChanges};
use super::failure::{RedisFailure, RedisResult};
use super::link::Patience;
use super::marks::AddressMarks;
use super::names::{RowPlace, minute};
use super::pack::{Packed, id, int, list, pairs};
use super::row::RedisRow;
use super::scripts::LEASE;
use super::shared::RedisShared;
use crate::sharded::{HeldShard, LeaseOrder, LeasedRow, shard_of};

/// So often a write is tried again because something changed at the same moment.
pub(super) const TRIES: usize = 20;

impl RedisShared {
    pub(super) async fn write_lease(
        &self,
        order: &LeaseOrder,
    ) -> RedisResult<Option<Vec<LeasedRow>>> {
        let lease = |held: &HeldShard| self.lease_in(order, *held);
        let leased = try_join_all(order.shards.iter().map(lease)).await?;
        let Some(rows) = leased.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let rows: Vec<_> = rows.into_iter().flatten().collect();
        self.leased_rows(rows).await.map(Some)
    }

    async fn lease_in(
        &self,
        order: &LeaseOrder,
        held: HeldShard,
    ) -> RedisResult<Option<Vec<(u128, Vec<u8>)>>> {
        let shard = held.shard;
        let mut minutes: BTreeMap<i64, Vec<u128>> = BTreeMap::new();
        for id in order.ids.iter().filter(|id| shard_of(**id) == shard) {
            minutes.entry(minute(*id)).or_default().push(*id);
        }
        let mut keys: Vec<_> = ["h", "le"].map(|name| self.names.of(shard, name)).into();
        keys.extend(minutes.keys().map(|minute| self.names.rows(shard, RowPlace::Queue, *minute)));
        let mut packed = Packed::new();
        packed.list(8).bytes(held.nonce.to_string()).bytes(held.acts.to_string());
        packed.bytes(order.batch.to_string()).int(order.until).int(order.now).flag(order.expired);
        let ended: Vec<_> = order.ended_batches.iter().filter(|(of, _)| *of == shard).collect();
        packed.list(ended.len());
        for (_, batch) in ended.iter() {
            packed.bytes(batch.to_string());
        }
        packed.list(minutes.len());
        for ids in minutes.values() {
            packed.list(ids.len());
            for id in ids.iter() {
                packed.bytes(id.to_be_bytes());
            }
        }
        let packed = packed.into_bytes();
        let answer = self.link.call(Patience::Short, &LEASE, &keys, &[&packed]).await?;
        let mut answer = list(answer)?.into_iter();
        let (Some(leases), Some(rows)) = (answer.next(), answer.next()) else { return Ok(None) };
        self.note_leases(shard, int(&leases)?);
        let read = |(of, row): (Vec<u8>, Vec<u8>)| Ok((id(&of)?, row));
        pairs(rows)?.into_iter().map(read).collect::<RedisResult<_>>().map(Some)
    }

    async fn leased_rows(&self, rows: Vec<(u128, Vec<u8>)>) -> RedisResult<Vec<LeasedRow>> {
        let mut stored = Vec::with_capacity(rows.len());
        for (of, bytes) in rows {
            match RedisRow::decode(of, &bytes) {
                Ok(row) => stored.push(row),
                Err(failure) => unreadable(of, &failure),
            }
        }
        let lanes: Vec<_> = stored.iter().map(|row| row.fixed.lane).collect();
        self.learn(&lanes).await?;
        let shared = stored.iter().filter(|row| row.shares_message).map(|row| row.fixed.message);
        let messages = self.shared_messages(shared).await?;
        let messages: HashMap<_, _> =
            messages.into_iter().map(|(id, shared)| (id, Arc::new(shared.message))).collect();
        let marks = self.marks_of(&stored).await?;
        let mut leased = Vec::with_capacity(stored.len());
        for (row, marks) in stored.into_iter().zip(marks) {
            let of = row.id;
            match self.leased_row(row, marks, &messages) {
                Ok(row) => leased.push(row),
                // It stays leased until its time is over, and others are not held up.
                Err(failure) => unreadable(of, &failure),
            }
        }
        Ok(leased)
    }

    fn leased_row(
        &self,
        row: RedisRow,
        marks: AddressMarks,
        messages: &HashMap<MessageId, Arc<Message>>,
    ) -> RedisResult<LeasedRow> {
        let message = match row.shares_message {
            true => messages.get(&row.fixed.message).cloned(),
            false => {
                let lane = self.lanes.key(row.fixed.lane);
                lane.map(|lane| row.lone_message(&lane)).transpose()?.map(Arc::new)
            }
        };
        let message =
            message.ok_or_else(|| RedisFailure::damaged("a delivery without its message"))?;
        row.leased(message, marks.end, marks.strikes)
    }

    pub(super) async fn start_attempts(
        &self,
        shards: &[HeldShard],
        started: &[u128],
    ) -> RedisResult<Vec<u128>> {
        let start = |held: HeldShard| async move {
            let ours = started.iter().copied().filter(|id| shard_of(*id) == held.shard);
            self.start_in(held, ours.collect()).await
        };
        let started = try_join_all(shards.iter().map(|held| start(*held))).await?;
        Ok(started.into_iter().flatten().collect())
    }

    async fn start_in(&self, held: HeldShard, mut ids: Vec<u128>) -> RedisResult<Vec<u128>> {
        let mut started = Vec::new();
        for _ in 0..TRIES {
            let mut changes = ShardChanges::new(self, held.shard).by_holder(held.nonce);
            let mut changed = Vec::new();
            for id in ids {
                let Some(bytes) = self.row_bytes(RowPlace::Queue, id).await? else { continue };
                let mut row = RedisRow::decode(id, &bytes)?;
                if row.mark.cancelled {
                    continue;
                }
                row.mark.started = true;
                let key = changes.key(self.names.rows(held.shard, RowPlace::Queue, minute(id)));
                let mut change = ShardChange::default();
                let field = id.to_be_bytes();
                change.if_field(key, &field, Some(&bytes)).run(
                    "HSET",
                    key,
                    &[&field, &row.encode()],
                );
                changes.push(change);
                changed.push(id);
            }
            let results = self.apply(changes).await?;
            ids = Vec::new();
            for (id, result) in changed.into_iter().zip(results) {
                match result {
                    ChangeResult::Written => started.push(id),
                    ChangeResult::Outdated => ids.push(id),
                    ChangeResult::Leased | ChangeResult::Fenced => {}
                }
            }
            if ids.is_empty() {
                return Ok(started);
            }
        }
        Ok(started)
    }
}

fn unreadable(id: u128, failure: &RedisFailure) {
    let id = postrider_core::DeliveryId(id);
    tracing::error!(%id, ?failure, "a delivery cannot be read");
}
