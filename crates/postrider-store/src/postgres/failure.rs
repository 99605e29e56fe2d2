//! Errors of the server and of the way to it, in words that say what to do.

use std::error::Error;
use std::time::Duration;

use postrider_core::ports::store::StoreError;
use tokio_postgres::error::SqlState;

pub(super) type PgResult<T> = Result<T, PgFailure>;

#[derive(Debug)]
pub(super) enum PgFailure {
    /// The server was not reached or refused the connection.
    Connect(String, Option<SqlState>),
    Server(tokio_postgres::Error),
    /// No answer in time.
    Silent(Duration),
    /// A stored value cannot be read.
    Damaged(String),
    /// The answer to a caller.
    Store(StoreError),
}

impl From<tokio_postgres::Error> for PgFailure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Server(error)
    }
}

impl From<StoreError> for PgFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl PgFailure {
    pub(super) fn damaged(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }

    pub(super) fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Connect(_, state) => state.as_ref(),
            Self::Server(error) => error.code(),
            _ => None,
        }
    }

    /// The write did not happen because another one was under way: it can be repeated at once.
    pub(super) fn is_conflict(&self) -> bool {
        let conflicts = [
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::LOCK_NOT_AVAILABLE,
        ];
        self.state().is_some_and(|state| conflicts.contains(state))
    }

    /// The connection is lost or the server restarts. A write may have happened.
    pub(super) fn is_interruption(&self) -> bool {
        let interruptions = [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::QUERY_CANCELED,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ];
        match self.state() {
            Some(state) => interruptions.contains(state),
            None => matches!(self, Self::Connect(..) | Self::Silent(_) | Self::Server(_)),
        }
    }

    /// Settlements raise this on purpose if a row is missing.
    pub(super) fn is_division_by_zero(&self) -> bool {
        self.state() == Some(&SqlState::DIVISION_BY_ZERO)
    }
}

/// What helps, for errors that an operator can do something about.
fn advice(state: &SqlState) -> Option<&'static str> {
    let advice = match *state {
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "check the user and the password of the store's URL, and pg_hba.conf of the server"
        }
        SqlState::INVALID_CATALOG_NAME => "create the database first",
        SqlState::INSUFFICIENT_PRIVILEGE => {
            "grant the user CREATE on the database, or make it the owner of the schema"
        }
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            "the server is read-only, such as a replica; use the primary"
        }
        SqlState::TOO_MANY_CONNECTIONS => "raise max_connections, or lower pool_size of the URL",
        _ => return None,
    };
    Some(advice)
}

impl From<PgFailure> for StoreError {
    fn from(failure: PgFailure) -> Self {
        let helps = failure.state().and_then(advice).map(|text| format!(" ({text})"));
        let helps = helps.unwrap_or_default();
        match failure {
            PgFailure::Connect(what, _) => {
                StoreError::Io { what: format!("PostgreSQL: {what}{helps}"), cause: None }
            }
            PgFailure::Server(error) => server_error(error, &helps),
            PgFailure::Silent(after) => StoreError::Io {
                what: format!("PostgreSQL did not answer within {} s", after.as_secs()),
                cause: None,
            },
            PgFailure::Damaged(what) => StoreError::Corrupt { what, cause: None },
            PgFailure::Store(error) => error,
        }
    }
}

fn server_error(error: tokio_postgres::Error, helps: &str) -> StoreError {
    let what = format!("PostgreSQL: {}{helps}", said(&error));
    let full =
        [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY, SqlState::CONFIGURATION_LIMIT_EXCEEDED];
    match error.code().is_some_and(|code| full.contains(code)) {
        true => StoreError::Full { what, cause: None },
        false => StoreError::Io { what, cause: None },
    }
}

/// The server's own words, without the values of the statement, which may be secret.
pub(super) fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => db.message().to_owned(),
        None => match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}
