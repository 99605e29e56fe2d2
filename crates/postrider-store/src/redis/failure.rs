//! Errors of the server and of the way to it, in words that say what to do.

use std::time::Duration;

use postrider_core::ports::store::StoreError;
use redis::RedisError;

pub(super) type RedisResult<T> = Result<T, RedisFailure>;

#[derive(Debug)]
pub(super) enum RedisFailure {
    /// The server was not reached or refused the connection.
    Connect(String, Option<String>),
    Server(RedisError),
    /// No answer in time.
    Silent(Duration),
    /// Others changed the same thing again and again.
    Busy,
    /// A stored value cannot be read.
    Damaged(String),
    /// The answer to a caller.
    Store(StoreError),
}

impl From<RedisError> for RedisFailure {
    fn from(error: RedisError) -> Self {
        Self::Server(error)
    }
}

impl From<StoreError> for RedisFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The server is there, but cannot serve this at the moment.
const PASSING: [&str; 8] =
    ["TRYAGAIN", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "READONLY", "MOVED", "ASK", "NOREPLICAS"];

impl RedisFailure {
    pub(super) fn damaged(what: &str) -> Self {
        Self::Damaged(what.to_owned())
    }

    fn code(&self) -> Option<&str> {
        match self {
            Self::Connect(_, code) => code.as_deref(),
            Self::Server(error) => error.code(),
            _ => None,
        }
    }

    /// The connection is lost, or the server restarts or moves. A write may have happened.
    pub(super) fn is_interruption(&self) -> bool {
        match self {
            Self::Silent(_) | Self::Busy => true,
            Self::Connect(_, code) => code.is_none(),
            Self::Server(error) => error.code().map_or_else(
                || {
                    error.is_io_error()
                        || error.is_cluster_error()
                        || error.is_unrecoverable_error()
                },
                |code| PASSING.contains(&code),
            ),
            Self::Damaged(_) | Self::Store(_) => false,
        }
    }

    /// The connection is of no use any more.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Silent(_) => true,
            Self::Server(error) => {
                error.is_unrecoverable_error() || error.code() == Some("READONLY")
            }
            _ => false,
        }
    }

    pub(super) fn is_no_script(&self) -> bool {
        self.code() == Some("NOSCRIPT")
    }

    pub(super) fn is_unknown_command(&self) -> bool {
        matches!(self, Self::Server(error) if said(error).contains("unknown command"))
    }
}

/// What helps, for errors that an operator can do something about.
fn advice(code: &str) -> Option<&'static str> {
    Some(match code {
        "WRONGPASS" | "NOAUTH" => "check the user of the store's URL, and store.password",
        "NOPERM" => {
            "give the user the keys of the prefix and the commands: ACL SETUSER <user> ~<prefix>:* &<prefix>:* \
             +@all -@dangerous +info +config|get"
        }
        "READONLY" => "the server is a replica; use the master, Sentinel or a cluster",
        "OOM" => "raise maxmemory of the server",
        "MISCONF" => "the server cannot write to its disk; see its log",
        _ => return None,
    })
}

impl From<RedisFailure> for StoreError {
    fn from(failure: RedisFailure) -> Self {
        let helps = failure.code().and_then(advice).map(|text| format!(" ({text})"));
        let helps = helps.unwrap_or_default();
        match failure {
            RedisFailure::Connect(what, _) => {
                StoreError::Io { what: format!("Redis: {what}{helps}"), cause: None }
            }
            RedisFailure::Server(error) => server_error(&error, &helps),
            RedisFailure::Silent(after) => StoreError::Io {
                what: format!("Redis did not answer within {} s", after.as_secs()),
                cause: None,
            },
            RedisFailure::Busy => StoreError::Io {
                what: "Redis: others change the same deliveries at this moment; try again"
                    .to_owned(),
                cause: None,
            },
            RedisFailure::Damaged(what) => StoreError::Corrupt { what, cause: None },
            RedisFailure::Store(error) => error,
        }
    }
}

fn server_error(error: &RedisError, helps: &str) -> StoreError {
    let what = format!("Redis: {}{helps}", said(error));
    match error.code() {
        Some("OOM" | "MISCONF") => StoreError::Full { what, cause: None },
        _ => StoreError::Io { what, cause: None },
    }
}

/// The server's own words. Scripts get their values as arguments, so that no error repeats them.
pub(super) fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}
