//! The model's ledger. Counts rows at each call, because a model may be slow.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::model::id::order_key_at;
use postrider_core::policy::ttl;
use postrider_core::ports::store::*;
use postrider_core::{
    Delivery, DeliveryId, LaneId, LaneKey, MessageId, State, TenantId, Timestamp,
};

use super::MemoryStore;
use super::rows::{MemoryMessage, MemoryTables};
use crate::progress::{DELETED_MARKS_KEPT, DeliveryMark, died_before, needs_body, paced};
use crate::view::{self, SHOWN};

const PRUNED_AT_ONCE: usize = 10_000;

#[async_trait]
impl Ledger for MemoryStore {
    async fn message(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<MessageView>> {
        let now = self.clock.now();
        let rows = self.rows();
        let Some(row) = rows.message(tenant, id) else { return Ok(None) };
        let mut view = view::message(&row.message, !row.scrubbed);
        for id in &row.deliveries {
            let Some(row) = rows.deliveries.get(id) else { continue };
            view::add_delivery(&mut view, *id, row.state(now));
        }
        Ok(Some(view))
    }

    async fn content(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<Arc<str>>> {
        let rows = self.rows();
        let row = rows.message(tenant, id).filter(|row| !row.scrubbed);
        Ok(row.map(|row| row.message.content.clone()))
    }

    async fn delivery(
        &self,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> StoreResult<Option<Delivery>> {
        let now = self.clock.now();
        let rows = self.rows();
        let row = rows.deliveries.get(&id).filter(|row| rows.sees(tenant, row));
        Ok(row.map(|row| rows.view(id, row, now)))
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> StoreResult<Page<Delivery, DeliveryId>> {
        Ok(self.rows().page(&filter, false, self.clock.now()))
    }

    async fn dead_letters(
        &self,
        filter: DeliveryFilter,
    ) -> StoreResult<Page<Delivery, DeliveryId>> {
        Ok(self.rows().page(&filter, true, self.clock.now()))
    }

    async fn replay(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        how: Replay,
    ) -> StoreResult<u64> {
        let now = self.clock.now();
        let replayed = {
            let mut rows = self.rows();
            let mut chosen = rows.choose(tenant, which, now);
            chosen.retain(|id| {
                let row = rows.deliveries.get(id);
                row.is_some_and(|row| died_before(&row.progress, how.dead_before))
            });
            for (index, id) in chosen.iter().enumerate() {
                rows.replay(*id, paced(now, index as u64, how.rate_per_s), &how, now);
            }
            chosen.len() as u64
        };
        self.work.notify();
        Ok(replayed)
    }

    async fn discard(&self, tenant: Option<&TenantId>, which: Selection) -> StoreResult<u64> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let chosen = rows.choose(tenant, which, now);
        for id in &chosen {
            let message = rows.change(*id, |row| {
                row.discarded = true;
                row.erase();
                row.message
            });
            if let Some(message) = message {
                rows.scrub(message);
            }
        }
        Ok(chosen.len() as u64)
    }

    async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<CancelResult>> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let Some(row) = rows.message(tenant, id) else { return Ok(None) };
        let mut result = CancelResult::default();
        for delivery in row.deliveries.clone() {
            rows.cancel(delivery, now, &mut result);
        }
        rows.scrub(id);
        Ok(Some(result))
    }

    async fn cancel_deliveries(
        &self,
        tenant: Option<&TenantId>,
        ids: Vec<DeliveryId>,
    ) -> StoreResult<CancelResult> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let mut result = CancelResult::default();
        for id in ids {
            let row = rows.deliveries.get(&id).filter(|row| rows.sees(tenant, row));
            let Some(message) = row.map(|row| row.message) else { continue };
            rows.cancel(id, now, &mut result);
            rows.scrub(message);
        }
        Ok(result)
    }

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts> {
        let now = self.clock.now();
        let rows = self.rows();
        let mut counts = Counts::default();
        let ours = |t: &TenantId| tenant.is_none_or(|tenant| tenant == t);
        counts.messages =
            rows.messages.values().filter(|row| ours(&row.message.tenant)).count() as u64;
        for row in rows.deliveries.values().filter(|row| rows.sees(tenant, row)) {
            *counts.states.entry(row.state(now)).or_default() += 1;
            counts.held += u64::from(row.progress.is_held());
            if let Some(reason) = row.progress.reason.filter(|_| !row.discarded) {
                *counts.dead.entry(reason).or_default() += 1;
            }
        }
        Ok(counts)
    }

    async fn holdings(&self) -> StoreResult<Vec<TenantHoldings>> {
        Ok(self.rows().holdings())
    }

    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>> {
        let now = self.clock.now();
        let rows = self.rows();
        let leased = |d: &DeliveryId| rows.deliveries.get(d).is_some_and(|r| r.is_leased(now));
        let lanes = rows.due.iter().map(|(&id, queue)| {
            let in_flight = queue.iter().filter(|(_, d)| leased(d)).count() as u64;
            let next = queue.iter().find(|(_, d)| !leased(d));
            LaneDepth {
                id,
                key: rows.lane(id).clone(),
                pending: queue.len() as u64 - in_flight,
                in_flight,
                next_due: next.map(|(due, _)| *due),
            }
        });
        Ok(view::deepest(lanes, tenant, limit))
    }

    async fn lane_ids(&self, keys: Vec<Arc<LaneKey>>) -> StoreResult<Vec<LaneId>> {
        let mut rows = self.rows();
        Ok(keys.iter().map(|key| rows.intern(key)).collect())
    }

    async fn oldest_pending(&self) -> StoreResult<Option<Timestamp>> {
        let rows = self.rows();
        let oldest = rows.deliveries.iter().find(|(_, row)| row.progress.state.is_pending());
        Ok(oldest.map(|(id, _)| id.created_at()))
    }

    async fn prune(&self, retention: &Retention) -> StoreResult<PruneProgress> {
        let over_by = self.clock.bounds().earliest;
        let over: Vec<_> = {
            let rows = self.rows();
            let dead = rows.deliveries.iter().filter(|(_, row)| {
                let times = retention.times(&rows.lane(row.lane).tenant);
                let keep = times.dead_letters.filter(|_| row.progress.state == State::Failed);
                !row.discarded && keep.is_some_and(|keep| row.progress.changed <= over_by - keep)
            });
            dead.map(|(id, _)| *id).collect()
        };
        self.discard(None, Selection::Ids(over)).await?;
        let mut rows = self.rows();
        let old = order_key_at(over_by - DELETED_MARKS_KEPT);
        rows.gone.retain(|_, end| end.deleted_before().is_none_or(|key| key >= old));
        rows.dedup.retain(|_, seen| seen.expires > over_by);
        rows.forget_old_strikes(over_by);
        rows.documents.prune(over_by);
        let old: Vec<_> = rows
            .deliveries
            .iter()
            .filter(|(_, row)| !needs_body(row.progress.state, row.discarded))
            .filter(|(_, row)| {
                row.progress.changed
                    <= over_by - retention.times(&rows.lane(row.lane).tenant).deliveries
            })
            .map(|(id, row)| (*id, row.message))
            .take(PRUNED_AT_ONCE)
            .collect();
        for (id, message) in &old {
            rows.deliveries.remove(id);
            let gone = |d: &DeliveryId| !rows.deliveries.contains_key(d);
            if rows.messages.get(message).is_some_and(|m| m.deliveries.iter().all(gone)) {
                rows.messages.remove(message);
            }
        }
        Ok(PruneProgress { deleted: old.len() as u64, has_more: old.len() == PRUNED_AT_ONCE })
    }
}

impl MemoryTables {
    /// A message, if the tenant may see it.
    fn message(&self, tenant: Option<&TenantId>, id: MessageId) -> Option<&MemoryMessage> {
        let found = self.messages.get(&id);
        found.filter(|row| tenant.is_none_or(|tenant| *tenant == row.message.tenant))
    }

    fn cancel(&mut self, id: DeliveryId, now: Timestamp, result: &mut CancelResult) {
        self.change(id, |row| match row.state(now) {
            State::Sending => {
                row.mark.cancelled = true;
                result.in_flight += 1;
            }
            state if state.is_final() => result.already_final += 1,
            _ => {
                row.lease = None;
                row.erase();
                row.mark = DeliveryMark::default();
                row.progress.state = State::Cancelled;
                row.progress.changed = now;
                result.cancelled += 1;
            }
        });
    }

    /// Whether the message has the marks that the filter asks for.
    pub(super) fn has_marks(&self, message: MessageId, filter: &DeliveryFilter) -> bool {
        let asked = filter.marks();
        if asked.is_empty() {
            return true;
        }
        let marks = self.messages.get(&message).map(|row| row.message.envelope.marks());
        marks.is_some_and(|marks| asked.iter().all(|mark| marks.contains(mark)))
    }

    fn page(
        &self,
        filter: &DeliveryFilter,
        dead: bool,
        now: Timestamp,
    ) -> Page<Delivery, DeliveryId> {
        let limit = if filter.limit == 0 { SHOWN } else { filter.limit };
        let found = self.select(filter, dead, now).take(limit.saturating_add(1));
        view::page(found.collect(), limit, |delivery| delivery.id)
    }

    /// Newest first, from the cursor on.
    fn select<'a>(
        &'a self,
        filter: &'a DeliveryFilter,
        dead: bool,
        now: Timestamp,
    ) -> impl Iterator<Item = Delivery> + 'a {
        let before = filter.cursor.unwrap_or(DeliveryId(u128::MAX));
        self.deliveries
            .range(..before)
            .rev()
            .filter(move |(_, row)| {
                !dead || (row.progress.state == State::Failed && !row.discarded)
            })
            .filter(|(_, row)| self.has_marks(row.message, filter))
            .map(move |(id, row)| self.view(*id, row, now))
            .filter(|delivery| view::matches(filter, delivery))
    }

    /// The ids of the chosen dead letters, oldest first.
    fn choose(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        now: Timestamp,
    ) -> Vec<DeliveryId> {
        let filter = match &which {
            Selection::Filter(filter) => filter.clone(),
            Selection::Ids(_) => DeliveryFilter::default(),
        };
        let limit = if filter.limit == 0 { usize::MAX } else { filter.limit };
        let mut chosen: Vec<_> = self
            .select(&filter, true, now)
            .filter(|delivery| tenant.is_none_or(|tenant| *tenant == delivery.tenant))
            .map(|delivery| delivery.id)
            .filter(|id| !matches!(&which, Selection::Ids(ids) if !ids.contains(id)))
            .take(limit)
            .collect();
        chosen.reverse();
        chosen
    }

    fn replay(&mut self, id: DeliveryId, due: Timestamp, how: &Replay, now: Timestamp) {
        let message = self.deliveries.get(&id).and_then(|row| self.messages.get(&row.message));
        let Some(ttl_s) = how.ttl_s.or(message.map(|row| row.message.ttl_s)) else { return };
        let lane = self.change(id, |row| {
            row.progress = row.progress.replayed(due, now);
            row.expires = ttl::expires_at(now, Some(due), ttl_s, ttl::DISPATCH_WINDOW);
            row.retry = how.retry.clone();
            row.lane
        });
        self.has_new_work |= lane.is_some_and(|lane| self.is_new_work(lane, due, now));
    }
}
