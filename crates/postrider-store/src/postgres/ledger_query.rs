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
    /// Bounds of ids, which hold for each table: a comparison, and the number of its value.
    bounds: Vec<(&'static str, usize)>,
    /// Conditions on the rows that are looked at.
    conditions: Vec<String>,
    values: Vec<Box<dyn ToSql + Sync + Send>>,
    /// The number of the value that is the tenant, and those of the marks.
    tenant: Option<usize>,
    marks: Vec<usize>,
    /// The rows of the tenant are read in their order.
    by_tenant: bool,
}

impl LedgerQuery {
    pub(super) fn new(filter: &DeliveryFilter, cursor: Option<DeliveryId>) -> Self {
        let mut query = Self::default();
        let at = |at: Timestamp| PgId(from_order_key(order_key_at(at), 0));
        if let Some(cursor) = cursor {
            query.bound("<", PgId(cursor.0));
        }
        if let Some(since) = filter.since {
            query.bound(">=", at(since));
        }
        if let Some(until) = filter.until {
            query.bound("<", at(until));
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
        for mark in filter.marks() {
            query.values.push(Box::new(String::from(mark)));
            query.marks.push(query.values.len());
        }
        if filter.channel.is_some() || filter.provider.is_some() || filter.class.is_some() {
            let channel = filter.channel.map(|channel| channel.name().to_owned());
            query.values.push(Box::new(channel));
            query.values.push(Box::new(filter.provider.as_deref().map(str::to_owned)));
            query.values.push(Box::new(filter.class.as_deref().map(str::to_owned)));
            let n = query.values.len();
            query.conditions.push(format!(
                "lane IN (SELECT l.id FROM lane l WHERE (${}::text IS NULL OR l.channel = ${}) \
                 AND (${}::text IS NULL OR l.provider = ${}) AND (${n}::text IS NULL OR l.class = ${n}))",
                n - 2, n - 2, n - 1, n - 1
            ));
        }
        if let Some(before) = filter.changed_before {
            query.condition("changed < ", before.0);
        }
        query.by_tenant = filter.tenant.is_some() && filter.message.is_none();
        if filter.held {
            query.condition("due >= ", HELD_MS);
        }
        if let Some(state) = filter.state.filter(|state| state.is_final()) {
            query.condition("state = ", i16::from(state.code()));
        }
        query
    }

    pub(super) fn bound(&mut self, comparison: &'static str, value: PgId) {
        self.values.push(Box::new(value));
        self.bounds.push((comparison, self.values.len()));
    }

    /// The bounds of a column, or of its bytes as the indexes by tenant have them.
    fn bounds_of(&self, column: &str, is_bytes: bool) -> String {
        let text = |(comparison, value): &(&str, usize)| match is_bytes {
            true => format!("uuid_send({column}) {comparison} uuid_send(${value}::uuid)"),
            false => format!("{column} {comparison} ${value}"),
        };
        all(&self.bounds.iter().map(text).collect::<Vec<_>>())
    }

    fn condition(&mut self, what: &str, value: impl ToSql + Sync + Send + 'static) {
        self.values.push(Box::new(value));
        self.conditions.push(format!("{what}${}", self.values.len()));
    }

    /// Ranges of ids that can have one within the bounds.
    fn ranges(&self) -> String {
        let text = |(comparison, value): &(&str, usize)| match comparison.starts_with('<') {
            true => format!("first {comparison} ${value}"),
            false => format!("last {comparison} ${value}"),
        };
        all(&self.bounds.iter().map(text).collect::<Vec<_>>())
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
        let mut conditions = self.conditions.clone();
        let by_mark = self.marks.first().filter(|_| !dead).zip(self.tenant);
        for mark in &self.marks {
            conditions.push(format!(
                "EXISTS (SELECT 1 FROM tag t WHERE t.tenant = a.tenant AND t.tag = ${mark} AND t.message = a.message)"
            ));
        }
        let tables = Self::tables(filter, dead).into_iter();
        let (messages, rows) = match by_mark {
            None => {
                let (which, order) = match self.tenant.filter(|_| self.by_tenant) {
                    Some(tenant) => {
                        let bounds = self.bounds_of("id", true);
                        (format!("tenant = ${tenant} AND {bounds}"), "uuid_send(id)")
                    }
                    None => (self.bounds_of("id", false), "id"),
                };
                let tables: Vec<_> = tables.map(|table| read_table(table, &which, order)).collect();
                ("SELECT 1 WHERE false".to_owned(), tables.join(" UNION ALL "))
            }
            Some((mark, tenant)) => {
                let bounds = self.bounds_of("id", false);
                let within =
                    format!("id BETWEEN t.first AND t.last AND message = t.message AND {bounds}");
                let tables: Vec<_> = tables.map(|table| read_table(table, &within, "id")).collect();
                let ranges = self.ranges();
                let messages = format!(
                    "SELECT * FROM tag WHERE tenant = ${tenant} AND tag = ${mark} AND {ranges} \
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

fn all(parts: &[String]) -> String {
    match parts.is_empty() {
        true => "true".to_owned(),
        false => parts.join(" AND "),
    }
}

fn read_table(table: LedgerTable, which: &str, order: &str) -> String {
    let (name, end) = match table {
        LedgerTable::Queue => ("queue", LEASE_END),
        LedgerTable::Dead => ("dead", "NULL::bigint"),
        LedgerTable::Final => ("ledger", "NULL::bigint"),
    };
    format!(
        "(SELECT q.*, {end} AS lease_end FROM {name} q WHERE {which} ORDER BY {order} DESC LIMIT {LOOK_AT})"
    )
}
