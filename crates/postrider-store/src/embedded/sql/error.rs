//! Translates errors of SQLite into the store's errors.

use std::sync::Arc;

use postrider_core::ports::store::StoreError;
use rusqlite::{ErrorCode, ffi};

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

/// For something that was read, but cannot have been written so.
pub(crate) fn damaged(what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { what: what.to_string(), cause: None }
}
