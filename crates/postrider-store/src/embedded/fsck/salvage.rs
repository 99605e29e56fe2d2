//! Copies every row that can be read from one database to another.

use postrider_core::ports::store::StoreResult;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use super::RepairReport;
use crate::embedded::sql::documents_step::tables_set_aside;
use crate::embedded::sql::scan::scan;
use crate::embedded::sql::statement::{all_rows, get, sql};

/// Tables by their integer key.
const BY_NUMBER: &[(&str, &str)] = &[
    ("tenant", "id"),
    ("lane", "id"),
    ("message", "seq"),
    ("delivery", "seq"),
    ("dead_letter", "seq"),
    ("address", "seq"),
    ("mark", "seq"),
    ("dedup_bucket", "id"),
    ("dedup_open_short", "id"),
    ("dedup_open_long", "id"),
    ("dedup_new_short", "id"),
    ("dedup_new_long", "id"),
    ("dedup_run", "id"),
    ("dedup_page", "id"),
    ("dedup_filter", "id"),
    ("audit", "number"),
    ("rollup", "id"),
];
/// Other tables by their key. The lists of expiries, of what waits and of tags, and the order of the ledger are made
/// anew.
const BY_KEY: &[(&str, &str)] = &[
    ("meta", "key"),
    ("gone", "tenant, hash"),
    ("document", "name"),
    ("strike", "tenant, hash, kind"),
    ("entry", "tenant, kind, key"),
];
/// Rows of one transaction.
const CHUNK: usize = 10_000;

pub(super) struct TableCopier<'a> {
    pub(super) old: &'a Connection,
    pub(super) new: &'a Connection,
    pub(super) report: &'a mut RepairReport,
}

impl TableCopier<'_> {
    pub(super) fn copy_all(&mut self) -> StoreResult<()> {
        for (table, key) in BY_NUMBER {
            self.copy_by_number(table, key)?;
        }
        for (table, key) in BY_KEY {
            self.copy_by_key(table, key)?;
        }
        let set_aside = tables_set_aside(self.old)?.into_iter();
        self.report.unreadable.extend(set_aside.map(|table| format!("{table}: some rows")));
        self.copy_buckets()
    }

    fn copy_buckets(&mut self) -> StoreResult<()> {
        let select = "SELECT name, sql FROM sqlite_master WHERE type = 'table' \
                      AND name GLOB 'dedup_bucket_*'";
        let buckets = all_rows(self.old, select, [], |row| {
            Ok((get::<String>(row, 0)?, get::<String>(row, 1)?))
        })?;
        for (table, create) in buckets {
            self.new.execute_batch(&create).map_err(sql)?;
            self.copy_by_key(&table, "key")?;
        }
        Ok(())
    }

    fn copy_by_number(&mut self, table: &str, key: &str) -> StoreResult<()> {
        let columns = self.columns(table)?;
        let select = format!(
            "SELECT {key}, {} FROM {table} WHERE {key} >= ?1 AND {key} < ?2 ORDER BY {key} LIMIT ?3",
            columns.join(", ")
        );
        let (mut from, mut saved) = (0, 0);
        loop {
            let read = |row: &Row<'_>| values(row, 1, columns.len()).map(Some);
            let found = scan(self.old, &select, (from, i64::MAX as u64), CHUNK, read)?;
            saved += found.rows.len() as u64;
            self.insert(table, &columns, &found.rows)?;
            for skipped in found.skipped {
                let (from, to) = (skipped.from, skipped.to);
                self.report.unreadable.push(format!("{table}: {key} {from} to {to}"));
            }
            match found.next {
                Some(next) => from = next,
                None => break,
            }
        }
        self.report.saved.push((table.to_owned(), saved));
        Ok(())
    }

    /// From the first row on, and if a page cannot be read, also from the last one back.
    fn copy_by_key(&mut self, table: &str, key: &str) -> StoreResult<()> {
        let columns = self.columns(table)?;
        let select = format!("SELECT {} FROM {table}", columns.join(", "));
        let mut rows = Vec::new();
        let mut read = |row: &Row<'_>| {
            rows.push(values(row, 0, columns.len())?);
            Ok(())
        };
        if all_rows(self.old, &select, [], &mut read).is_err() {
            let back = format!("{select} ORDER BY {} DESC", key.replace(',', " DESC,"));
            let _ = all_rows(self.old, &back, [], read);
            self.report.unreadable.push(format!("{table}: some rows"));
        }
        self.insert(table, &columns, &rows)?;
        self.report.saved.push((table.to_owned(), rows.len() as u64));
        Ok(())
    }

    fn insert(&self, table: &str, columns: &[String], rows: &[Vec<Value>]) -> StoreResult<()> {
        let marks: Vec<_> = (1..=columns.len()).map(|n| format!("?{n}")).collect();
        let insert = format!(
            "INSERT OR IGNORE INTO {table} ({}) VALUES ({})",
            columns.join(", "),
            marks.join(", ")
        );
        let transaction = self.new.unchecked_transaction().map_err(sql)?;
        {
            let mut insert = transaction.prepare_cached(&insert).map_err(sql)?;
            for row in rows {
                insert.execute(params_from_iter(row)).map_err(sql)?;
            }
        }
        transaction.commit().map_err(sql)
    }

    fn columns(&self, table: &str) -> StoreResult<Vec<String>> {
        let select = format!("SELECT name FROM pragma_table_info('{table}')");
        all_rows(self.new, &select, [], |row| get(row, 0))
    }
}

fn values(row: &Row<'_>, from: usize, count: usize) -> StoreResult<Vec<Value>> {
    (from..from + count).map(|column| get(row, column)).collect()
}
