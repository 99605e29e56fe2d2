//! Forgets what is over: minutes of the ledger, periods of keys and receipts, and what a crash left behind.

use std::time::Duration;

use postrider_core::Timestamp;
use postrider_core::model::id::order_key;
use postrider_core::policy::strikes;
use postrider_core::ports::store::{PruneProgress, Retention};

use super::changes::{ChangeResult, ShardChange, ShardChanges, needs_value, outbox_field};
use super::failure::RedisResult;
use super::link::words;
use super::messages::{NEEDS_NOTHING, tag_members};
use super::names::{COMMON, MINUTE_MS, RECEIPTS_MS, RowPlace};
use super::pack::{byte_list, id, pairs, text_int};
use super::row::{RedisRow, parse, place_in_message};
use super::shared::RedisShared;
use super::tally::CountChanges;
use crate::progress::DELETED_MARKS_KEPT;
use crate::sharded::{SHARDS, ShardId};
use postrider_core::model::id::order_key_at;

/// Deliveries of one call, and of one script.
const PRUNE_CALL: u64 = 10_000;
const CHUNK: usize = 200;
/// A write is not repeated after this time.
const RECEIPTS_KEPT: Duration = Duration::from_secs(900);
/// A message whose writing was interrupted is looked at so long after nobody repeats it any more.
const UNSEALED_AFTER: Duration = Duration::from_secs(3600);
const DAY_MS: i64 = 86_400_000;

impl RedisShared {
    pub(super) async fn prune(&self, retention: &Retention) -> RedisResult<PruneProgress> {
        let over_by = self.clock.bounds().earliest;
        self.prune_receipts(over_by).await?;
        self.prune_keys(over_by).await?;
        self.prune_strikes(over_by - strikes::KEPT).await?;
        self.prune_deleted_marks(order_key_at(over_by - DELETED_MARKS_KEPT)).await?;
        self.prune_shares().await?;
        self.prune_documents(over_by).await?;
        for shard in 0..SHARDS {
            self.empty_outbox(shard).await?;
        }
        self.end_unsealed(over_by).await?;
        self.discard_old(retention, over_by).await?;
        self.prune_ledger(retention, over_by).await
    }

    async fn prune_receipts(&self, over_by: Timestamp) -> RedisResult<()> {
        let last = ((over_by - RECEIPTS_KEPT).0.div_euclid(RECEIPTS_MS) - 1).to_string();
        for shard in (0..SHARDS).chain([COMMON]) {
            let periods = self.names.of(shard, "rb");
            let asked = words(&[b"ZRANGEBYSCORE", periods.as_bytes(), b"-inf", last.as_bytes()]);
            for period in byte_list(self.link.ask(&asked).await?)?.into_iter().flatten() {
                let receipts = self.names.receipts(shard, text_int(&period)?);
                self.link.ask(&words(&[b"UNLINK", receipts.as_bytes()])).await?;
                self.link.ask(&words(&[b"ZREM", periods.as_bytes(), &period])).await?;
            }
        }
        Ok(())
    }

    async fn prune_shares(&self) -> RedisResult<()> {
        let (key, idle) = (self.names.common("shares"), self.clock.now().0 - DAY_MS);
        for (name, value) in pairs(self.link.ask(&words(&[b"HGETALL", key.as_bytes()])).await?)? {
            let text = String::from_utf8_lossy(&value);
            let at = text.split(' ').nth(1).and_then(|at| at.parse::<i64>().ok()).unwrap_or(0);
            if at < idle {
                self.link.ask(&words(&[b"HDEL", key.as_bytes(), &name])).await?;
            }
        }
        Ok(())
    }

    /// A node died while it wrote a message of several deliveries: those that are not there never come.
    async fn end_unsealed(&self, over_by: Timestamp) -> RedisResult<()> {
        let last = (over_by - UNSEALED_AFTER).0.to_string();
        let answers =
            self.of_each_shard("ZRANGEBYSCORE", "mu", &[b"-inf", last.as_bytes()]).await?;
        for (shard, answer) in (0..SHARDS).zip(answers) {
            for member in byte_list(answer)?.into_iter().flatten() {
                let message = id(&member)?;
                if let Some(shared) = self.shared_message(message).await? {
                    let mut missing = Vec::new();
                    for delivery in &shared.deliveries {
                        if self.find_row(*delivery).await?.is_none() {
                            let field = outbox_field(message, place_in_message(message, *delivery));
                            missing.push((field, needs_value(NEEDS_NOTHING, u32::MAX)));
                        }
                    }
                    self.tell_messages(shard, missing).await?;
                }
                let key = self.names.of(shard, "mu");
                self.link.ask(&words(&[b"ZREM", key.as_bytes(), &member])).await?;
            }
        }
        Ok(())
    }

    /// Discards dead letters whose time is over.
    async fn discard_old(&self, retention: &Retention, over_by: Timestamp) -> RedisResult<()> {
        let Some(latest) = retention.latest_discarded(over_by) else { return Ok(()) };
        for shard in 0..SHARDS {
            let last = latest.0.div_euclid(MINUTE_MS);
            for minute in self.minutes_upto(shard, RowPlace::Dead, last).await? {
                let ids = self.ids_of_minute(shard, RowPlace::Dead, minute).await?;
                let mut over = Vec::new();
                for (row, _) in self.rows(shard, RowPlace::Dead, minute, &ids).await? {
                    let times = retention.times(&row.fixed.tenant);
                    if times.dead_letters.is_some_and(|keep| row.progress.changed <= over_by - keep)
                    {
                        over.push(row.id);
                    }
                }
                self.discard(&over).await?;
            }
        }
        Ok(())
    }

    async fn prune_ledger(
        &self,
        retention: &Retention,
        over_by: Timestamp,
    ) -> RedisResult<PruneProgress> {
        let last = retention.latest_forgotten(over_by).0.div_euclid(MINUTE_MS);
        let mut deleted = 0;
        for shard in 0..SHARDS {
            for minute in self.minutes_upto(shard, RowPlace::Ledger, last).await? {
                if deleted >= PRUNE_CALL {
                    return Ok(PruneProgress { deleted, has_more: true });
                }
                if !self.is_minute_due(shard, minute, over_by) {
                    continue;
                }
                deleted += self.prune_minute(shard, minute, retention, over_by).await?;
            }
        }
        Ok(PruneProgress { deleted, has_more: deleted >= PRUNE_CALL })
    }

    /// What is left of a minute is looked at again only when something of it is over.
    fn is_minute_due(&self, shard: ShardId, minute: i64, over_by: Timestamp) -> bool {
        let left = self.left_minutes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        left.get(&(shard, minute)).is_none_or(|next| *next <= over_by.0)
    }

    async fn prune_minute(
        &self,
        shard: ShardId,
        minute: i64,
        retention: &Retention,
        over_by: Timestamp,
    ) -> RedisResult<u64> {
        let ids = self.ids_of_minute(shard, RowPlace::Ledger, minute).await?;
        let (mut pruned, mut next) = (0, None::<i64>);
        for chunk in ids.chunks(CHUNK) {
            let mut over = Vec::new();
            for (row, bytes) in self.rows(shard, RowPlace::Ledger, minute, chunk).await? {
                let end = row.progress.changed + retention.times(&row.fixed.tenant).deliveries;
                match end <= over_by {
                    true => over.push((row, bytes)),
                    false => next = Some(next.map_or(end.0, |next| next.min(end.0))),
                }
            }
            pruned += self.forget_rows(shard, minute, over).await?;
        }
        let mut left = self.left_minutes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match next {
            // A change of the retention is noticed after an hour at the latest.
            Some(next) => left.insert((shard, minute), next.min(over_by.0 + 3_600_000)),
            None => left.remove(&(shard, minute)),
        };
        Ok(pruned)
    }

    /// Forgets deliveries, and with the last one of a message the message.
    async fn forget_rows(
        &self,
        shard: ShardId,
        minute: i64,
        rows: Vec<(RedisRow, Vec<u8>)>,
    ) -> RedisResult<u64> {
        let Some(last) = rows.iter().map(|(row, _)| row.id).max() else { return Ok(0) };
        let mut all = ShardChanges::new(self, shard);
        let key = all.key(self.names.rows(shard, RowPlace::Ledger, minute));
        let mut outbox = Vec::new();
        for (row, bytes) in &rows {
            let mut change = ShardChange::default();
            let mut counts = CountChanges::default();
            change.if_field(key, &row.id.to_be_bytes(), Some(bytes));
            change.remove_row(self, &mut all, RowPlace::Ledger, row.id);
            counts.add_state(&row.fixed.tenant, row.progress.state, -1);
            if row.shares_message {
                let message = row.fixed.message.0;
                let field = outbox_field(message, place_in_message(message, row.id));
                let needs = needs_value(NEEDS_NOTHING, row.moves + 1);
                change.send_out(self, &mut all, &field, &needs);
                outbox.push((field, needs));
            } else {
                counts.add_messages(&row.fixed.tenant, -1);
                if let Some(json) = &row.fixed.envelope {
                    let envelope: postrider_core::model::message::Envelope =
                        parse(json, "an envelope")?;
                    let tags = all.key(self.names.of(shard, "g"));
                    for tag in
                        tag_members(&row.fixed.tenant, &envelope.marks(), row.fixed.message.0)
                    {
                        change.run("ZREM", tags, &[&tag]);
                    }
                }
            }
            change.count(self, &mut all, &counts);
            all.push(change);
        }
        self.note_last(order_key(last)).await?;
        let results = self.apply(all).await?;
        self.tell_messages(shard, outbox).await?;
        Ok(results.iter().filter(|result| **result == ChangeResult::Written).count() as u64)
    }

    /// Remembers the highest id that was forgotten, so that ids go on above it.
    async fn note_last(&self, last: u64) -> RedisResult<()> {
        let (key, last) = (self.names.common("counters"), last.to_string());
        let known = words(&[b"HGET", key.as_bytes(), b"last_id"]);
        let known = super::durability::count(super::pack::bytes(self.link.ask(&known).await?))?;
        if known as u64 >= last.parse().unwrap_or(0) {
            return Ok(());
        }
        let set = words(&[b"HSET", key.as_bytes(), b"last_id", last.as_bytes()]);
        self.link.ask(&set).await.map(drop)
    }
}
