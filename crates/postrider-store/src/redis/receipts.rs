//! Receipts: each changes the row of a delivery that ended, if that is still what the change was computed from.

use std::collections::BTreeMap;

use async_trait::async_trait;
use postrider_core::ports::store::{NewReceipt, ReceiptResult, Receipts, StoreError, StoreResult};

use super::RedisStore;
use super::changes::{ChangeResult, ShardChange, ShardChanges};
use super::failure::{RedisFailure, RedisResult};
use super::leasing::TRIES;
use super::names::{RowPlace, minute};
use super::row::RedisRow;
use super::shared::RedisShared;
use super::tally::CountChanges;
use crate::history::RecordedReceipt;
use crate::sharded::{ShardId, shard_of};

/// Receipts of one call of a script.
const CHUNK: usize = 200;

#[async_trait]
impl Receipts for RedisStore {
    async fn record_receipts(&self, receipts: Vec<NewReceipt>) -> Vec<StoreResult<ReceiptResult>> {
        let mut shards: BTreeMap<ShardId, Vec<usize>> = BTreeMap::new();
        for (place, receipt) in receipts.iter().enumerate() {
            shards.entry(shard_of(receipt.delivery.0)).or_default().push(place);
        }
        let mut answers: Vec<_> = receipts.iter().map(|_| Err(StoreError::Closed)).collect();
        for (shard, places) in shards {
            for chunk in places.chunks(CHUNK) {
                let mut left = chunk.to_vec();
                let done = self.shared.record_in(shard, &receipts, &mut left, &mut answers).await;
                if let Err(failure) = done {
                    let error = StoreError::from(failure);
                    left.iter().for_each(|place| answers[*place] = Err(error.clone()));
                }
            }
        }
        answers
    }
}

/// A row that receipts change.
struct ReceivedRow {
    place: RowPlace,
    /// As it is stored.
    before: Vec<u8>,
    row: RedisRow,
    counts: CountChanges,
    /// The answers that hold if it is written.
    answers: Vec<(usize, ReceiptResult)>,
}

impl RedisShared {
    /// Records those that are `left`, and takes those that have an answer out of it.
    async fn record_in(
        &self,
        shard: ShardId,
        receipts: &[NewReceipt],
        left: &mut Vec<usize>,
        answers: &mut [StoreResult<ReceiptResult>],
    ) -> RedisResult<()> {
        for _ in 0..TRIES {
            let (rows, unchanged) = self.received_rows(receipts, left).await?;
            for (place, answer) in unchanged {
                answers[place] = Ok(answer);
                left.retain(|other| *other != place);
            }
            let mut all = ShardChanges::new(self, shard);
            for received in &rows {
                let key = all.key(self.names.rows(shard, received.place, minute(received.row.id)));
                let mut change = ShardChange::default();
                change.if_field(key, &received.row.id.to_be_bytes(), Some(&received.before));
                change.put_row(self, &mut all, received.place, &received.row);
                change.count(self, &mut all, &received.counts);
                all.push(change);
            }
            let results = self.apply(all).await?;
            for (received, result) in rows.into_iter().zip(results) {
                if result != ChangeResult::Written {
                    continue;
                }
                for (place, answer) in received.answers {
                    answers[place] = Ok(answer);
                    left.retain(|other| *other != place);
                }
            }
            if left.is_empty() {
                return Ok(());
            }
        }
        Err(RedisFailure::Busy)
    }

    /// The rows with their receipts, and the answers to receipts that change nothing.
    async fn received_rows(
        &self,
        receipts: &[NewReceipt],
        left: &[usize],
    ) -> RedisResult<(Vec<ReceivedRow>, Vec<(usize, ReceiptResult)>)> {
        let (mut rows, mut unchanged) = (BTreeMap::new(), Vec::new());
        for &place in left {
            let receipt = &receipts[place];
            let id = receipt.delivery.0;
            if let std::collections::btree_map::Entry::Vacant(new) = rows.entry(id) {
                match self.ended_row(id).await? {
                    Ok(row) => drop(new.insert(row)),
                    Err(answer) => {
                        unchanged.push((place, answer));
                        continue;
                    }
                }
            }
            let Some(received) = rows.get_mut(&id) else { continue };
            match self.receive(&mut received.row, &mut received.counts, receipt).await? {
                ReceiptResult::Repeated if received.answers.is_empty() => {
                    unchanged.push((place, ReceiptResult::Repeated));
                }
                answer => received.answers.push((place, answer)),
            }
        }
        let changed = rows.into_values().filter(|received| !received.answers.is_empty());
        Ok((changed.collect(), unchanged))
    }

    /// The row of a delivery that ended, or the answer without it.
    async fn ended_row(&self, id: u128) -> RedisResult<Result<ReceivedRow, ReceiptResult>> {
        // First, because deliveries go from here to the other places.
        let is_waiting = self.row_bytes(RowPlace::Queue, id).await?.is_some();
        for place in [RowPlace::Ledger, RowPlace::Dead] {
            if let Some(before) = self.row_bytes(place, id).await? {
                let row = RedisRow::decode(id, &before)?;
                let (counts, answers) = (CountChanges::default(), Vec::new());
                return Ok(Ok(ReceivedRow { place, before, row, counts, answers }));
            }
        }
        Ok(Err(if is_waiting { ReceiptResult::Early } else { ReceiptResult::Unknown }))
    }

    async fn receive(
        &self,
        row: &mut RedisRow,
        counts: &mut CountChanges,
        receipt: &NewReceipt,
    ) -> RedisResult<ReceiptResult> {
        let now = self.clock.now();
        let recorded = RecordedReceipt::of(&row.progress, Some(&row.log), receipt, now);
        let recorded = recorded.map_err(|_| RedisFailure::damaged("a delivery's history"))?;
        let Some(RecordedReceipt { progress, log, .. }) = recorded else {
            return Ok(ReceiptResult::Repeated);
        };
        let before = row.progress.state;
        if progress.state != before {
            counts.add_row_move(row, &progress);
        }
        (row.progress, row.log) = (progress, log);
        let lane = self.lane_of(row.fixed.lane).await?;
        let delivery = Box::new(row.view(&lane, None, now.0)?);
        Ok(ReceiptResult::Recorded { before, delivery })
    }
}
