//! The written form of a row, in a user's `[[classify]]` and in the sheets of the built-in rows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::row::{AnswerRow, CodePattern, Meaning, StatusRange};
use crate::model::outcome::Scope;
use crate::policy::strikes::StrikeKind;

/// What is wrong with a written row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerRowError {
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
    #[error("service: found nothing, allowed is a name such as webhook, http or chat")]
    Service,
}

fn strike_names() -> String {
    StrikeKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRowToml {
    pub service: String,
    pub status: StatusToml,
    /// Ends with `*` if it is a prefix; begins with another `*` if it may stand anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub outcome: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// The wait if the provider names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least_s: Option<u64>,
    /// At most so many retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strike: Option<String>,
}

/// A status, or a range of them (`"500-599"`).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StatusToml {
    One(u16),
    Range(String),
}

impl TryFrom<AnswerRowToml> for AnswerRow {
    type Error = AnswerRowError;

    fn try_from(row: AnswerRowToml) -> Result<Self, AnswerRowError> {
        if row.service.is_empty() {
            return Err(AnswerRowError::Service);
        }
        Ok(Self {
            status: row.status.parse()?,
            meaning: row.meaning()?,
            strike: row.strike()?,
            code: row.code.map_or(CodePattern::Any, parse_code),
            service: row.service.into(),
        })
    }
}

impl StatusToml {
    fn parse(&self) -> Result<StatusRange, AnswerRowError> {
        let (first, last, found) = match self {
            Self::One(status) => (Some(*status), Some(*status), status.to_string()),
            Self::Range(text) => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                (first.trim().parse().ok(), last.trim().parse().ok(), format!("{text:?}"))
            }
        };
        match (first, last) {
            (Some(first), Some(last)) if 100 <= first && first <= last && last <= 599 => {
                Ok(StatusRange::new(first, last))
            }
            _ => Err(AnswerRowError::Status(found)),
        }
    }
}

impl AnswerRowToml {
    fn meaning(&self) -> Result<Meaning, AnswerRowError> {
        let retry = |default: Option<u64>| Meaning::Retry {
            scope: self.scope.unwrap_or(Scope::Target),
            default: default.map(Duration::from_secs),
            at_least: Duration::from_secs(self.at_least_s.unwrap_or(0)),
            retries_max: self.retries,
        };
        let meaning = match self.outcome.as_str() {
            "accepted" => Meaning::Accepted,
            "retry_backoff" => retry(self.default_s),
            "retry_after" => retry(self.default_s.or(Some(60))),
            "retry_tomorrow" => {
                Meaning::Tomorrow { scope: self.scope.unwrap_or(Scope::Credential) }
            }
            "gone" => Meaning::Gone,
            "drop_message" => Meaning::DropMessage,
            "config" => Meaning::Config,
            "ambiguous" => Meaning::Ambiguous,
            "expired" => Meaning::Expired,
            "resign_once" => Meaning::ResignOnce,
            "resign_if_stale" => Meaning::ResignIfStale,
            "reconnect" => Meaning::Reconnect,
            other => return Err(AnswerRowError::Outcome(other.to_owned())),
        };
        match (self.retries, meaning) {
            (None, _) | (_, Meaning::Retry { .. }) => Ok(meaning),
            (Some(retries), _) => Err(AnswerRowError::Retries(retries, self.outcome.clone())),
        }
    }

    fn strike(&self) -> Result<Option<StrikeKind>, AnswerRowError> {
        let Some(name) = &self.strike else { return Ok(None) };
        StrikeKind::parse(name).map(Some).ok_or_else(|| AnswerRowError::Strike(name.clone()))
    }
}

fn parse_code(text: String) -> CodePattern {
    match text.strip_suffix('*') {
        None => CodePattern::Exact(text.into()),
        Some(start) => match start.strip_prefix('*') {
            None => CodePattern::Prefix(start.to_owned().into()),
            Some(part) => CodePattern::Contains(part.to_owned().into()),
        },
    }
}

impl From<AnswerRow> for AnswerRowToml {
    fn from(row: AnswerRow) -> Self {
        let (scope, default, at_least, retries) = match row.meaning {
            Meaning::Retry { scope, default, at_least, retries_max } => {
                (Some(scope), default, at_least, retries_max)
            }
            Meaning::Tomorrow { scope } => (Some(scope), None, Duration::ZERO, None),
            _ => (None, None, Duration::ZERO, None),
        };
        Self {
            service: row.service.into_owned(),
            status: match (row.status.first(), row.status.last()) {
                (first, last) if first == last => StatusToml::One(first),
                (first, last) => StatusToml::Range(format!("{first}-{last}")),
            },
            code: match row.code {
                CodePattern::Any => None,
                CodePattern::Exact(text) => Some(text.into_owned()),
                CodePattern::Prefix(text) => Some(format!("{text}*")),
                CodePattern::Contains(text) => Some(format!("*{text}*")),
            },
            outcome: row.meaning.name().to_owned(),
            scope,
            default_s: default.map(|wait| wait.as_secs()),
            at_least_s: (!at_least.is_zero()).then_some(at_least.as_secs()),
            retries,
            strike: row.strike.map(|kind| kind.name().to_owned()),
        }
    }
}
