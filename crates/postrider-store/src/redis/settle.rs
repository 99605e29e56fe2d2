//! Settlements that concern only their deliveries: many of one shard in one call, all of them or none.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use postrider_core::{Decision, State};

use super::changes::outbox_field;
use super::failure::{RedisFailure, RedisResult};
use super::names::{RowPlace, minute, receipt_period};
use super::pack::{Packed, bytes, int, list};
use super::row::{RowFlags, head, longer_log, place_in_message};
use super::scripts::SETTLE;
use super::shared::RedisShared;
use super::tally::{CountChanges, CountHash};
use crate::progress::DeliveryMark;
use crate::sharded::{SettleItem, SettleOrder, settled_progress};

/// More settlements go one by one.
const SETTLE_AT_ONCE: usize = 1_500;
/// Where the hashes of counts are among the keys.
const COUNTS_AT: i64 = 4;

/// How a script is told where a delivery goes.
const FINAL: i64 = 0;
const DEAD: i64 = 1;
const WAITS: i64 = 2;

impl RedisShared {
    pub(super) async fn settle_many(&self, order: &SettleOrder) -> RedisResult<bool> {
        let _write = self.load.begin_write();
        let [held] = order.shards.as_slice() else { return Ok(false) };
        if order.items.len() > SETTLE_AT_ONCE {
            return Ok(false);
        }
        let shard = held.shard;
        let period = receipt_period(order.receipt);
        let names = &self.names;
        let of = |name: &str| names.of(shard, name);
        let mut keys = vec![of("h"), of("le"), of("x"), of("t"), of("tp"), of("tb")];
        keys.extend(RowPlace::ALL.map(|place| names.minutes(shard, place)));
        keys.extend([of("cr"), names.receipts(shard, period), of("rb"), of("o"), of("ls")]);
        let mut places =
            SettlePlaces { shared: self, keys, minutes: BTreeMap::new(), lanes: BTreeMap::new() };
        let mut counts = CountChanges::default();
        let mut items = Packed::new();
        items.list(order.items.len());
        for item in &order.items {
            places.add(item, order, &mut items, &mut counts)?;
        }
        let mut packed = Packed::new();
        packed.list(7).bytes(order.receipt.to_be_bytes()).int(period).bytes(held.nonce.to_string());
        packed.list(order.ended_batches.len());
        for (_, batch) in order.ended_batches.iter() {
            packed.bytes(batch.to_string());
        }
        packed.list(counts.changes().count());
        for (hash, field, by) in counts.changes() {
            let at = match hash {
                CountHash::All => COUNTS_AT,
                CountHash::Pending => COUNTS_AT + 1,
                CountHash::Bytes => COUNTS_AT + 2,
            };
            packed.list(3).int(at).bytes(field).int(by);
        }
        // What messages were told before is taken out of the outbox by the way.
        let told = self.take_told(shard);
        packed.list(told.len());
        for (field, needs) in &told {
            packed.list(2).bytes(field).bytes(needs);
        }
        packed.append(&items);
        let answer = self.link.call_durably(&SETTLE, &places.keys, &[&packed.into_bytes()]).await?;
        let mut answer = list(answer)?.into_iter();
        if answer.next().map_or(Ok(0), |first| int(&first))? != 1 {
            return Ok(false);
        }
        counts.change_load(&self.load);
        let mut outbox = Vec::new();
        while let (Some(field), Some(needs)) = (answer.next(), answer.next()) {
            outbox.extend(bytes(field).zip(bytes(needs)));
        }
        self.tell_messages(shard, outbox).await?;
        let forgiven = order.items.iter().filter(|item| item.decision == Decision::Done);
        let forgiven =
            forgiven.filter(|item| self.is_marked(super::names::shard_of_address(&item.row.hash)));
        let forgive = |item: &SettleItem| {
            let (tenant, hash) = (item.row.message.tenant.clone(), item.row.hash);
            async move { self.forgive_address(&tenant, hash).await }
        };
        try_join_all(forgiven.map(forgive)).await?;
        Ok(true)
    }
}

/// The keys of one call.
struct SettlePlaces<'a> {
    shared: &'a RedisShared,
    keys: Vec<String>,
    minutes: BTreeMap<i64, i64>,
    lanes: BTreeMap<u32, i64>,
}

impl SettlePlaces<'_> {
    fn add(
        &mut self,
        item: &SettleItem,
        order: &SettleOrder,
        items: &mut Packed,
        counts: &mut CountChanges,
    ) -> Result<(), RedisFailure> {
        let (row, names) = (&item.row, &self.shared.names);
        let shard = crate::sharded::shard_of(row.id);
        let to = settled_progress(item, order.now);
        let log = longer_log(row.log.as_deref().unwrap_or_default(), &item.attempts)?;
        counts.add_move(&row.progress, &to, &row.message.tenant, row.bytes);
        let (op, mark) = match to.state {
            State::Failed => (DEAD, DeliveryMark::default()),
            state if state.is_final() => (FINAL, DeliveryMark::default()),
            _ => {
                let crashes = row.mark.settled(&item.decision).crashes;
                (WAITS, DeliveryMark { crashes, ..DeliveryMark::default() })
            }
        };
        let at = minute(row.id);
        let keys = &mut self.keys;
        let minute_place = *self.minutes.entry(at).or_insert_with(|| {
            keys.extend(RowPlace::ALL.map(|place| names.rows(shard, place, at)));
            keys.len() as i64 - 2
        });
        let lane_place = *self.lanes.entry(row.lane).or_insert_with(|| {
            keys.push(names.lane(shard, row.lane));
            keys.len() as i64
        });
        let flags = RowFlags { discarded: false, shares_message: row.shares_message };
        let free_batch = if op == WAITS { item.batch } else { 0 };
        items.list(11).bytes(row.id.to_be_bytes()).int(minute_place).int(at).int(lane_place);
        items.int(i64::from(row.lane)).int(op).int(item.batch);
        items.bytes(head(&to, mark, flags, row.expires, free_batch)).bytes(log).int(to.due.0);
        let message = row.message.id.0;
        let field = outbox_field(message, place_in_message(message, row.id));
        items.maybe(row.shares_message.then_some(field.as_slice()));
        Ok(())
    }
}
