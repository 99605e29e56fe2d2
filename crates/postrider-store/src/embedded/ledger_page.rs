//! Pages of the ledger: which rows a filter leads to, by which index, a bounded number at a time.

use postrider_core::Delivery;
use postrider_core::model::id::order_key_at;
use postrider_core::ports::store::{DeliveryFilter, Page};

use super::sql::prelude::*;
use crate::embedded::ledger::delivery_view;
use crate::embedded::shared::StoreShared;
use crate::embedded::sql::rows::{self, SHOWN_COLUMNS};
use crate::view::{self, SHOWN};

/// Rows that one call reads: a rare match costs several short reads, never one long one.
const READ_MAX: usize = 20_000;

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

pub(super) fn page(
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
