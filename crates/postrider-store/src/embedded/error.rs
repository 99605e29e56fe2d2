//! What an error of SQLite means to whoever uses the store.

use postrider_core::ports::store::StoreError;
use rusqlite::{ErrorCode, ffi};

/// For `map_err`: names the cause, never the content.
#[expect(clippy::needless_pass_by_value, reason = "shaped for map_err")]
pub(super) fn sql(error: rusqlite::Error) -> StoreError {
    let text = error.to_string();
    match error.sqlite_error_code() {
        // Also where the index of the journal finds no room.
        _ if extended(&error) == Some(ffi::SQLITE_IOERR_SHMSIZE) => StoreError::Full(text),
        Some(ErrorCode::DiskFull) => StoreError::Full(text),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt(text),
        _ => match error {
            rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..) => StoreError::Corrupt(text),
            _ => StoreError::Io(text),
        },
    }
}

fn extended(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

/// For what was read but cannot be what was written.
pub(super) fn damaged(what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt(what.to_string())
}
