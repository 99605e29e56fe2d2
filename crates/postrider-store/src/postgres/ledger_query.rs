//! The statement that lists deliveries by a filter.

use postrider_core::model::id::{from_order_key, order_key_at};
use postrider_core::ports::store::DeliveryFilter;
use postrider_core::{DeliveryId, State, Timestamp};
use tokio_postgres::types::ToSql;

use super::ledger::LOOK_AT;
use super::value::PgId;
use crate::progress::HELD_MS;

/// The end of the last lease of a row `q`, which may be over.
const LEASE_END: &str = "(SELECT l.until FROM lease l WHERE l.shard = q.shard AND l.batch > q.free_batch \
    AND q.id = ANY(l.ids) ORDER BY l.batch DESC LIMIT 1)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LedgerTable {
    Queue,
    Dead,
    Final,
}

/// A select over the tables that can have a match.
#[derive(Default)]
pub(super) struct LedgerQuery {
    /// Bounds of ids, which hold for each table.
    bounds: Vec<String>,
    /// Conditions on the rows that are looked at.
    conditions: Vec<String>,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
    /// The numbers of the values that are the tenant and the tag.
    tenant: Option<usize>,
    tag: Option<usize>,
}

impl LedgerQuery {
    pub(super) fn new(filter: &DeliveryFilter, cursor: Option<DeliveryId>) -> Self {
        let mut query = Self::default();
        let at = |at: Timestamp| PgId(from_order_key(order_key_at(at), 0));
        if let Some(cursor) = cursor {
            query.bound("id < ", PgId(cursor.0));
        }
        if let Some(since) = filter.since {
            query.bound("id >= ", at(since));
        }
        if let Some(until) = filter.until {
            query.bound("id < ", at(until));
        }
        if let Some(tenant) = &filter.tenant {
            query.condition("tenant = ", tenant.as_str().to_owned());
            query.tenant = Some(query.values.len());
        }
        if let Some(recipient) = &filter.recipient {
            query.condition("recipient = ", recipient.to_string());
        }
        if let Some(message) = filter.message {
            query.condition("message = ", PgId(message.0));
        }
        if let Some(reason) = filter.reason {
            query.condition("reason = ", i16::from(reason.code()));
        }
        if let Some(tag) = &filter.tag {
            query.values.push(Box::new(tag.to_string()));
            query.tag = Some(query.values.len());
        }
        if filter.held {
            query.condition("due >= ", HELD_MS);
        }
        if let Some(state) = filter.state.filter(|state| state.is_final()) {
            query.condition("state = ", i16::from(state.code()));
        }
        query
    }

    pub(super) fn bound(&mut self, what: &str, value: PgId) {
        self.values.push(Box::new(value));
        self.bounds.push(format!("{what}${}", self.values.len()));
    }

    fn condition(&mut self, what: &str, value: impl ToSql + Sync + Send + 'static) {
        self.values.push(Box::new(value));
        self.conditions.push(format!("{what}${}", self.values.len()));
    }

    pub(super) fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect()
    }

    fn tables(filter: &DeliveryFilter, dead: bool) -> Vec<LedgerTable> {
        use LedgerTable::*;
        match filter.state {
            _ if dead => vec![Dead],
            _ if filter.held => vec![Queue],
            Some(State::Failed) => vec![Dead, Final],
            Some(state) if state.is_pending() => vec![Queue],
            Some(_) => vec![Final],
            None if filter.reason.is_some() => vec![Dead, Final],
            None => vec![Queue, Dead, Final],
        }
    }

    pub(super) fn sql(&self, filter: &DeliveryFilter, dead: bool, limit: usize) -> String {
        let all = |parts: &[String]| match parts.is_empty() {
            true => "true".to_owned(),
            false => parts.join(" AND "),
        };
        let mut conditions = self.conditions.clone();
        let by_tag = self.tag.filter(|_| !dead).zip(self.tenant);
        if let Some(tag) = self.tag {
            conditions.push(format!(
                "EXISTS (SELECT 1 FROM tag t WHERE t.tenant = a.tenant AND t.tag = ${tag} AND t.message = a.message)"
            ));
        }
        let bounds = all(&self.bounds);
        let tables = Self::tables(filter, dead).into_iter();
        let (messages, rows) = match by_tag {
            None => {
                let tables: Vec<_> = tables.map(|table| read_table(table, &bounds)).collect();
                ("SELECT 1 WHERE false".to_owned(), tables.join(" UNION ALL "))
            }
            Some((tag, tenant)) => {
                let within =
                    format!("id BETWEEN t.first AND t.last AND message = t.message AND {bounds}");
                let tables: Vec<_> = tables.map(|table| read_table(table, &within)).collect();
                let ranges = bounds.replace("id <", "first <").replace("id >=", "last >=");
                let messages = format!(
                    "SELECT * FROM tag WHERE tenant = ${tenant} AND tag = ${tag} AND {ranges} \
                     ORDER BY message DESC LIMIT {LOOK_AT}"
                );
                let tables = tables.join(" UNION ALL ");
                (messages, format!("SELECT r.* FROM n AS t CROSS JOIN LATERAL ({tables}) AS r"))
            }
        };
        format!(
            "WITH n AS MATERIALIZED ({messages}), \
             a AS MATERIALIZED (SELECT * FROM ({rows}) AS t ORDER BY id DESC LIMIT {LOOK_AT}) \
             SELECT w.*, m.* FROM (SELECT greatest((SELECT count(*) FROM a), (SELECT count(*) FROM n)) AS looked_at, \
             (SELECT id FROM a ORDER BY id LIMIT 1) AS last_id) AS w \
             LEFT JOIN (SELECT * FROM a WHERE {} ORDER BY id DESC LIMIT {limit}) AS m ON true \
             ORDER BY m.id DESC",
            all(&conditions),
        )
    }
}

fn read_table(table: LedgerTable, which: &str) -> String {
    let (name, end) = match table {
        LedgerTable::Queue => ("queue", LEASE_END),
        LedgerTable::Dead => ("dead", "NULL::bigint"),
        LedgerTable::Final => ("ledger", "NULL::bigint"),
    };
    format!(
        "(SELECT q.*, {end} AS lease_end FROM {name} q WHERE {which} ORDER BY id DESC LIMIT {LOOK_AT})"
    )
}
