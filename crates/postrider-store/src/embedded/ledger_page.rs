//! Pages of the ledger: which rows a filter leads to, by which index, a bounded number at a time.

use std::ops::ControlFlow;

use postrider_core::Delivery;
use postrider_core::model::id::order_key_at;
use postrider_core::ports::store::{DeliveryFilter, Page};

use super::sql::prelude::*;
use crate::embedded::ledger::delivery_view;
use crate::embedded::ledger_candidates::{SearchEnd, is_by_lane, visit_dead, visit_newest};
use crate::embedded::shared::StoreShared;
use crate::embedded::sql::rows::{self, DELIVERY, ONE_DELIVERY, SHOWN_COLUMNS};
use crate::embedded::sql::tags::has_marks;
use crate::view::{self, SHOWN};

/// Rows that one call reads: a rare match costs several short reads, never one long one.
const READ_MAX: usize = 8_000;

/// Which rows a page is made of, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LedgerRows {
    All,
    DeadLetters,
    DeadLettersOldestFirst,
}

/// What leads to rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FoundBy {
    /// All in their order.
    Order,
    /// Takes the recipient.
    Recipient,
    /// Takes the mark, the tenant's number, and the first message that can have a delivery in the range.
    TenantAndMark,
    /// The order of the ledger by tenant and lane.
    Lanes,
    /// The list of dead letters.
    DeadLetters,
}

impl LedgerRows {
    fn found_by(self, filter: &DeliveryFilter) -> FoundBy {
        let has_mark = filter.tag.is_some() || filter.campaign.is_some();
        match self {
            Self::All if has_mark && filter.tenant.is_some() => FoundBy::TenantAndMark,
            _ if filter.recipient.is_some() => FoundBy::Recipient,
            Self::All if filter.message.is_none() && is_by_lane(filter) => FoundBy::Lanes,
            Self::All => FoundBy::Order,
            _ => FoundBy::DeadLetters,
        }
    }

    /// Takes the first sequence, the one behind the last, the number of rows, and the values of `found_by`.
    fn query(self, found_by: FoundBy) -> String {
        let order = if self == Self::DeadLettersOldestFirst { "" } else { " DESC" };
        let dead = match self {
            Self::All => "",
            _ => " AND EXISTS (SELECT 1 FROM dead_letter x WHERE x.seq = d.seq)",
        };
        let recipient = match found_by {
            FoundBy::TenantAndMark => return by_mark(),
            FoundBy::Recipient => " AND d.recipient = ?4",
            _ => "",
        };
        format!(
            "{DELIVERY} WHERE d.seq >= ?1 AND d.seq < ?2{recipient}{dead} ORDER BY d.seq{order} LIMIT ?3"
        )
    }
}

fn by_mark() -> String {
    format!(
        "{SHOWN_COLUMNS} FROM message_tag t CROSS JOIN message m ON m.seq = t.message \
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
    range: (u64, u64),
) -> StoreResult<Page<Delivery, DeliveryId>> {
    let mut reader = PageReader::new(conn, shared, filter);
    let found_by = which.found_by(filter);
    let end = match found_by {
        FoundBy::Lanes => visit_newest(conn, shared, filter, range, |seq| reader.look_up(seq))?,
        FoundBy::DeadLetters => {
            let oldest_first = which == LedgerRows::DeadLettersOldestFirst;
            visit_dead(conn, shared, filter, range, oldest_first, |seq| reader.look_up(seq))?
        }
        _ => reader.read_rows(which, found_by, range)?,
    };
    match end {
        SearchEnd::Unusable => {
            let mut reader = PageReader::new(conn, shared, filter);
            let end = reader.read_rows(which, FoundBy::Order, range)?;
            Ok(reader.page(end, which))
        }
        end => Ok(reader.page(end, which)),
    }
}

/// Makes a page of the rows that it is given.
struct PageReader<'a> {
    conn: &'a Connection,
    shared: &'a StoreShared,
    filter: &'a DeliveryFilter,
    marks: Vec<Box<str>>,
    limit: usize,
    items: Vec<Delivery>,
    read: usize,
    last: Option<DeliveryId>,
}

impl<'a> PageReader<'a> {
    fn new(conn: &'a Connection, shared: &'a StoreShared, filter: &'a DeliveryFilter) -> Self {
        let limit = if filter.limit == 0 { SHOWN } else { filter.limit };
        let (marks, items) = (filter.marks(), Vec::new());
        Self { conn, shared, filter, marks, limit, items, read: 0, last: None }
    }

    /// Looks at the next delivery. One that was deleted meanwhile is passed over.
    fn look_up(&mut self, seq: u64) -> StoreResult<ControlFlow<()>> {
        let mut select = self.conn.prepare_cached(ONE_DELIVERY).map_err(sql)?;
        let mut rows = select.query([seq as i64]).map_err(sql)?;
        match rows.next().map_err(sql)? {
            Some(row) => self.look_at(row),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    fn look_at(&mut self, row: &Row<'_>) -> StoreResult<ControlFlow<()>> {
        if self.items.len() == self.limit || self.read == READ_MAX {
            return Ok(ControlFlow::Break(()));
        }
        self.read += 1;
        self.last = Some(DeliveryId(row_id(row)?));
        if !may_match(row, self.shared, self.filter)? {
            return Ok(ControlFlow::Continue(()));
        }
        let delivery = delivery_view(row, self.shared)?;
        if view::matches(self.filter, &delivery)
            && has_marks(self.conn, order_key(delivery.message.0), &self.marks)?
        {
            self.items.push(delivery);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn read_rows(
        &mut self,
        which: LedgerRows,
        found_by: FoundBy,
        (from, before): (u64, u64),
    ) -> StoreResult<SearchEnd> {
        let mut select = self.conn.prepare_cached(&which.query(found_by)).map_err(sql)?;
        let (first, behind, most) = (from as i64, before as i64, READ_MAX as i64 + 1);
        let mut rows = match found_by {
            FoundBy::Recipient => {
                select.query(params![first, behind, most, self.filter.recipient.as_deref()])
            }
            FoundBy::TenantAndMark => {
                let tenant = self.filter.tenant.as_ref();
                let tenant = tenant.and_then(|name| self.shared.index().tenants.number(name));
                let message = first_message(self.conn, from)?;
                select.query(params![first, behind, most, self.marks.first(), tenant, message])
            }
            _ => select.query(params![first, behind, most]),
        }
        .map_err(sql)?;
        while let Some(row) = rows.next().map_err(sql)? {
            if self.look_at(row)?.is_break() {
                return Ok(SearchEnd::Stopped);
            }
        }
        Ok(SearchEnd::Complete)
    }

    fn page(self, end: SearchEnd, which: LedgerRows) -> Page<Delivery, DeliveryId> {
        let next = match end {
            SearchEnd::Stopped => self.last,
            // The next page of dead letters, oldest first, begins behind this one.
            SearchEnd::At(seq) if which == LedgerRows::DeadLettersOldestFirst => {
                Some(DeliveryId(from_order_key(seq.saturating_sub(1), 0)))
            }
            SearchEnd::At(seq) => Some(DeliveryId(from_order_key(seq, 0))),
            SearchEnd::Complete | SearchEnd::Unusable => None,
        };
        Page { items: self.items, next }
    }
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
    let state = rows::state(row)?;
    let state_fits = match filter.state {
        None => true,
        Some(wanted) if state.is_pending() => wanted.is_pending(),
        Some(wanted) => wanted == state,
    };
    let lane: u32 = get(row, "lane")?;
    let index = shared.index();
    let key = index.lane_key(lane).ok_or_else(|| damaged("a delivery's lane"))?;
    Ok(state_fits && filter.fits_lane(key))
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
        }
    }

    #[test]
    fn a_mark_of_a_tenant_is_found_by_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("test.db"), 256).unwrap();
        let plan = plan(&conn, LedgerRows::All, FoundBy::TenantAndMark);
        let index = "INDEX message_tag_found (tenant=? AND tag=? AND message>? AND message<?)";
        assert!(plan[0].contains(index), "{plan:?}");
    }
}
