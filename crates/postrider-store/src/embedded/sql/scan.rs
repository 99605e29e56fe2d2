//! Reads rows in the order of an integer key, and goes on behind pages that cannot be read.

use postrider_core::ports::store::StoreError;

use super::prelude::*;
use super::statement::{StatementErrors, is_skippable};

/// What a scan read and what it had to leave out.
pub(crate) struct RowScan<T> {
    pub(crate) rows: Vec<T>,
    pub(crate) skipped: Vec<SkippedKeys>,
    /// Where to go on; absent if the end was reached.
    pub(crate) next: Option<u64>,
}

/// Keys whose rows cannot be read: from one up to, but not including, another.
#[derive(Debug)]
pub(crate) struct SkippedKeys {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) error: StoreError,
}

/// Reads at most `limit` rows with keys from `from` to before `to`. `select` takes these three in this order,
/// returns the key as its first column, and is sorted by it. `read` makes nothing of a row by `None`. In a transaction,
/// an unreadable page is an error: SQLite has taken the transaction back.
pub(crate) fn scan<T>(
    conn: &Connection,
    select: &str,
    (from, to): (u64, u64),
    limit: usize,
    mut read: impl FnMut(&Row<'_>) -> StoreResult<Option<T>>,
) -> StoreResult<RowScan<T>> {
    let mut scan = RowScan { rows: Vec::new(), skipped: Vec::new(), next: None };
    let errors = StatementErrors::of(conn);
    let mut statement = conn.prepare_cached(select).map_err(sql)?;
    let (mut at, mut count) = (from, 0);
    'search: while at < to && count < limit {
        let values = params![at as i64, to as i64, (limit - count) as i64];
        let mut rows = statement.query(values).map_err(sql)?;
        loop {
            match rows.next().map_err(|error| errors.translate(error)) {
                Ok(None) if count < limit => return Ok(scan),
                Ok(None) => break 'search,
                Ok(Some(row)) => {
                    let key = unsigned(row, 0)?;
                    if key < at {
                        // Damage can lead back. Without this, the scan would not end.
                        count += 1;
                        continue;
                    }
                    match read(row) {
                        Ok(found) => scan.rows.extend(found),
                        Err(error) if is_skippable(&error) => {
                            scan.skipped.push(SkippedKeys { from: key, to: key + 1, error });
                        }
                        Err(error) => return Err(error),
                    }
                    (at, count) = (key + 1, count + 1);
                }
                Err(error) if is_skippable(&error) => {
                    drop(rows);
                    let is_readable = |key: u64| {
                        let found = statement.query(params![key as i64, to as i64, 1]);
                        found.and_then(|mut rows| rows.next().map(drop)).is_ok()
                    };
                    let next = next_readable(at, to, is_readable);
                    scan.skipped.push(SkippedKeys { from: at, to: next, error });
                    at = next;
                    continue 'search;
                }
                Err(error) => return Err(error),
            }
        }
    }
    scan.next = (at < to).then_some(at);
    Ok(scan)
}

/// The first key above `bad` that can be read, or `end`. Takes some hundred reads at most.
pub(crate) fn next_readable(bad: u64, end: u64, mut is_readable: impl FnMut(u64) -> bool) -> u64 {
    let (mut bad, mut step) = (bad, 1);
    let mut good = loop {
        let key = bad.saturating_add(step);
        if key >= end {
            break end;
        }
        if is_readable(key) {
            break key;
        }
        (bad, step) = (key, step.saturating_mul(2));
    };
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if is_readable(middle) {
            good = middle;
        } else {
            bad = middle;
        }
    }
    good
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_right_behind_what_cannot_be_read() {
        for (bad, end) in [(10..11, 12), (10..500_000, 1 << 40), (10..1 << 39, 1 << 40)] {
            let found = next_readable(10, end, |key| !bad.contains(&key));
            assert_eq!(found, bad.end);
        }
        assert_eq!(next_readable(10, 1 << 60, |_| false), 1 << 60);
    }

    #[test]
    fn a_row_that_makes_no_sense_is_left_out() {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(
            "CREATE TABLE t (k INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 7), (2, 'x'), (3, 9)",
        )
        .unwrap();
        let select = "SELECT k, v FROM t WHERE k >= ?1 AND k < ?2 ORDER BY k LIMIT ?3";
        let read = |row: &Row<'_>| get::<i64>(row, 1).map(Some);
        let all = scan(&conn, select, (0, 100), 10, read).unwrap();
        assert_eq!((all.rows, all.next), (vec![7, 9], None));
        assert_eq!((all.skipped[0].from, all.skipped[0].to), (2, 3));
        let some = scan(&conn, select, (0, 100), 2, read).unwrap();
        assert_eq!((some.rows, some.next), (vec![7], Some(3)));
    }
}
