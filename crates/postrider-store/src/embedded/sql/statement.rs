//! Runs statements. Prepares each once per connection, and translates its errors.

use std::sync::Arc;

use postrider_core::ports::store::{StoreError, StoreResult};
use rusqlite::types::FromSql;
use rusqlite::{Connection, ErrorCode, Params, Row, RowIndex, ToSql, ffi};

/// A page could not be read, and SQLite therefore took back the whole transaction. What is written next would be a
/// transaction of its own, so nothing may go on within this one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RolledBack(rusqlite::Error);

/// Translates the errors of a statement. Made before the statement runs.
pub(crate) struct StatementErrors<'a> {
    conn: &'a Connection,
    in_transaction: bool,
}

impl<'a> StatementErrors<'a> {
    pub(crate) fn of(conn: &'a Connection) -> Self {
        Self { conn, in_transaction: !conn.is_autocommit() }
    }

    /// For `map_err`.
    pub(crate) fn translate(&self, error: rusqlite::Error) -> StoreError {
        let is_rolled_back = self.in_transaction && self.conn.is_autocommit();
        if is_rolled_back && error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
            let what = error.to_string();
            return StoreError::Io { what, cause: Some(Arc::new(RolledBack(error))) };
        }
        sql(error)
    }
}

/// Runs a statement that returns no rows. Answers how many rows it changed.
pub(crate) fn run(conn: &Connection, text: &str, values: impl Params) -> StoreResult<usize> {
    let errors = StatementErrors::of(conn);
    let done = conn.prepare_cached(text).and_then(|mut statement| statement.execute(values));
    done.map_err(|error| errors.translate(error))
}

pub(crate) fn all_rows<T>(
    conn: &Connection,
    text: &str,
    values: impl Params,
    mut read: impl FnMut(&Row<'_>) -> StoreResult<T>,
) -> StoreResult<Vec<T>> {
    let errors = StatementErrors::of(conn);
    let mut statement = conn.prepare_cached(text).map_err(sql)?;
    let mut rows = statement.query(values).map_err(sql)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(|error| errors.translate(error))? {
        found.push(read(row)?);
    }
    Ok(found)
}

pub(crate) fn first_row<T>(
    conn: &Connection,
    text: &str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> StoreResult<T>,
) -> StoreResult<Option<T>> {
    let errors = StatementErrors::of(conn);
    let mut statement = conn.prepare_cached(text).map_err(sql)?;
    let mut rows = statement.query(values).map_err(sql)?;
    rows.next().map_err(|error| errors.translate(error))?.map(read).transpose()
}

/// Stores a number or a text under a key of the table `meta`.
pub(crate) fn set_meta(conn: &Connection, key: &str, value: impl ToSql) -> StoreResult<()> {
    run(conn, "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)", (key, value)).map(drop)
}

/// The first column of the first row.
pub(crate) fn value<T: FromSql>(
    conn: &Connection,
    text: &str,
    values: impl Params,
) -> StoreResult<Option<T>> {
    first_row(conn, text, values, |row| get(row, 0))
}

pub(crate) fn get<T: FromSql>(row: &Row<'_>, column: impl RowIndex) -> StoreResult<T> {
    row.get(column).map_err(sql)
}

/// A number that the core has without a sign.
pub(crate) fn unsigned(row: &Row<'_>, column: impl RowIndex) -> StoreResult<u64> {
    get::<i64>(row, column).map(|number| number as u64)
}

/// For `map_err`. The text names the cause, never the content.
pub(crate) fn sql(error: rusqlite::Error) -> StoreError {
    let what = error.to_string();
    // `SHMSIZE`: the index of the journal finds no room either.
    let extended = error.sqlite_error().map(|error| error.extended_code);
    let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull)
        || extended == Some(ffi::SQLITE_IOERR_SHMSIZE);
    match (error.sqlite_error_code(), &error) {
        _ if is_full => StoreError::Full { what, cause: Some(Arc::new(error)) },
        (Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase), _)
        | (
            _,
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..),
        ) => StoreError::Corrupt { what, cause: Some(Arc::new(error)) },
        _ => StoreError::Io { what, cause: Some(Arc::new(error)) },
    }
}

/// Whether an error concerns the rows in question. False if the whole store may be concerned: it has no room,
/// is locked, or cannot be written.
pub(crate) fn is_local(error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt { .. } => return true,
        StoreError::Io { .. } => {}
        _ => return false,
    }
    let Some(cause) = cause_of(error).and_then(rusqlite::Error::sqlite_error) else { return true };
    match cause.code {
        ErrorCode::SystemIoFailure => matches!(
            cause.extended_code,
            ffi::SQLITE_IOERR_READ
                | ffi::SQLITE_IOERR_SHORT_READ
                | ffi::SQLITE_IOERR_CORRUPTFS
                | ffi::SQLITE_IOERR_DATA
        ),
        code => !matches!(
            code,
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::OutOfMemory
                | ErrorCode::ReadOnly
                | ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::OperationInterrupted
                | ErrorCode::FileLockingProtocolFailed
        ),
    }
}

/// Whether a transaction can leave out the rows in question and go on.
pub(crate) fn is_skippable(error: &StoreError) -> bool {
    is_local(error) && !is_rolled_back(error)
}

/// Whether nothing is left of the transaction in which the error was met.
fn is_rolled_back(error: &StoreError) -> bool {
    let StoreError::Io { cause: Some(cause), .. } = error else { return false };
    cause.is::<RolledBack>()
}

fn cause_of(error: &StoreError) -> Option<&rusqlite::Error> {
    let StoreError::Io { cause: Some(cause), .. } = error else { return None };
    let rolled_back = || cause.downcast_ref::<RolledBack>().map(|RolledBack(cause)| cause);
    cause.downcast_ref::<rusqlite::Error>().or_else(rolled_back)
}

/// Whether the system could not bring to the disk what was written.
pub(crate) fn is_sync_failure(error: &StoreError) -> bool {
    let extended = cause_of(error).and_then(rusqlite::Error::sqlite_error);
    let extended = extended.map(|error| error.extended_code);
    matches!(extended, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC))
}

/// For something that was read, but cannot have been written so.
pub(crate) fn damaged(what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { what: what.to_string(), cause: None }
}
