//! One row of a classification table, as data and as a user writes it.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
#[serde(try_from = "Written", into = "Written")]
pub struct Row {
    pub service: Cow<'static, str>,
    pub status: Statuses,
    pub code: Code,
    pub verdict: Verdict,
    /// What it blames the address for.
    pub strike: Option<StrikeKind>,
}

impl Row {
    /// Whether the row speaks about this service: its own name, or the name of its family.
    pub(super) fn covers(&self, service: &str) -> bool {
        match service.strip_prefix(self.service.as_ref()) {
            Some(rest) => rest.is_empty() || rest.starts_with('.'),
            None => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statuses {
    first: u16,
    last: u16,
}

impl Statuses {
    pub const fn new(first: u16, last: u16) -> Self {
        Self { first, last }
    }

    pub fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }

    pub(super) fn width(self) -> u16 {
        self.last - self.first
    }
}

/// Compared without regard to ASCII case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    /// With whatever code, or none.
    Any,
    Exact(Cow<'static, str>),
    Prefix(Cow<'static, str>),
    Contains(Cow<'static, str>),
}

impl Code {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// After what the provider's `Retry-After` says, else after `default`, else by the formula; in
    /// no case before `at_least`. After `retries_max` retries it counts as a refusal for good.
    Retry {
        scope: Scope,
        default: Option<Duration>,
        at_least: Duration,
        retries_max: Option<u32>,
    },
    /// At the next midnight (UTC), and not within the hour.
    Tomorrow {
        scope: Scope,
    },
    Gone,
    DropMessage,
    Config,
    /// It may have been taken, the provider cannot say.
    Ambiguous,
    /// The provider gave up because the time was over.
    Expired,
    ResignOnce,
    /// Not processed: again at once on another connection.
    Reconnect,
    /// `ResignOnce` if the token was older than five minutes, else `Config`.
    ResignIfStale,
}

impl Verdict {
    /// By `Retry-After`, else by the formula, and for this address alone.
    pub const fn retry() -> Self {
        Self::not_before(0)
    }

    /// By `Retry-After`, else by the formula, but not sooner than this.
    pub const fn not_before(at_least_s: u64) -> Self {
        let at_least = Duration::from_secs(at_least_s);
        Self::Retry { scope: Scope::Target, default: None, at_least, retries_max: None }
    }

    /// By `Retry-After`, else after `default_s`.
    pub const fn wait(scope: Scope, default_s: u64) -> Self {
        let default = Some(Duration::from_secs(default_s));
        Self::Retry { scope, default, at_least: Duration::ZERO, retries_max: None }
    }

    /// The same with a bound to the retries.
    pub const fn at_most(self, retries: u32) -> Self {
        match self {
            Self::Retry { scope, default, at_least, .. } => {
                Self::Retry { scope, default, at_least, retries_max: Some(retries) }
            }
            other => other,
        }
    }
}

/// Why a row that a user wrote is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error("status: found {0}, allowed is a number 100…599 or a range such as \"500-599\"")]
    Status(String),
    #[error(
        "outcome: found {0:?}, allowed is accepted, retry_backoff, retry_after, retry_tomorrow, gone, \
         drop_message, config, ambiguous, expired, resign_once, resign_if_stale or reconnect"
    )]
    Outcome(String),
    #[error("retries: found {0} beside {1}, allowed with retry_backoff and retry_after")]
    Retries(u32, String),
    #[error("strike: found {0:?}, allowed is {allowed}", allowed = strike_names())]
    Strike(String),
    #[error("service: found nothing, allowed is a name such as webhook, http or webpush.fcm")]
    Service,
}

/// A row in a user's hand.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    service: String,
    status: WrittenStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<Scope>,
    /// The wait where the provider names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_least_s: Option<u64>,
    /// So many retries at the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retries: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    strike: Option<String>,
}

fn strike_names() -> String {
    StrikeKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenStatus {
    One(u16),
    Range(String),
}

impl TryFrom<Written> for Row {
    type Error = RowError;

    fn try_from(row: Written) -> Result<Self, RowError> {
        if row.service.is_empty() {
            return Err(RowError::Service);
        }
        Ok(Self {
            status: row.status.read()?,
            verdict: row.verdict()?,
            strike: row.strike()?,
            code: row.code.map_or(Code::Any, read_code),
            service: row.service.into(),
        })
    }
}

impl WrittenStatus {
    fn read(&self) -> Result<Statuses, RowError> {
        let (first, last, found) = match self {
            Self::One(status) => (Some(*status), Some(*status), status.to_string()),
            Self::Range(text) => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                (first.trim().parse().ok(), last.trim().parse().ok(), format!("{text:?}"))
            }
        };
        match (first, last) {
            (Some(first), Some(last)) if 100 <= first && first <= last && last <= 599 => {
                Ok(Statuses { first, last })
            }
            _ => Err(RowError::Status(found)),
        }
    }
}

impl Written {
    fn verdict(&self) -> Result<Verdict, RowError> {
        let retry = |default: Option<u64>| Verdict::Retry {
            scope: self.scope.unwrap_or(Scope::Target),
            default: default.map(Duration::from_secs),
            at_least: Duration::from_secs(self.at_least_s.unwrap_or(0)),
            retries_max: self.retries,
        };
        let verdict = match self.outcome.as_str() {
            "accepted" => Verdict::Accepted,
            "retry_backoff" => retry(self.default_s),
            "retry_after" => retry(self.default_s.or(Some(60))),
            "retry_tomorrow" => {
                Verdict::Tomorrow { scope: self.scope.unwrap_or(Scope::Credential) }
            }
            "gone" => Verdict::Gone,
            "drop_message" => Verdict::DropMessage,
            "config" => Verdict::Config,
            "ambiguous" => Verdict::Ambiguous,
            "expired" => Verdict::Expired,
            "resign_once" => Verdict::ResignOnce,
            "resign_if_stale" => Verdict::ResignIfStale,
            "reconnect" => Verdict::Reconnect,
            other => return Err(RowError::Outcome(other.to_owned())),
        };
        match (self.retries, verdict) {
            (None, _) | (_, Verdict::Retry { .. }) => Ok(verdict),
            (Some(retries), _) => Err(RowError::Retries(retries, self.outcome.clone())),
        }
    }

    fn strike(&self) -> Result<Option<StrikeKind>, RowError> {
        let Some(name) = &self.strike else { return Ok(None) };
        StrikeKind::parse(name).map(Some).ok_or_else(|| RowError::Strike(name.clone()))
    }
}

fn read_code(text: String) -> Code {
    match text.strip_suffix('*') {
        None => Code::Exact(text.into()),
        Some(start) => match start.strip_prefix('*') {
            None => Code::Prefix(start.to_owned().into()),
            Some(part) => Code::Contains(part.to_owned().into()),
        },
    }
}

impl From<Row> for Written {
    fn from(row: Row) -> Self {
        let nothing = (None, None, Duration::ZERO, None);
        let (outcome, (scope, default, at_least, retries)) = match row.verdict {
            Verdict::Accepted => ("accepted", nothing),
            Verdict::Retry { scope, default, at_least, retries_max } => {
                let name = if default.is_none() { "retry_backoff" } else { "retry_after" };
                (name, (Some(scope), default, at_least, retries_max))
            }
            Verdict::Tomorrow { scope } => {
                ("retry_tomorrow", (Some(scope), None, Duration::ZERO, None))
            }
            Verdict::Gone => ("gone", nothing),
            Verdict::DropMessage => ("drop_message", nothing),
            Verdict::Config => ("config", nothing),
            Verdict::Ambiguous => ("ambiguous", nothing),
            Verdict::Expired => ("expired", nothing),
            Verdict::ResignOnce => ("resign_once", nothing),
            Verdict::ResignIfStale => ("resign_if_stale", nothing),
            Verdict::Reconnect => ("reconnect", nothing),
        };
        Self {
            service: row.service.into_owned(),
            status: if row.status.width() == 0 {
                WrittenStatus::One(row.status.first)
            } else {
                WrittenStatus::Range(format!("{}-{}", row.status.first, row.status.last))
            },
            code: match row.code {
                Code::Any => None,
                Code::Exact(text) => Some(text.into_owned()),
                Code::Prefix(text) => Some(format!("{text}*")),
                Code::Contains(text) => Some(format!("*{text}*")),
            },
            outcome: outcome.to_owned(),
            scope,
            default_s: default.map(|d: Duration| d.as_secs()),
            at_least_s: (!at_least.is_zero()).then_some(at_least.as_secs()),
            retries,
            strike: row.strike.map(|kind| kind.name().to_owned()),
        }
    }
}
