//! Looks up what a provider's answer means in a table of rows. Knows no provider: the rows come from the channels
//! and from the user. What a failed connection means is decided by the channel, what follows from an outcome by
//! [`crate::policy::decide`].

mod row;
mod row_toml;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::outcome::{AnswerTerms, Outcome, Scope};
use crate::model::time::Timestamp;
use crate::policy::retry_after;

pub use row::{AnswerRow, CodePattern, Meaning, StatusRange};
pub use row_toml::{AnswerRowError, AnswerRowToml, StatusToml};

/// A token older than this may have become stale; a younger one was refused for another reason.
pub const FRESH_TOKEN: Duration = Duration::from_secs(300);

/// The shortest wait after a `Retry-After`, also if that says "at once".
pub const SHORTEST_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The shortest wait for the next day.
const TOMORROW_WAIT_MIN: Duration = Duration::from_secs(3600);

/// The longest waits that a `Retry-After` can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryAfterMax {
    /// For one address.
    pub address: Duration,
    /// For a provider, or for one credential there.
    pub provider: Duration,
}

impl Default for RetryAfterMax {
    fn default() -> Self {
        Self { address: Duration::from_secs(3600), provider: Duration::from_secs(900) }
    }
}

impl RetryAfterMax {
    pub fn of(self, scope: Scope) -> Duration {
        match scope {
            Scope::Target => self.address,
            Scope::Credential | Scope::Host => self.provider,
        }
    }
}

/// One answer of one provider.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProviderAnswer<'a> {
    /// The provider, or a stage of the conversation with it, behind the name of its channel: `channel.provider`.
    /// A name that no row has is looked up without its last part.
    pub service: &'a str,
    pub status: u16,
    /// The provider's machine-readable code, or the start of its text where it has no codes.
    pub code: Option<&'a str>,
    /// The header as it came.
    pub retry_after: Option<&'a str>,
    /// How old the token of the request was, where it had one.
    pub token_age: Option<Duration>,
    /// Whether a refusal is retried, too: the class wants it, and the channel's receivers are no providers.
    pub retry_all: bool,
}

/// Rows, and an index from service and status to those that can match, best first.
#[derive(Debug, Clone)]
pub struct AnswerTable {
    rows: Vec<AnswerRow>,
    index: BTreeMap<Box<str>, Vec<Box<[u16]>>>,
    retry_after_max: RetryAfterMax,
}

const STATUSES: std::ops::RangeInclusive<u16> = 100..=599;

impl AnswerTable {
    /// A user's row wins over a built-in one wherever it matches. Within each group the more precise row wins
    /// (by service, then code, then status), then the earlier.
    pub fn new(user: Vec<AnswerRow>, built_in: impl IntoIterator<Item = AnswerRow>) -> Self {
        let user_count = user.len();
        let rows: Vec<AnswerRow> = user.into_iter().chain(built_in).collect();
        let names: BTreeSet<&str> = rows.iter().map(|row| row.service.as_ref()).collect();
        let index = names.into_iter().map(|name| {
            let by_status = STATUSES.map(|status| candidates(&rows, user_count, name, status));
            (name.into(), by_status.collect())
        });
        Self { index: index.collect(), rows, retry_after_max: RetryAfterMax::default() }
    }

    /// The same with other longest waits.
    pub fn waiting_at_most(self, retry_after_max: RetryAfterMax) -> Self {
        Self { retry_after_max, ..self }
    }

    pub fn rows(&self) -> &[AnswerRow] {
        &self.rows
    }

    /// The best row that matches this answer.
    pub fn row(&self, answer: &ProviderAnswer<'_>) -> Option<&AnswerRow> {
        let mut name = answer.service;
        let by_status = loop {
            match self.index.get(name) {
                Some(found) => break found,
                None => name = name.rsplit_once('.')?.0,
            }
        };
        let nth = answer.status.checked_sub(*STATUSES.start())?;
        let rows = by_status.get(usize::from(nth))?.iter().map(|&i| &self.rows[usize::from(i)]);
        rows.into_iter().find(|row| row.code.matches(answer.code))
    }
}

/// The rows that can match, best first: the user's before the built-in ones, then by precision.
fn candidates(rows: &[AnswerRow], user_count: usize, service: &str, status: u16) -> Box<[u16]> {
    let mut found: Vec<u16> = (0..)
        .zip(rows)
        .filter(|(_, row)| row.status.contains(status) && row.covers(service))
        .map(|(i, _)| i)
        .collect();
    found.sort_by_key(|&i| {
        let row = &rows[usize::from(i)];
        let precision = (row.service.len(), row.code.precision());
        (usize::from(i) >= user_count, std::cmp::Reverse(precision), row.status.width())
    });
    found.into()
}

/// The outcome of an answer. `now` serves a `Retry-After` that is a date, and waits until tomorrow.
pub fn classify(table: &AnswerTable, answer: &ProviderAnswer<'_>, now: Timestamp) -> Outcome {
    judge(table, answer, now).0
}

/// The outcome of an answer, and the further terms of its row.
pub fn judge(
    table: &AnswerTable,
    answer: &ProviderAnswer<'_>,
    now: Timestamp,
) -> (Outcome, AnswerTerms) {
    let row = table.row(answer);
    let meaning = row.map_or(Meaning::RETRY, |row| row.meaning);
    let retries_max = match meaning {
        Meaning::Retry { retries_max, .. } => retries_max,
        _ => None,
    };
    let terms = AnswerTerms { retries_max, strike: row.and_then(|row| row.strike) };
    (outcome(table, meaning, answer, now), terms)
}

fn outcome(
    table: &AnswerTable,
    meaning: Meaning,
    answer: &ProviderAnswer<'_>,
    now: Timestamp,
) -> Outcome {
    let most = table.retry_after_max;
    match meaning {
        Meaning::Accepted => Outcome::Accepted,
        Meaning::Retry { scope, default, at_least, .. } => {
            retry(answer, now, most.of(scope), default, at_least, scope)
        }
        Meaning::Tomorrow { scope } => Outcome::RetryAfter { after: until_tomorrow(now), scope },
        Meaning::Gone => Outcome::Gone,
        Meaning::DropMessage if answer.retry_all => {
            retry(answer, now, most.address, None, Duration::ZERO, Scope::Target)
        }
        Meaning::DropMessage => Outcome::DropMessage,
        Meaning::Config => Outcome::Config,
        Meaning::Ambiguous => Outcome::Ambiguous,
        Meaning::Expired => Outcome::Expired,
        Meaning::ResignOnce => Outcome::ResignOnce,
        Meaning::Reconnect => Outcome::Reconnect,
        Meaning::ResignIfStale => match answer.token_age {
            Some(age) if age > FRESH_TOKEN => Outcome::ResignOnce,
            _ => Outcome::Config,
        },
    }
}

/// Daily quotas begin anew at midnight UTC; the provider's clock may differ a little from ours.
fn until_tomorrow(now: Timestamp) -> Duration {
    const DAY_MS: i64 = 86_400_000;
    let left_ms = DAY_MS - now.0.rem_euclid(DAY_MS);
    Duration::from_millis(left_ms.unsigned_abs()).max(TOMORROW_WAIT_MIN)
}

fn retry(
    answer: &ProviderAnswer<'_>,
    now: Timestamp,
    at_most: Duration,
    default: Option<Duration>,
    at_least: Duration,
    scope: Scope,
) -> Outcome {
    let asked = answer.retry_after.and_then(|text| retry_after::parse(text, now));
    let asked = asked.map(|wait| wait.clamp(SHORTEST_RETRY_AFTER, at_most));
    match asked.or(default) {
        Some(after) => Outcome::RetryAfter { after: after.max(at_least), scope },
        None => Outcome::RetryBackoff { at_least },
    }
}
