//! One settlement of any kind: also what it says about its address, and another address to go to.

use std::sync::Arc;

use postrider_core::ports::store::Alternative;
use postrider_core::{Decision, State};

use super::changes::{ChangeResult, ShardChange, ShardChanges, needs_value, outbox_field};
use super::failure::{RedisFailure, RedisResult};
use super::leasing::TRIES;
use super::messages::{NEEDS_DEAD, NEEDS_FINAL};
use super::names::{RowPlace, minute};
use super::row::{RedisRow, longer_log, place_in_message};
use super::shared::RedisShared;
use super::tally::CountChanges;
use crate::progress::effective_decision;
use crate::sharded::{HeldShard, SettleItem, SettleOrder, SettledPlace, json_unless, shard_of};

/// Where a delivery goes instead.
struct OtherPlace {
    lane: u32,
    place: Alternative,
    rest: Vec<Alternative>,
}

/// What a settlement makes of a delivery.
struct SettledDelivery {
    old: RedisRow,
    new: RedisRow,
    decision: Decision,
    counts: CountChanges,
}

impl RedisShared {
    pub(super) async fn settle_single(&self, order: &SettleOrder) -> RedisResult<SettledPlace> {
        let _write = self.load.begin_write();
        let (Some(item), [held]) = (order.items.first(), order.shards.as_slice()) else {
            return Ok(SettledPlace::Fenced);
        };
        let elsewhere = match &item.decision {
            Decision::FallBack => self.other_place(&item.row.alternatives).await?,
            _ => None,
        };
        for _ in 0..TRIES {
            let Some(bytes) = self.row_bytes(RowPlace::Queue, item.row.id).await? else {
                return self.settled_before(order, held).await;
            };
            let old = RedisRow::decode(item.row.id, &bytes)?;
            if old.free_batch >= item.batch {
                return self.settled_before(order, held).await;
            }
            let settled = settle(item, order, old, elsewhere.as_ref())?;
            match self.write_settled(order, held, &bytes, &settled).await? {
                ChangeResult::Outdated => continue,
                ChangeResult::Fenced | ChangeResult::Leased => return Ok(SettledPlace::Fenced),
                ChangeResult::Written => {}
            }
            settled.counts.change_load(&self.load);
            let address = (&settled.old.fixed.tenant, settled.old.fixed.hash);
            let receipt = address_receipt(order.receipt, item.row.id);
            self.learn_address(item, address, &settled.decision, receipt, order.now).await?;
            return Ok(place_of(&settled.new));
        }
        Err(RedisFailure::Busy)
    }

    /// It is not leased any more: an earlier try may have written it.
    async fn settled_before(
        &self,
        order: &SettleOrder,
        held: &HeldShard,
    ) -> RedisResult<SettledPlace> {
        let Some(item) = order.items.first() else { return Ok(SettledPlace::Fenced) };
        let period = super::names::receipt_period(order.receipt);
        let key = self.names.receipts(held.shard, period);
        let asked = super::link::words(&[b"HEXISTS", key.as_bytes(), &order.receipt.to_be_bytes()]);
        if super::pack::int(&self.link.ask(&asked).await?)? == 0 {
            return Ok(SettledPlace::Fenced);
        }
        Ok(match self.row_bytes(RowPlace::Queue, item.row.id).await? {
            None => SettledPlace::Final,
            Some(bytes) => place_of(&RedisRow::decode(item.row.id, &bytes)?),
        })
    }

    async fn write_settled(
        &self,
        order: &SettleOrder,
        held: &HeldShard,
        before: &[u8],
        settled: &SettledDelivery,
    ) -> RedisResult<ChangeResult> {
        let SettledDelivery { old, new, counts, .. } = settled;
        let mut all =
            ShardChanges::new(self, held.shard).by_holder(held.nonce).with_receipt(order.receipt);
        let mut change = ShardChange::default();
        let queue = all.key(self.names.rows(held.shard, RowPlace::Queue, minute(old.id)));
        change.if_field(queue, &old.id.to_be_bytes(), Some(before));
        change.leave_lane(self, &mut all, old.id, old.fixed.lane);
        let crashed = all.key(self.names.of(held.shard, "cr"));
        let mut told = Vec::new();
        if new.progress.state.is_pending() {
            change.put_row(self, &mut all, RowPlace::Queue, new);
            change.enter_lane(self, &mut all, new, new.fixed.lane);
        } else {
            let is_dead = new.progress.state == State::Failed;
            let place = if is_dead { RowPlace::Dead } else { RowPlace::Ledger };
            change.remove_row(self, &mut all, RowPlace::Queue, old.id);
            change.put_row(self, &mut all, place, new);
            if old.shares_message {
                let message = old.fixed.message.0;
                let field = outbox_field(message, place_in_message(message, old.id));
                let needs = needs_value(if is_dead { NEEDS_DEAD } else { NEEDS_FINAL }, new.moves);
                change.send_out(self, &mut all, &field, &needs);
                told.push((field, needs));
            }
        }
        match new.mark.crashes {
            0 => change.run("HDEL", crashed, &[&old.id.to_be_bytes()]),
            n => change.run("HSET", crashed, &[&old.id.to_be_bytes(), n.to_string().as_bytes()]),
        };
        for (_, batch) in &order.ended_batches {
            change.run("HDEL", 2, &[batch.to_string().as_bytes()]);
        }
        change.count(self, &mut all, counts);
        all.push(change);
        let result = self.apply(all).await?.first().copied().unwrap_or(ChangeResult::Fenced);
        if result == ChangeResult::Written {
            self.tell_messages(shard_of(old.id), told).await?;
        }
        Ok(result)
    }

    async fn other_place(&self, alternatives: &[Alternative]) -> RedisResult<Option<OtherPlace>> {
        let Some((first, rest)) = alternatives.split_first() else { return Ok(None) };
        let lanes = self.lane_numbers(&[Arc::clone(&first.lane)]).await?;
        let lane = lanes.first().copied().ok_or_else(|| RedisFailure::damaged("a lane"))?;
        Ok(Some(OtherPlace { lane, place: first.clone(), rest: rest.to_vec() }))
    }
}

fn place_of(row: &RedisRow) -> SettledPlace {
    match row.progress.state.is_pending() {
        false => SettledPlace::Final,
        true => SettledPlace::Waits {
            lane: row.fixed.lane,
            due: row.progress.due.0,
            crashes: row.mark.crashes,
        },
    }
}

fn settle(
    item: &SettleItem,
    order: &SettleOrder,
    old: RedisRow,
    elsewhere: Option<&OtherPlace>,
) -> RedisResult<SettledDelivery> {
    let decision = effective_decision(&item.decision, old.mark.cancelled, elsewhere.is_some());
    let progress = old.progress.settled(&decision, &item.attempts, order.now);
    let mut counts = CountChanges::default();
    counts.add_row_move(&old, &progress);
    let crashes = old.mark.settled(&decision).crashes;
    let mut new = RedisRow {
        progress,
        log: longer_log(&old.log, &item.attempts)?,
        moves: old.moves + 1,
        mark: crate::progress::DeliveryMark { crashes, ..Default::default() },
        free_batch: item.batch,
        ..old.clone()
    };
    if let Some(to) = elsewhere.filter(|_| decision == Decision::FallBack) {
        let target = to.place.target.as_json();
        let before = old.payload.target.as_ref().map_or(0, String::len);
        let longer = target.len() as i64 - before as i64;
        counts.add_bytes(&old.fixed.tenant, longer);
        new.fixed.lane = to.lane;
        new.fixed.hash = to.place.hash;
        new.fixed.address = to.place.address;
        new.fixed.address_since = to.place.address_since.map(|at| at.0);
        new.fixed.bytes += longer;
        new.payload.target = Some(target.to_owned());
        new.payload.alternatives = json_unless(&to.rest);
    }
    if progress.state.is_final() {
        new.mark = Default::default();
        new.free_batch = 0;
        if progress.state != State::Failed {
            new = new.erased();
        }
    }
    Ok(SettledDelivery { old, new, decision, counts })
}

/// The receipt of what a settlement teaches about its address. It is another one than the settlement's, whose shard
/// may be the address's, too; and another one for each delivery. Its time is the same.
fn address_receipt(settlement: u128, delivery: u128) -> u128 {
    let folded = (delivery ^ (delivery >> 64)) as u64;
    settlement ^ u128::from(folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
}

#[cfg(test)]
mod tests {
    use super::super::names::receipt_period;
    use super::*;

    #[test]
    fn what_is_learned_of_each_delivery_has_a_receipt_of_its_own() {
        let (settlement, first) = (0x0192_0000_0000_7000_8000_0000_0000_0000_u128, 7 << 64);
        let receipts: std::collections::BTreeSet<_> =
            (0..1_000).map(|n| address_receipt(settlement, first + n * 1_024)).collect();
        assert_eq!(receipts.len(), 1_000);
        assert!(!receipts.contains(&settlement));
        assert!(
            receipts.iter().all(|receipt| receipt_period(*receipt) == receipt_period(settlement))
        );
    }
}
