//! The ledger: reads the disk on connections of its own, and adds what is in flight from memory.

use std::iter;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_core::model::id::order_key_at;
use postrider_core::ports::store::*;
use postrider_core::{Delivery, LaneId, LaneKey};

use super::sql::prelude::*;
use crate::embedded::EmbeddedStore;
use crate::embedded::operator::CHUNK;
use crate::embedded::requests::WriterRequest;
use crate::embedded::shared::StoreShared;
use crate::embedded::sql::prune::{PRUNE_CALL, PruneStep};
use crate::embedded::sql::rows::{self, DELIVERY, MessageRow, SHOWN_COLUMNS};
use crate::embedded::sql::statement::is_local;
use crate::view::{self, SHOWN};

/// Rows that one call reads: a rare match costs several short reads, never one long one.
const READ_MAX: usize = 20_000;

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

    async fn counts(&self, tenant: Option<&TenantId>) -> StoreResult<Counts> {
        let mut index = self.shared.index();
        index.end_leases(self.shared.now().0);
        let mut counts = Counts::default();
        let ours = index.tenants.iter().filter(|t| tenant.is_none_or(|name| *name == t.name));
        ours.for_each(|tenant| tenant.add_to(&mut counts));
        Ok(counts)
    }

    async fn lanes(&self, tenant: Option<&TenantId>, limit: usize) -> StoreResult<Vec<LaneDepth>> {
        let mut index = self.shared.index();
        index.end_leases(self.shared.now().0);
        let lanes = index.lanes.depths(|lane| index.lane_key(lane));
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

    async fn prune(&self, retention: &Retention) -> StoreResult<u64> {
        self.run_task(|writer| writer.prune_keys()).await?;
        while self.run_task(|writer| writer.prune_strikes()).await? {}
        while self.run_task(|writer| writer.prune_documents()).await? {}
        let retention = Arc::new(retention.clone());
        let mut from = Some(0);
        while let Some(seq) = from {
            let retention = retention.clone();
            from = self.run_task(move |writer| writer.discard_old(&retention, seq)).await?;
        }
        let mut pruned = 0;
        loop {
            let step = PruneStep(retention.clone());
            let answers = self.writer.write(iter::once(Ok(step)), WriterRequest::Prune).await;
            let (some, more) = answers.into_iter().next().unwrap_or(Err(StoreError::Closed))?;
            pruned += some;
            if !more || pruned >= PRUNE_CALL {
                break;
            }
        }
        while self.run_task(|writer| writer.collect_lanes()).await? {}
        Ok(pruned)
    }

    fn check_health(&self) -> StoreHealth {
        self.shared.check_health()
    }
}

/// A stored delivery with its lease.
fn delivery_view(row: &rusqlite::Row<'_>, shared: &StoreShared) -> StoreResult<Delivery> {
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

/// Which rows a page is made of, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LedgerRows {
    All,
    DeadLetters,
    DeadLettersOldestFirst,
}

impl LedgerRows {
    /// Takes the first sequence, the one behind the last, the number of rows, and the values of `found_by`.
    fn query(self, found_by: FoundBy) -> String {
        let order = if self == Self::DeadLettersOldestFirst { "" } else { " DESC" };
        let dead = match (self, found_by) {
            (Self::All, FoundBy::TenantAndTag) => return by_tag(),
            (Self::All, _) => "",
            (_, FoundBy::Recipient) => {
                " AND EXISTS (SELECT 1 FROM dead_letter x WHERE x.seq = d.seq)"
            }
            (_, FoundBy::Order | FoundBy::Tag | FoundBy::TenantAndTag) => {
                let columns = found_by.columns();
                return format!(
                    "{columns} FROM delivery d JOIN message m ON m.seq = d.message \
                     JOIN dead_letter x ON x.seq = d.seq \
                     WHERE x.seq >= ?1 AND x.seq < ?2 ORDER BY x.seq{order} LIMIT ?3"
                );
            }
        };
        let recipient = if found_by == FoundBy::Recipient { " AND d.recipient = ?4" } else { "" };
        let columns = found_by.columns();
        format!(
            "{columns} FROM delivery d JOIN message m ON m.seq = d.message \
             WHERE d.seq >= ?1 AND d.seq < ?2{recipient}{dead} ORDER BY d.seq{order} LIMIT ?3"
        )
    }

    /// What leads to the rows. Dead letters are few, so that their tags are looked up instead.
    fn found_by(self, filter: &DeliveryFilter) -> FoundBy {
        match (&filter.tag, &filter.recipient) {
            (Some(_), _) if self == Self::All && filter.tenant.is_some() => FoundBy::TenantAndTag,
            (Some(_), _) => FoundBy::Tag,
            (None, Some(_)) => FoundBy::Recipient,
            (None, None) => FoundBy::Order,
        }
    }
}

/// Which index leads to rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundBy {
    /// All in their order.
    Order,
    /// Takes the recipient.
    Recipient,
    /// All in their order, each with the answer whether it has the tag. Takes the tag.
    Tag,
    /// Takes the tag, the tenant's number, and the first message that can have a delivery in the range.
    TenantAndTag,
}

impl FoundBy {
    fn columns(self) -> String {
        match self {
            Self::Order | Self::Recipient => SHOWN_COLUMNS.to_owned(),
            Self::Tag | Self::TenantAndTag => format!(
                "{SHOWN_COLUMNS}, EXISTS (SELECT 1 FROM message_tag t \
                 WHERE t.message = d.message AND t.tag = ?4) AS tagged"
            ),
        }
    }
}

fn by_tag() -> String {
    format!(
        "{SHOWN_COLUMNS}, 1 AS tagged FROM message_tag t CROSS JOIN message m ON m.seq = t.message \
         CROSS JOIN delivery d ON d.seq > m.seq AND d.seq <= m.seq + m.deliveries \
         WHERE t.tag = ?4 AND t.tenant = ?5 AND t.message >= ?6 AND t.message < ?2 \
         AND d.seq >= ?1 AND d.seq < ?2 ORDER BY t.message DESC, d.seq DESC LIMIT ?3"
    )
}

fn page(
    conn: &Connection,
    shared: &StoreShared,
    filter: &DeliveryFilter,
    rows: LedgerRows,
) -> StoreResult<Page<Delivery, DeliveryId>> {
    read_page(conn, shared, filter, rows, range(conn, filter)?)
}

/// Reads a bounded number of rows, whether they match or not.
pub(crate) fn read_page(
    conn: &Connection,
    shared: &StoreShared,
    filter: &DeliveryFilter,
    which: LedgerRows,
    (from, before): (u64, u64),
) -> StoreResult<Page<Delivery, DeliveryId>> {
    let limit = if filter.limit == 0 { SHOWN } else { filter.limit };
    let found_by = which.found_by(filter);
    let mut select = conn.prepare_cached(&which.query(found_by)).map_err(sql)?;
    let (first, behind, most) = (from as i64, before as i64, READ_MAX as i64);
    let mut rows = match found_by {
        FoundBy::Order => select.query(params![first, behind, most]),
        FoundBy::Recipient => {
            select.query(params![first, behind, most, filter.recipient.as_deref()])
        }
        FoundBy::Tag => select.query(params![first, behind, most, filter.tag.as_deref()]),
        FoundBy::TenantAndTag => {
            let tenant =
                filter.tenant.as_ref().and_then(|name| shared.index().tenants.number(name));
            let message = first_message(conn, from)?;
            select.query(params![first, behind, most, filter.tag.as_deref(), tenant, message])
        }
    }
    .map_err(sql)?;
    let mut page = Page { items: Vec::new(), next: None };
    let (mut looked_at, mut last) = (0, None);
    while let Some(row) = rows.next().map_err(sql)? {
        if page.items.len() == limit {
            page.next = last;
            return Ok(page);
        }
        looked_at += 1;
        last = Some(DeliveryId(row_id(row)?));
        if !may_match(row, shared, filter)? {
            continue;
        }
        let delivery = delivery_view(row, shared)?;
        if view::matches(filter, &delivery) {
            page.items.push(delivery);
        }
    }
    page.next = last.filter(|_| looked_at == READ_MAX);
    Ok(page)
}

/// The message of the first delivery from a sequence on: none before it has one there.
fn first_message(conn: &Connection, from: u64) -> StoreResult<i64> {
    let select = "SELECT message FROM delivery WHERE seq >= ?1 ORDER BY seq LIMIT 1";
    Ok(value(conn, select, [from as i64])?.unwrap_or(0))
}

/// The range of sequences that can match the filter.
pub(crate) fn range(conn: &Connection, filter: &DeliveryFilter) -> StoreResult<(u64, u64)> {
    let mut from = filter.since.map_or(0, order_key_at);
    let mut before = filter.until.map_or(i64::MAX as u64, order_key_at);
    if let Some(cursor) = filter.cursor {
        before = before.min(order_key(cursor.0));
    }
    if let Some(message) = filter.message {
        let seq = order_key(message.0);
        let deliveries = rows::message(conn, seq)?.map_or(0, |row| row.deliveries);
        from = from.max(seq + 1);
        before = before.min(seq + 1 + u64::from(deliveries));
    }
    Ok((from, before))
}

/// Whether a row can match, judged by its numbers alone. Rules most rows out.
fn may_match(
    row: &rusqlite::Row<'_>,
    shared: &StoreShared,
    filter: &DeliveryFilter,
) -> StoreResult<bool> {
    if filter.tag.is_some() && !get::<bool>(row, "tagged")? {
        return Ok(false);
    }
    let state = rows::state(row)?;
    let state_fits = match filter.state {
        None => true,
        Some(wanted) if state.is_pending() => wanted.is_pending(),
        Some(wanted) => wanted == state,
    };
    let lane: u32 = get(row, "lane")?;
    let index = shared.index();
    let key = index.lane_key(lane).ok_or_else(|| damaged("a delivery's lane"))?;
    Ok(state_fits
        && filter.channel.is_none_or(|channel| channel == key.channel)
        && filter.tenant.as_ref().is_none_or(|tenant| *tenant == key.tenant))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::sql::schema::open_writer;

    const LISTS: [LedgerRows; 3] =
        [LedgerRows::All, LedgerRows::DeadLetters, LedgerRows::DeadLettersOldestFirst];

    /// How a list is read; no row is collected before the first one is returned.
    fn plan(conn: &Connection, list: LedgerRows, found_by: FoundBy) -> Vec<String> {
        let query = format!("EXPLAIN QUERY PLAN {}", list.query(found_by));
        let mut select = conn.prepare(&query).unwrap();
        let values = vec![0_i64; select.parameter_count()];
        let rows = select.query_map(rusqlite::params_from_iter(values), |row| row.get(3)).unwrap();
        let plan: Vec<String> = rows.collect::<Result<_, _>>().unwrap();
        let collects = |step: &String| step.contains("B-TREE") || step.contains("LIST");
        assert!(!plan.iter().any(collects), "{plan:?}");
        plan
    }

    #[test]
    fn a_recipient_is_found_by_an_index_in_every_list() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("test.db"), 256).unwrap();
        for list in LISTS {
            let plan = plan(&conn, list, FoundBy::Recipient);
            assert!(
                plan[0].contains("INDEX delivery_recipient (recipient=? AND rowid"),
                "{plan:?}"
            );
        }
    }

    #[test]
    fn every_list_is_read_in_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("test.db"), 256).unwrap();
        for list in LISTS {
            plan(&conn, list, FoundBy::Order);
            let tagged = plan(&conn, list, FoundBy::Tag);
            assert!(!tagged[0].contains("message_tag"), "{tagged:?}");
        }
    }

    #[test]
    fn a_tag_of_a_tenant_is_found_by_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("test.db"), 256).unwrap();
        let plan = plan(&conn, LedgerRows::All, FoundBy::TenantAndTag);
        let index = "INDEX message_tag_found (tenant=? AND tag=? AND message>? AND message<?)";
        assert!(plan[0].contains(index), "{plan:?}");
    }
}
