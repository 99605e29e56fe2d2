//! The ledger: reads the disk on connections of its own, and adds what is in flight from memory.

use std::iter;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::ports::store::*;
use postrider_core::{Delivery, LaneId, LaneKey};

use super::sql::prelude::*;
use crate::embedded::EmbeddedStore;
use crate::embedded::ledger_page::{LedgerRows, page};
use crate::embedded::operator::{CHUNK, PendingDelivery};
use crate::embedded::requests::WriterRequest;
use crate::embedded::shared::{REPAIR, StoreShared};
use crate::embedded::sql::holdings;
use crate::embedded::sql::prune::{PRUNE_CALL, PruneStep};
use crate::embedded::sql::rows::{self, DELIVERY, MessageRow};
use crate::embedded::sql::statement::is_local;
use crate::holdings::HoldingSums;
use crate::view;

const PRUNE_INCOMPLETE: &str = "prune_incomplete";

#[async_trait]
impl Ledger for EmbeddedStore {
    async fn message(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<MessageView>> {
        self.shared.index().end_leases(self.shared.now().0);
        let tenant = tenant.cloned();
        self.shared.read(move |conn, shared| message_view(conn, shared, tenant, id)).await
    }

    async fn content(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<Arc<str>>> {
        let tenant = tenant.cloned();
        self.shared
            .read(move |conn, _| {
                let Some(row) = seen_message(conn, tenant.as_ref(), id)? else { return Ok(None) };
                Ok(row.content.or(lone_body(conn, id, row.deliveries)?).map(Arc::from))
            })
            .await
    }

    async fn delivery(
        &self,
        tenant: Option<&TenantId>,
        id: DeliveryId,
    ) -> StoreResult<Option<Delivery>> {
        self.shared.index().end_leases(self.shared.now().0);
        let tenant = tenant.cloned();
        self.shared
            .read(move |conn, shared| {
                let query = format!("{DELIVERY} WHERE d.seq = ?1");
                let row = [order_key(id.0) as i64];
                let found = first_row(conn, &query, row, |row| delivery_view(row, shared))?;
                let seen = |d: &Delivery| tenant.as_ref().is_none_or(|t| *t == d.tenant);
                Ok(found.filter(|delivery| delivery.id == id && seen(delivery)))
            })
            .await
    }

    async fn deliveries(&self, filter: DeliveryFilter) -> StoreResult<Page<Delivery, DeliveryId>> {
        self.shared.index().end_leases(self.shared.now().0);
        self.shared.read(move |conn, shared| page(conn, shared, &filter, LedgerRows::All)).await
    }

    async fn dead_letters(
        &self,
        filter: DeliveryFilter,
    ) -> StoreResult<Page<Delivery, DeliveryId>> {
        self.shared
            .read(move |conn, shared| page(conn, shared, &filter, LedgerRows::DeadLetters))
            .await
    }

    async fn replay(
        &self,
        tenant: Option<&TenantId>,
        which: Selection,
        how: Replay,
    ) -> StoreResult<u64> {
        let mut replayed = 0;
        let mut chosen = self.choose(tenant, which).await?;
        while let Some(chunk) = chosen.next_chunk().await? {
            let (how, from) = (how.clone(), replayed);
            replayed += self.run_task(move |writer| writer.replay(&chunk, &how, from)).await?;
        }
        Ok(replayed)
    }

    async fn discard(&self, tenant: Option<&TenantId>, which: Selection) -> StoreResult<u64> {
        let mut discarded = 0;
        let mut chosen = self.choose(tenant, which).await?;
        while let Some(chunk) = chosen.next_chunk().await? {
            discarded += self.run_task(move |writer| writer.discard(&chunk)).await?;
        }
        Ok(discarded)
    }

    async fn cancel(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> StoreResult<Option<CancelResult>> {
        self.shared.index().end_leases(self.shared.now().0);
        let tenant = tenant.cloned();
        let read = move |conn: &Connection, _: &_| seen_message(conn, tenant.as_ref(), id);
        let Some(row) = self.shared.read(read).await? else { return Ok(None) };
        let seq = order_key(id.0);
        let shared = (row.deliveries > 1).then(|| row.content.as_ref().map_or(0, String::len));
        let mut sum = CancelResult::default();
        let last = seq + u64::from(row.deliveries);
        let mut from = seq + 1;
        while from <= last {
            let to = last.min(from + CHUNK as u64 - 1);
            let part = self.run_task(move |writer| writer.cancel(seq, from, to, shared)).await?;
            sum.cancelled += part.cancelled;
            sum.in_flight += part.in_flight;
            sum.already_final += part.already_final;
            from = to + 1;
        }
        Ok(Some(sum))
    }

    async fn cancel_deliveries(
        &self,
        tenant: Option<&TenantId>,
        ids: Vec<DeliveryId>,
    ) -> StoreResult<CancelResult> {
        self.shared.index().end_leases(self.shared.now().0);
        let tenant = tenant.cloned();
        let find = move |conn: &Connection, _: &_| pending_of(conn, tenant.as_ref(), &ids);
        let (found, ended) = self.shared.read(find).await?;
        let mut sum = CancelResult { already_final: ended, ..CancelResult::default() };
        for chunk in found.chunks(CHUNK) {
            let chunk = chunk.to_vec();
            let part = self.run_task(move |writer| writer.cancel_each(&chunk)).await?;
            sum.cancelled += part.cancelled;
            sum.in_flight += part.in_flight;
            sum.already_final += part.already_final;
        }
        Ok(sum)
    }

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts> {
        let mut index = self.shared.index();
        index.end_leases(self.shared.now().0);
        let mut counts = Counts::default();
        let ours = index.tenants.iter().filter(|t| tenant.is_none_or(|name| *name == t.name));
        ours.for_each(|tenant| tenant.add_to(&mut counts));
        Ok(counts)
    }

    async fn holdings(&self) -> StoreResult<Vec<TenantHoldings>> {
        let mut sums = HoldingSums::default();
        {
            let mut index = self.shared.index();
            index.end_leases(self.shared.now().0);
            for lane in index.lanes.depths(|lane| index.lane_key(lane)) {
                sums.of(&lane.key.tenant).lanes += 1;
            }
        }
        self.shared.read(move |conn, _| holdings::read(conn, sums)).await
    }

    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>> {
        let mut index = self.shared.index();
        index.end_leases(self.shared.now().0);
        let Some(name) = tenant else {
            let lanes = index.lanes.depths(|lane| index.lane_key(lane));
            return Ok(view::deepest(lanes, None, limit));
        };
        // Others wait for the index, so only the lanes of this tenant are looked at.
        let Some(number) = index.tenants.number(name) else { return Ok(Vec::new()) };
        let own = index.lanes_of(number);
        let lanes = own.filter_map(|(lane, key)| index.lanes.depth(lane, key));
        Ok(view::deepest(lanes, tenant, limit))
    }

    async fn lane_ids(&self, keys: Vec<Arc<LaneKey>>) -> StoreResult<Vec<LaneId>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.run_task(move |writer| {
            writer.transact_surely(|writer| {
                keys.iter().map(|key| writer.lane(key, 0).map(LaneId)).collect()
            })
        })
        .await
    }

    async fn oldest_pending(&self) -> StoreResult<Option<Timestamp>> {
        self.shared.read(oldest_pending).await
    }

    async fn prune(&self, retention: &Retention) -> StoreResult<PruneProgress> {
        let retention = Arc::new(retention.clone());
        let mut errors = Vec::new();
        errors.extend(self.repeat(|writer| writer.prune_keys().map(|()| false)).await?);
        errors.extend(self.repeat(Writer::prune_strikes).await?);
        errors.extend(self.repeat(Writer::prune_deleted_marks).await?);
        errors.extend(self.repeat(Writer::prune_documents).await?);
        let times = retention.clone();
        errors.extend(self.repeat(move |writer| writer.discard_some(&times)).await?);
        let over_by = self.shared.earliest();
        let mut progress = PruneProgress { deleted: 0, has_more: true };
        while progress.has_more && progress.deleted < PRUNE_CALL {
            let step = PruneStep { retention: retention.clone(), over_by };
            let answers = self.writer.write(iter::once(Ok(step)), WriterRequest::Prune).await;
            let (some, more) = answers.into_iter().next().unwrap_or(Err(StoreError::Closed))?;
            progress.deleted += some;
            progress.has_more = more;
        }
        errors.extend(self.repeat(Writer::prune_order).await?);
        errors.extend(self.repeat(Writer::collect_lanes).await?);
        self.report_pruning(&errors);
        Ok(progress)
    }

    fn check_health(&self) -> StoreHealth {
        self.shared.check_health()
    }
}

impl EmbeddedStore {
    /// Deletes of one kind until there is no more. Returns the error if something cannot be read: the other kinds go
    /// on.
    async fn repeat(
        &self,
        step: impl Fn(&mut Writer) -> StoreResult<bool> + Clone + Send + 'static,
    ) -> StoreResult<Option<StoreError>> {
        loop {
            let step = step.clone();
            match self.run_task(move |writer| step(writer)).await {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) if is_local(&error) => return Ok(Some(error)),
                Err(error) => return Err(error),
            }
        }
    }

    fn report_pruning(&self, errors: &[StoreError]) {
        let problems = &self.shared.problems;
        let Some(error) = errors.first() else { return problems.resolve(PRUNE_INCOMPLETE) };
        let what = format!(
            "some of what is over cannot be deleted ({error}); the rest is deleted as usual; {REPAIR}"
        );
        problems.report(PRUNE_INCOMPLETE, self.shared.now(), what);
    }
}

/// A stored delivery with its lease.
pub(super) fn delivery_view(
    row: &rusqlite::Row<'_>,
    shared: &StoreShared,
) -> StoreResult<Delivery> {
    let index = shared.index();
    let lane: u32 = get(row, "lane")?;
    let key = index.lane_key(lane).ok_or_else(|| damaged("a delivery's lane"))?.clone();
    let seq = unsigned(row, "seq")?;
    let leased_until = index.leased_until(seq);
    let ended_at = index.lease_ended_at(seq);
    drop(index);
    let mut delivery = rows::delivery(row, &key)?;
    if delivery.state.is_pending() {
        if let Some(until) = leased_until {
            delivery.state = State::Sending;
            delivery.due_at = Some(Timestamp(until));
        } else if let Some(until) = ended_at {
            delivery.due_at = Some(Timestamp(until));
        }
    }
    Ok(delivery)
}

fn message_view(
    conn: &Connection,
    shared: &StoreShared,
    tenant: Option<TenantId>,
    id: MessageId,
) -> StoreResult<Option<MessageView>> {
    let seq = order_key(id.0);
    let Some(found) = seen_message(conn, tenant.as_ref(), id)? else { return Ok(None) };
    let body = found.content.or(lone_body(conn, id, found.deliveries)?);
    let mut view = view::message(&found.message, body.is_some());
    let select = "SELECT seq, tail, state FROM delivery WHERE seq > ?1 AND seq <= ?2 ORDER BY seq";
    let last = seq + u64::from(found.deliveries);
    all_rows(conn, select, [seq as i64, last as i64], |row| {
        let (id, stored) = (row_id(row)?, rows::state(row)?);
        let leased = stored.is_pending() && shared.index().leased_until(order_key(id)).is_some();
        let state = if leased { State::Sending } else { stored };
        view::add_delivery(&mut view, DeliveryId(id), state);
        Ok(())
    })?;
    Ok(Some(view))
}

/// Pending deliveries of a tenant: message, sequence, and the length of the body that they share with others. And how
/// many of the ids are of deliveries that have ended.
fn pending_of(
    conn: &Connection,
    tenant: Option<&TenantId>,
    ids: &[DeliveryId],
) -> StoreResult<(Vec<PendingDelivery>, u64)> {
    let select = "SELECT d.message, d.due IS NULL AS ended, m.deliveries, \
                  coalesce(length(CAST(m.content AS BLOB)), 0) AS shared FROM delivery d \
                  JOIN message m ON m.seq = d.message WHERE d.seq = ?1 AND (?2 IS NULL OR m.tenant = ?2)";
    let (mut found, mut ended) = (Vec::new(), 0);
    for id in ids {
        let seq = order_key(id.0);
        let values = params![seq as i64, tenant.map(TenantId::as_str)];
        let row = first_row(conn, select, values, |row| {
            let shared: i64 = get(row, "shared")?;
            let shared = (get::<u32>(row, "deliveries")? > 1).then_some(shared as usize);
            Ok((unsigned(row, "message")?, get::<bool>(row, "ended")?, shared))
        })?;
        match row {
            Some((_, true, _)) => ended += 1,
            Some((message, false, shared)) => found.push((message, seq, shared)),
            None => {}
        }
    }
    Ok((found, ended))
}

/// The row of a message, if the tenant may see it.
fn seen_message(
    conn: &Connection,
    tenant: Option<&TenantId>,
    id: MessageId,
) -> StoreResult<Option<MessageRow>> {
    let found = rows::message(conn, order_key(id.0))?;
    let seen = |row: &MessageRow| tenant.is_none_or(|tenant| *tenant == row.message.tenant);
    Ok(found.filter(|row| row.message.id == id && seen(row)))
}

/// The body of a message with a single delivery; the delivery's row has it.
fn lone_body(conn: &Connection, id: MessageId, deliveries: u32) -> StoreResult<Option<String>> {
    if deliveries != 1 {
        return Ok(None);
    }
    let select = "SELECT body FROM delivery WHERE seq = ?1";
    Ok(value(conn, select, [order_key(id.0) as i64 + 1])?.flatten())
}

/// Searches on from the last known oldest: nothing before it is pending.
fn oldest_pending(conn: &Connection, shared: &StoreShared) -> StoreResult<Option<Timestamp>> {
    let known = shared.index().oldest;
    let first = |query: &str| -> StoreResult<Option<u64>> {
        let seq: Option<i64> = value(conn, query, [known.seq as i64])?.flatten();
        Ok(seq.map(|seq| seq as u64))
    };
    // No pending delivery is older, so the age is at most too high.
    let or_known = |found: StoreResult<Option<u64>>| match found {
        Err(error) if is_local(&error) => Ok(Some(known.seq)),
        found => found,
    };
    // Ids grow from commit to commit, so a row that is not visible yet comes after the last visible one.
    let last = or_known(first("SELECT max(seq) FROM delivery WHERE seq >= ?1"))?;
    let found = or_known(first(
        "SELECT seq FROM delivery WHERE seq >= ?1 AND due IS NOT NULL ORDER BY seq LIMIT 1",
    ))?;
    let mut index = shared.index();
    if index.oldest == known {
        index.oldest.seq = found.or(last).unwrap_or(known.seq);
    }
    Ok(found.map(|seq| DeliveryId(from_order_key(seq, 0)).created_at()))
}
