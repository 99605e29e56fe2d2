//! The ledger: what is pending, dead letters and what is final read as one, with what is in flight.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use postrider_core::ports::store::*;
use postrider_core::{
    Delivery, DeliveryId, LaneId, LaneKey, Message, MessageId, State, TenantId, Timestamp,
};

use super::RedisStore;
use super::failure::{RedisFailure, RedisResult};
use super::link::words;
use super::names::{RowPlace, minute};
use super::pack::{int, pairs, text_int};
use super::pages::LeaseEnds;
use super::row::RedisRow;
use super::shared::RedisShared;
use super::tally::{SummedCounts, add_counts};
use crate::sharded::{SHARDS, ShardId};
use crate::view;

#[async_trait]
impl Ledger for RedisStore {
    async fn message(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<MessageView>> {
        Ok(self.shared.message_view(tenant, id).await?)
    }

    async fn content(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<Arc<str>>> {
        let found = self.shared.found_message(tenant, id).await?;
        Ok(found.filter(|found| found.has_content).map(|found| found.message.content))
    }

    async fn delivery(
        &self,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> StoreResult<Option<Delivery>> {
        let Some((_, row)) = self.shared.find_row(id.0).await? else { return Ok(None) };
        if tenant.is_some_and(|tenant| *tenant != row.fixed.tenant) {
            return Ok(None);
        }
        Ok(Some(self.shared.view_row(&row, &mut LeaseEnds::default()).await?))
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> StoreResult<Page<Delivery, DeliveryId>> {
        Ok(self.shared.page(&filter, false).await?)
    }

    async fn dead_letters(
        &self,
        filter: DeliveryFilter,
    ) -> StoreResult<Page<Delivery, DeliveryId>> {
        Ok(self.shared.page(&filter, true).await?)
    }

    async fn replay(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        how: Replay,
    ) -> StoreResult<u64> {
        let chosen = self.shared.choose(tenant, which, true).await?;
        Ok(self.shared.replay(&chosen, &how).await?)
    }

    async fn discard(&self, tenant: Option<&TenantId>, which: Selection) -> StoreResult<u64> {
        let chosen = self.shared.choose(tenant, which, true).await?;
        Ok(self.shared.discard(&chosen).await?)
    }

    async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<CancelResult>> {
        Ok(self.shared.cancel(tenant, id).await?)
    }

    async fn cancel_deliveries(
        &self,
        tenant: Option<&TenantId>,
        ids: Vec<DeliveryId>,
    ) -> StoreResult<CancelResult> {
        Ok(self.shared.cancel_deliveries(tenant, ids).await?)
    }

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts> {
        Ok(self.shared.counts(tenant).await?)
    }

    async fn holdings(&self) -> StoreResult<Vec<TenantHoldings>> {
        Ok(self.shared.holdings().await?)
    }

    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>> {
        let lanes = self.shared.lane_depths(tenant).await?;
        Ok(view::deepest(lanes.into_iter(), tenant, limit))
    }

    async fn lane_ids(&self, keys: Vec<Arc<LaneKey>>) -> StoreResult<Vec<LaneId>> {
        let numbers = self.shared.lane_numbers(&keys).await?;
        Ok(numbers.into_iter().map(LaneId).collect())
    }

    async fn oldest_pending(&self) -> StoreResult<Option<Timestamp>> {
        Ok(self.shared.oldest_pending().await?)
    }

    async fn prune(&self, retention: &Retention) -> StoreResult<PruneProgress> {
        Ok(self.shared.prune(retention).await?)
    }

    fn check_health(&self) -> StoreHealth {
        self.shared.health()
    }
}

/// A message as it is found.
pub(super) struct RedisMessage {
    pub(super) message: Message,
    pub(super) has_content: bool,
    pub(super) rows: Vec<(RowPlace, RedisRow)>,
}

/// Deliveries that are leased now.
struct LeasedNow {
    tenant: TenantId,
    state: State,
    lane: u32,
    id: u128,
}

impl RedisShared {
    /// A message, if the tenant may see it.
    pub(super) async fn found_message(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> RedisResult<Option<RedisMessage>> {
        let (shared, rows) = self.rows_of_message(id).await?;
        let (message, has_content) = match (shared, rows.first()) {
            (Some(shared), _) => (shared.message, shared.has_content),
            (None, Some((_, row))) => {
                let lane = self.lane_of(row.fixed.lane).await?;
                (row.lone_message(&lane)?, row.payload.body.is_some())
            }
            (None, None) => return Ok(None),
        };
        if tenant.is_some_and(|tenant| *tenant != message.tenant) {
            return Ok(None);
        }
        Ok(Some(RedisMessage { message, has_content, rows }))
    }

    async fn message_view(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> RedisResult<Option<MessageView>> {
        let Some(found) = self.found_message(tenant, id).await? else { return Ok(None) };
        let mut view = view::message(&found.message, found.has_content);
        let mut ends = LeaseEnds::default();
        for (_, row) in &found.rows {
            let delivery = self.view_row(row, &mut ends).await?;
            view::add_delivery(&mut view, delivery.id, delivery.state);
        }
        Ok(Some(view))
    }

    /// What is leased in a shard.
    async fn leased_now(&self, shard: ShardId) -> RedisResult<Vec<LeasedNow>> {
        let now = self.clock.now().0;
        let leases = self.leases(shard).await?;
        let mut batches: BTreeMap<u128, i64> = BTreeMap::new();
        for lease in leases.iter().filter(|lease| lease.until > now) {
            for id in &lease.ids {
                let batch = batches.entry(*id).or_default();
                *batch = (*batch).max(lease.batch);
            }
        }
        let mut minutes: BTreeMap<i64, Vec<u128>> = BTreeMap::new();
        for id in batches.keys() {
            minutes.entry(minute(*id)).or_default().push(*id);
        }
        let mut leased = Vec::new();
        for (minute, ids) in minutes {
            for (row, _) in self.rows(shard, RowPlace::Queue, minute, &ids).await? {
                if batches.get(&row.id).is_some_and(|batch| *batch > row.free_batch) {
                    let (tenant, lane) = (row.fixed.tenant, row.fixed.lane);
                    leased.push(LeasedNow { tenant, state: row.progress.state, lane, id: row.id });
                }
            }
        }
        Ok(leased)
    }

    async fn counts(&self, tenant: Option<&TenantId>) -> RedisResult<Counts> {
        let mut sums = SummedCounts::default();
        for answer in self.of_each_shard("HGETALL", "t", &[]).await? {
            add_counts(&mut sums, answer, tenant)?;
        }
        let mut counts = sums.counts();
        let leased = try_join_all((0..SHARDS).map(|shard| self.leased_now(shard))).await?;
        let ours = |leased: &LeasedNow| tenant.is_none_or(|tenant| *tenant == leased.tenant);
        for leased in leased.into_iter().flatten().filter(ours) {
            let left = counts.states.get(&leased.state).copied().unwrap_or(0).saturating_sub(1);
            match left {
                0 => drop(counts.states.remove(&leased.state)),
                left => drop(counts.states.insert(leased.state, left)),
            }
            *counts.states.entry(State::Sending).or_default() += 1;
        }
        Ok(counts)
    }

    /// Of one tenant, only its own lanes are read; of others, the number is.
    pub(super) async fn lane_depths(
        &self,
        tenant: Option<&TenantId>,
    ) -> RedisResult<Vec<LaneDepth>> {
        let all = try_join_all((0..SHARDS).map(|shard| self.depths_in(shard, tenant))).await?;
        let mut lanes: BTreeMap<u32, (u64, u64, Option<i64>)> = BTreeMap::new();
        for (lane, pending, in_flight, due) in all.into_iter().flatten() {
            let sum = lanes.entry(lane).or_default();
            sum.0 += pending;
            sum.1 += in_flight;
            sum.2 = [sum.2, due].into_iter().flatten().min();
        }
        let numbers: Vec<_> = lanes.keys().copied().collect();
        self.learn(&numbers).await?;
        let depth = |(lane, (pending, in_flight, due)): (u32, (u64, u64, Option<i64>))| {
            let (id, key) = (LaneId(lane), self.lanes.key(lane)?);
            Some(LaneDepth { id, key, pending, in_flight, next_due: due.map(Timestamp) })
        };
        Ok(lanes.into_iter().filter_map(depth).collect())
    }

    async fn depths_in(
        &self,
        shard: ShardId,
        tenant: Option<&TenantId>,
    ) -> RedisResult<Vec<(u32, u64, u64, Option<i64>)>> {
        let mut lanes = self.lanes_in(shard).await?;
        if let Some(tenant) = tenant {
            self.learn(&lanes).await?;
            lanes.retain(|lane| self.lanes.key(*lane).is_some_and(|key| key.tenant == *tenant));
        }
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        let leased = self.leased_now(shard).await?;
        let leased_ids: HashSet<_> = leased.iter().map(|leased| leased.id).collect();
        let depth = |lane: u32| {
            let in_flight = leased.iter().filter(|leased| leased.lane == lane).count();
            let leased_ids = &leased_ids;
            async move {
                let key = self.names.lane(shard, lane);
                let count = int(&self.link.ask(&words(&[b"ZCARD", key.as_bytes()])).await?)? as u64;
                let last = in_flight.to_string();
                let asked =
                    words(&[b"ZRANGE", key.as_bytes(), b"0", last.as_bytes(), b"WITHSCORES"]);
                let mut due = None;
                for (member, at) in pairs(self.link.ask(&asked).await?)? {
                    if !leased_ids.contains(&super::pack::id(&member)?) {
                        due = Some(text_int(&at)?);
                        break;
                    }
                }
                let in_flight = in_flight as u64;
                Ok::<_, RedisFailure>((lane, count.saturating_sub(in_flight), in_flight, due))
            }
        };
        let lanes: BTreeSet<_> = lanes.into_iter().collect();
        try_join_all(lanes.into_iter().map(depth)).await
    }

    async fn oldest_pending(&self) -> RedisResult<Option<Timestamp>> {
        let minutes = self.oldest_minutes(RowPlace::Queue).await?;
        let Some(oldest) = minutes.iter().map(|(_, minute)| *minute).min() else { return Ok(None) };
        let mut first = None;
        for (shard, minute) in minutes.into_iter().filter(|(_, minute)| *minute == oldest) {
            let ids = self.ids_of_minute(shard, RowPlace::Queue, minute).await?;
            first = [first, ids.into_iter().min()].into_iter().flatten().min();
        }
        Ok(first.map(|id| DeliveryId(id).created_at()))
    }
}
