//! One row of a table of answers: which answers it matches, and what they mean.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::row_toml::AnswerRowToml;
use crate::model::outcome::Scope;
use crate::policy::strikes::StrikeKind;

/// "When this service answers with such a status and code, it means this."
///
/// In a configuration file:
///
/// ```toml
/// [[classify]]
/// service = "webhook"
/// status = 404            # or "500-599"
/// code = "not_yet"        # optional; "not*" by its start, "*yet*" by a part
/// outcome = "retry_backoff"
/// retries = 1             # optional, of a retry: then it counts as refused for good
/// strike = "endpoint"     # optional: held against the address, see [`crate::policy::strikes`]
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "AnswerRowToml", into = "AnswerRowToml")]
pub struct AnswerRow {
    pub service: Cow<'static, str>,
    pub status: StatusRange,
    pub code: CodePattern,
    pub meaning: Meaning,
    /// What the answer is held against the address as.
    pub strike: Option<StrikeKind>,
}

impl AnswerRow {
    /// Whether the row applies to this service: by its own name, or by the name of its family.
    pub(super) fn covers(&self, service: &str) -> bool {
        match service.strip_prefix(self.service.as_ref()) {
            Some(rest) => rest.is_empty() || rest.starts_with('.'),
            None => false,
        }
    }
}

/// Statuses from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    first: u16,
    last: u16,
}

impl StatusRange {
    /// `first` must not be greater than `last`.
    pub const fn new(first: u16, last: u16) -> Self {
        assert!(first <= last);
        Self { first, last }
    }

    pub const fn first(self) -> u16 {
        self.first
    }

    pub const fn last(self) -> u16 {
        self.last
    }

    pub fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }

    pub(super) fn width(self) -> u16 {
        self.last - self.first
    }
}

/// Which codes a row matches, without regard to ASCII case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodePattern {
    /// Any code, or none.
    Any,
    Exact(Cow<'static, str>),
    Prefix(Cow<'static, str>),
    Contains(Cow<'static, str>),
}

impl CodePattern {
    pub fn matches(&self, code: Option<&str>) -> bool {
        let (Some(code), Self::Exact(text) | Self::Prefix(text) | Self::Contains(text)) =
            (code, self)
        else {
            return *self == Self::Any;
        };
        let (code, text) = (code.as_bytes(), text.as_bytes());
        let mut windows = match self {
            Self::Exact(_) if code.len() != text.len() => return false,
            Self::Contains(_) => code.windows(text.len().max(1)),
            _ => code.get(..text.len()).unwrap_or_default().windows(text.len().max(1)),
        };
        text.is_empty() || windows.any(|part| part.eq_ignore_ascii_case(text))
    }

    pub(super) fn precision(&self) -> (u8, usize) {
        match self {
            Self::Any => (0, 0),
            Self::Contains(text) => (1, text.len()),
            Self::Prefix(text) => (2, text.len()),
            Self::Exact(text) => (3, text.len()),
        }
    }
}

/// What a row says about an answer. An outcome follows from it, the answer and the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Accepted,
    /// Try again after the provider's `Retry-After`, else after `default`, else by the class's formula;
    /// in no case before `at_least`. After `retries_max` retries it counts as a refusal for good.
    Retry {
        scope: Scope,
        default: Option<Duration>,
        at_least: Duration,
        retries_max: Option<u32>,
    },
    /// Try again at the next midnight (UTC), and not within the hour.
    Tomorrow {
        scope: Scope,
    },
    Gone,
    DropMessage,
    Config,
    /// The provider may have taken the message and cannot tell.
    Ambiguous,
    /// The provider gave up because the message's time was over.
    Expired,
    ResignOnce,
    /// The provider did not process the request: again at once on another connection.
    Reconnect,
    /// `ResignOnce` if the token was older than five minutes, else `Config`.
    ResignIfStale,
}

impl Meaning {
    /// Try again by `Retry-After`, else by the formula.
    pub const RETRY: Self = Self::Retry {
        scope: Scope::Target,
        default: None,
        at_least: Duration::ZERO,
        retries_max: None,
    };

    /// The name under which rows write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Retry { default: None, .. } => "retry_backoff",
            Self::Retry { default: Some(_), .. } => "retry_after",
            Self::Tomorrow { .. } => "retry_tomorrow",
            Self::Gone => "gone",
            Self::DropMessage => "drop_message",
            Self::Config => "config",
            Self::Ambiguous => "ambiguous",
            Self::Expired => "expired",
            Self::ResignOnce => "resign_once",
            Self::ResignIfStale => "resign_if_stale",
            Self::Reconnect => "reconnect",
        }
    }
}
