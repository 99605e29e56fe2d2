//! What operators do: cancel, replay, discard, hold and release. Each step counts as an act on its shard, so that no
//! lease that saw the state before it is written after it.

use std::collections::BTreeMap;

use async_trait::async_trait;
use postrider_core::policy::ttl::{DISPATCH_WINDOW, expires_at};
use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, MessageId, State, TenantId, Timestamp};

use super::RedisStore;
use super::changes::{
    ChangeResult, OutboxEntry, ShardChange, ShardChanges, needs_value, outbox_field,
};
use super::failure::{RedisFailure, RedisResult};
use super::leasing::TRIES;
use super::messages::{NEEDS_FINAL, NEEDS_PENDING};
use super::names::{RowPlace, minute};
use super::row::{RedisRow, place_in_message};
use super::shared::RedisShared;
use super::tally::CountChanges;
use crate::progress::{DeliveryMark, HELD_MS, StoredProgress, died_before, is_held, paced};
use crate::sharded::{NoteEntry, NoteKind, SHARDS, ShardId, shard_of};

/// Deliveries of one call of a script.
const CHUNK: usize = 200;

/// What happens to a delivery.
struct PlannedMove {
    new: RedisRow,
    /// Where it is, and where it goes.
    from: RowPlace,
    to: RowPlace,
    /// What its message is told.
    needs: Option<u8>,
    /// It stops being a dead letter.
    leaves_dead: bool,
}

fn entry(row: &RedisRow) -> NoteEntry {
    NoteEntry { id: row.id, lane: row.fixed.lane, due: row.progress.due.0, expires: row.expires }
}

fn by_shard(ids: &[u128]) -> BTreeMap<ShardId, Vec<u128>> {
    let mut shards: BTreeMap<ShardId, Vec<u128>> = BTreeMap::new();
    for id in ids {
        shards.entry(shard_of(*id)).or_default().push(*id);
    }
    shards
}

impl RedisShared {
    /// Moves deliveries, each as `plan` says. Answers what became of each that was moved or is in flight.
    async fn move_rows(
        &self,
        chosen: &[u128],
        from: RowPlace,
        plan: impl Fn(&RedisRow) -> Option<PlannedMove>,
    ) -> RedisResult<Vec<(u128, ChangeResult)>> {
        let _write = self.load.begin_write();
        let mut done = Vec::new();
        for (shard, ids) in by_shard(chosen) {
            for chunk in ids.chunks(CHUNK) {
                let mut left = chunk.to_vec();
                for attempt in 0..=TRIES {
                    if attempt == TRIES {
                        return Err(RedisFailure::Busy);
                    }
                    left = self.try_to_move(shard, &left, from, &plan, &mut done).await?;
                    if left.is_empty() {
                        break;
                    }
                }
            }
        }
        self.tell_of_notes(by_shard(chosen).into_keys());
        Ok(done)
    }

    /// Answers those that changed meanwhile.
    async fn try_to_move(
        &self,
        shard: ShardId,
        ids: &[u128],
        from: RowPlace,
        plan: &impl Fn(&RedisRow) -> Option<PlannedMove>,
        done: &mut Vec<(u128, ChangeResult)>,
    ) -> RedisResult<Vec<u128>> {
        let mut all = ShardChanges::new(self, shard).by_operator();
        let mut planned = Vec::new();
        for id in ids {
            let Some(before) = self.row_bytes(from, *id).await? else { continue };
            let old = RedisRow::decode(*id, &before)?;
            let Some(to) = plan(&old) else { continue };
            let (change, counts, told) = self.moved(&mut all, &old, &before, &to);
            all.push(change);
            planned.push((*id, counts, told));
        }
        let results = self.apply(all).await?;
        let (mut left, mut outbox) = (Vec::new(), Vec::new());
        for ((id, counts, told), result) in planned.into_iter().zip(results) {
            match result {
                ChangeResult::Outdated | ChangeResult::Fenced => left.push(id),
                ChangeResult::Leased => done.push((id, result)),
                ChangeResult::Written => {
                    counts.change_load(&self.load);
                    outbox.extend(told);
                    done.push((id, result));
                }
            }
        }
        self.tell_messages(shard, outbox).await?;
        Ok(left)
    }

    /// The change that moves a delivery.
    fn moved(
        &self,
        all: &mut ShardChanges,
        old: &RedisRow,
        before: &[u8],
        to: &PlannedMove,
    ) -> (ShardChange, CountChanges, Option<OutboxEntry>) {
        let (mut change, mut counts) = (ShardChange::default(), CountChanges::default());
        let field = old.id.to_be_bytes();
        let key = all.key(self.names.rows(all.shard, to.from, minute(old.id)));
        change.if_field(key, &field, Some(before));
        if to.from == RowPlace::Queue {
            change.unless_leased(old.id, old.free_batch);
            let mark = DeliveryMark { cancelled: true, ..old.mark };
            if to.to == RowPlace::Ledger {
                let marked = RedisRow { mark, ..old.clone() }.encode();
                change.if_leased("HSET", key, &[&field, &marked]);
            }
            change.leave_lane(self, all, old.id, old.fixed.lane);
            change.note(self, all, NoteKind::Removed, &[entry(old)]);
            if old.mark.crashes > 0 && to.to != RowPlace::Queue {
                let crashed = all.key(self.names.of(all.shard, "cr"));
                change.run("HDEL", crashed, &[&field]);
            }
        }
        if to.to != to.from {
            change.remove_row(self, all, to.from, old.id);
        }
        change.put_row(self, all, to.to, &to.new);
        if to.to == RowPlace::Queue {
            change.enter_lane(self, all, &to.new, to.new.fixed.lane);
            change.note(self, all, NoteKind::Returned, &[entry(&to.new)]);
        }
        if old.progress != to.new.progress {
            counts.add_row_move(old, &to.new.progress);
        }
        if let Some(reason) = old.progress.reason.filter(|_| to.leaves_dead) {
            counts.add_dead(&old.fixed.tenant, reason, -1);
            counts.add_dead_bytes(&old.fixed.tenant, -old.fixed.bytes);
        }
        change.count(self, all, &counts);
        let told = to.needs.filter(|_| old.shares_message).map(|needs| {
            let message = old.fixed.message.0;
            let field = outbox_field(message, place_in_message(message, old.id));
            (field, needs_value(needs, to.new.moves))
        });
        if let Some((field, needs)) = &told {
            change.send_out(self, all, field, needs);
        }
        (change, counts, told)
    }

    pub(super) async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> RedisResult<Option<CancelResult>> {
        let Some(found) = self.found_message(tenant, id).await? else { return Ok(None) };
        let pending = found.rows.iter().filter(|(place, _)| *place == RowPlace::Queue);
        let pending: Vec<_> = pending.map(|(_, row)| row.id).collect();
        Ok(Some(self.cancel_pending(&pending, found.rows.len()).await?))
    }

    pub(super) async fn cancel_deliveries(
        &self,
        tenant: Option<&TenantId>,
        asked: Vec<DeliveryId>,
    ) -> RedisResult<CancelResult> {
        let (mut pending, mut all) = (Vec::new(), 0);
        for id in asked {
            for place in [RowPlace::Queue, RowPlace::Dead, RowPlace::Ledger] {
                let Some(bytes) = self.row_bytes(place, id.0).await? else { continue };
                let owner = RedisRow::decode(id.0, &bytes)?.fixed.tenant;
                if tenant.is_some_and(|tenant| *tenant != owner) {
                    break;
                }
                all += 1;
                if place == RowPlace::Queue {
                    pending.push(id.0);
                }
                break;
            }
        }
        self.cancel_pending(&pending, all).await
    }

    /// Cancels those of them that are pending. `all` counts also those that are known to have ended.
    pub(super) async fn cancel_pending(
        &self,
        pending: &[u128],
        all: usize,
    ) -> RedisResult<CancelResult> {
        let now = self.clock.now();
        let plan = |old: &RedisRow| {
            let progress = StoredProgress { state: State::Cancelled, changed: now, ..old.progress };
            let new =
                RedisRow { progress, moves: old.moves + 1, free_batch: 0, ..old.clone() }.erased();
            let needs = Some(NEEDS_FINAL);
            let (from, to) = (RowPlace::Queue, RowPlace::Ledger);
            Some(PlannedMove { new, from, to, needs, leaves_dead: false })
        };
        let done = self.move_rows(pending, RowPlace::Queue, plan).await?;
        let count =
            |of: ChangeResult| done.iter().filter(|(_, result)| *result == of).count() as u64;
        let (cancelled, in_flight) = (count(ChangeResult::Written), count(ChangeResult::Leased));
        let already_final = (all as u64).saturating_sub(cancelled + in_flight);
        Ok(CancelResult { cancelled, in_flight, already_final })
    }

    /// The ids of the chosen dead letters or held deliveries, oldest first.
    pub(super) async fn choose(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        dead: bool,
    ) -> RedisResult<Vec<u128>> {
        let mut chosen = Vec::new();
        let sees = |of: &TenantId| tenant.is_none_or(|tenant| tenant == of);
        match which {
            Selection::Ids(asked) => {
                let place = if dead { RowPlace::Dead } else { RowPlace::Queue };
                for id in asked {
                    if let Some(bytes) = self.row_bytes(place, id.0).await?
                        && sees(&RedisRow::decode(id.0, &bytes)?.fixed.tenant)
                    {
                        chosen.push(id.0);
                    }
                }
                chosen.sort_unstable();
                return Ok(chosen);
            }
            Selection::Filter(filter) => {
                let wanted = if filter.limit == 0 { usize::MAX } else { filter.limit };
                let mut filter = DeliveryFilter { limit: 1_000, held: !dead, ..filter };
                loop {
                    let page = self.page(&filter, dead).await?;
                    let ours = page.items.iter().filter(|delivery| sees(&delivery.tenant));
                    chosen.extend(ours.map(|delivery| delivery.id.0));
                    filter.cursor = page.next;
                    if page.next.is_none() || chosen.len() >= wanted {
                        break;
                    }
                }
                chosen.truncate(wanted);
            }
        }
        chosen.reverse();
        Ok(chosen)
    }

    pub(super) async fn replay(&self, chosen: &[u128], how: &Replay) -> RedisResult<u64> {
        let now = self.clock.now();
        let retry = how.retry.as_ref().map(serde_json::to_string).transpose();
        let retry = retry.map_err(|_| RedisFailure::damaged("a retry policy"))?;
        let ttls = self.ttls(chosen).await?;
        let places: BTreeMap<_, _> =
            chosen.iter().zip(0..).map(|(id, place)| (*id, place)).collect();
        let plan = |old: &RedisRow| {
            if !died_before(&old.progress, how.dead_before) {
                return None;
            }
            let place = places.get(&old.id).copied().unwrap_or(0);
            let due = paced(now, place, how.rate_per_s);
            let ttl_s = how.ttl_s.or(ttls.get(&old.id).copied()).unwrap_or(0);
            let mut new = RedisRow {
                progress: old.progress.replayed(due, now),
                expires: expires_at(now, Some(due), ttl_s, DISPATCH_WINDOW).0,
                moves: old.moves + 1,
                free_batch: 0,
                ..old.clone()
            };
            new.fixed.message_expires = old.fixed.message_expires.or(Some(old.expires));
            new.fixed.retry = retry.clone();
            let (from, to) = (RowPlace::Dead, RowPlace::Queue);
            Some(PlannedMove { new, from, to, needs: Some(NEEDS_PENDING), leaves_dead: true })
        };
        Ok(self.move_rows(chosen, RowPlace::Dead, plan).await?.len() as u64)
    }

    /// The TTL of each delivery's message.
    async fn ttls(&self, chosen: &[u128]) -> RedisResult<BTreeMap<u128, u32>> {
        let mut ttls = BTreeMap::new();
        for id in chosen {
            let Some(bytes) = self.row_bytes(RowPlace::Dead, *id).await? else { continue };
            let row = RedisRow::decode(*id, &bytes)?;
            let ttl_s = match row.shares_message {
                true => self.shared_message(row.fixed.message.0).await?.map(|m| m.message.ttl_s),
                false => row.fixed.ttl_s,
            };
            ttls.insert(*id, ttl_s.unwrap_or(0));
        }
        Ok(ttls)
    }

    pub(super) async fn discard(&self, chosen: &[u128]) -> RedisResult<u64> {
        let plan = |old: &RedisRow| {
            let new = RedisRow { discarded: true, moves: old.moves + 1, ..old.clone() }.erased();
            let (from, to) = (RowPlace::Dead, RowPlace::Ledger);
            Some(PlannedMove { new, from, to, needs: Some(NEEDS_FINAL), leaves_dead: true })
        };
        Ok(self.move_rows(chosen, RowPlace::Dead, plan).await?.len() as u64)
    }

    /// Changes the due times of pending deliveries that are not in flight. Answers how many.
    async fn move_waiting(
        &self,
        chosen: &[u128],
        change: impl Fn(u64, &StoredProgress) -> Option<StoredProgress>,
    ) -> RedisResult<u64> {
        let places: BTreeMap<_, _> =
            chosen.iter().zip(0..).map(|(id, place)| (*id, place)).collect();
        let plan = |old: &RedisRow| {
            let place = places.get(&old.id).copied().unwrap_or(0);
            let new = RedisRow { progress: change(place, &old.progress)?, ..old.clone() };
            let (from, to) = (RowPlace::Queue, RowPlace::Queue);
            Some(PlannedMove { new, from, to, needs: None, leaves_dead: false })
        };
        let done = self.move_rows(chosen, RowPlace::Queue, plan).await?;
        Ok(done.iter().filter(|(_, result)| *result == ChangeResult::Written).count() as u64)
    }

    async fn hold_everything(&self) -> RedisResult<u64> {
        let now = self.clock.now();
        let hold = |_, progress: &StoredProgress| (!progress.is_held()).then(|| progress.held(now));
        let mut held = 0;
        for shard in 0..SHARDS {
            for minute in self.minutes_upto(shard, RowPlace::Queue, i64::MAX >> 10).await? {
                let ids = self.ids_of_minute(shard, RowPlace::Queue, minute).await?;
                held += self.move_waiting(&ids, hold).await?;
            }
        }
        Ok(held)
    }

    async fn release(&self, chosen: Vec<u128>, rate_per_s: Option<f64>) -> RedisResult<u64> {
        let now = self.clock.now();
        let mut held: Vec<(u32, Timestamp, u128)> = Vec::new();
        for id in chosen {
            if let Some(bytes) = self.row_bytes(RowPlace::Queue, id).await? {
                let row = RedisRow::decode(id, &bytes)?;
                if is_held(row.progress.due) {
                    held.push((row.fixed.lane, row.progress.due, id));
                }
            }
        }
        held.sort_unstable();
        debug_assert!(held.iter().all(|(_, due, _)| due.0 >= HELD_MS));
        let held: Vec<_> = held.into_iter().map(|(.., id)| id).collect();
        let release = |place: u64, progress: &StoredProgress| {
            let at_least = paced(now, place, rate_per_s);
            progress.is_held().then(|| progress.released(at_least, now))
        };
        self.move_waiting(&held, release).await
    }
}

#[async_trait]
impl HeldDeliveries for RedisStore {
    async fn hold_pending(&self) -> StoreResult<u64> {
        Ok(self.shared.hold_everything().await?)
    }

    async fn release_held(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        rate_per_s: Option<f64>,
    ) -> StoreResult<u64> {
        let chosen = self.shared.choose(tenant, which, false).await?;
        Ok(self.shared.release(chosen, rate_per_s).await?)
    }
}
