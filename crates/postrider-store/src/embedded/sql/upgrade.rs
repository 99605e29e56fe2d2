//! Brings the tables of an older version up to date, forward only, in one transaction: a process that is killed
//! meanwhile leaves everything as it was. Rows are changed in parts, so that the log says how far it is.

use std::time::{Duration, Instant};

use postrider_core::ports::store::StoreError;

use super::old_index;
use super::prelude::*;
use super::schema::{LAYOUT, STEPS, version};

/// Rows that are changed between two looks at the clock.
const PART: i64 = 10_000;
/// The pause between two lines of the log.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// How one layout follows from the one before.
pub(crate) struct LayoutStep {
    pub(crate) before: &'static str,
    pub(crate) rows: &'static [RowChange],
    /// What no statement can do.
    pub(crate) convert: Option<fn(&Connection) -> StoreResult<()>>,
    pub(crate) after: &'static str,
}

/// A statement for the rows of a table whose `seq` is at least `?1` and below `?2`.
pub(crate) struct RowChange {
    pub(crate) table: &'static str,
    pub(crate) change: &'static str,
}

impl LayoutStep {
    /// A step that only makes tables.
    pub(crate) const fn tables(script: &'static str) -> Self {
        Self { before: script, rows: &[], convert: None, after: "" }
    }
}

pub(crate) fn bring_up_to_date(conn: &Connection) -> StoreResult<()> {
    let found = version(conn)?;
    let found =
        u32::try_from(found).map_err(|_| damaged(format!("layout {found} of the tables")))?;
    let Some(missing) = STEPS.get(found as usize..) else {
        return Err(StoreError::NewerLayout { found, known: LAYOUT });
    };
    if missing.is_empty() {
        return Ok(());
    }
    let begin = Instant::now();
    if found > 0 {
        tracing::info!(
            from = found,
            to = LAYOUT,
            "the data folder is of an older version and is upgraded in place; if this is interrupted, nothing is changed"
        );
    }
    if old_index::WITH_INDEX.contains(&found) {
        old_index::mend_if_damaged(conn)?;
    }
    conn.execute_batch("BEGIN IMMEDIATE").map_err(sql)?;
    let done = take_steps(conn, missing);
    if done.is_err() && !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK").map_err(sql)?;
    }
    if found > 0 && done.is_ok() {
        tracing::info!(seconds = begin.elapsed().as_secs(), "the data folder is upgraded");
    }
    done
}

fn take_steps(conn: &Connection, missing: &[LayoutStep]) -> StoreResult<()> {
    for step in missing {
        conn.execute_batch(step.before).map_err(sql)?;
        for (number, change) in step.rows.iter().enumerate() {
            change_rows(conn, change, (number + 1, step.rows.len()))?;
        }
        step.convert.map_or(Ok(()), |convert| convert(conn))?;
        conn.execute_batch(step.after).map_err(sql)?;
    }
    conn.pragma_update(None, "user_version", LAYOUT).map_err(sql)?;
    conn.execute_batch("COMMIT").map_err(sql)
}

/// `part` is the number of this change, and of how many.
fn change_rows(conn: &Connection, change: &RowChange, part: (usize, usize)) -> StoreResult<()> {
    let rows: i64 =
        value(conn, &format!("SELECT count(*) FROM {}", change.table), [])?.unwrap_or(0);
    let next = format!(
        "SELECT max(seq) FROM (SELECT seq FROM {} WHERE seq >= ?1 ORDER BY seq LIMIT {PART})",
        change.table
    );
    let (mut from, mut done, mut reported) = (0, 0, Instant::now());
    while let Some(last) = value::<Option<i64>>(conn, &next, [from])?.flatten() {
        run(conn, change.change, [from, last + 1])?;
        (from, done) = (last + 1, (done + PART).min(rows));
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            tracing::info!(
                percent = done * 100 / rows.max(1),
                rows = done,
                part = part.0,
                parts = part.1,
                table = change.table,
                "upgrading the data folder"
            );
        }
    }
    Ok(())
}
