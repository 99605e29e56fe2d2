//! What a status and code of a given provider mean, as tables. Looks at answers only: what a failed
//! connection means is the channel's to say, and what follows from an outcome is
//! [`crate::policy::decide`]'s.

mod built_in;
mod chat;
mod mail;
mod phone;
mod push;
mod row;
mod struck;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::outcome::{AnswerTerms, Outcome, Scope};
use crate::model::time::Timestamp;
use crate::policy::retry_after;

pub use row::{Code, Row, RowError, Statuses, Verdict};

/// A token older than this may simply have become stale; a younger one was refused for a reason.
pub const FRESH_TOKEN: Duration = Duration::from_secs(300);

/// A provider that says "at once" still gets a moment.
pub const SHORTEST_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What waits for the next day waits at least this long.
const SHORTEST_DAY: Duration = Duration::from_secs(3600);

/// The longest that a `Retry-After` is believed, by how far it reaches.
pub fn longest_retry_after(scope: Scope) -> Duration {
    match scope {
        Scope::Target => Duration::from_secs(3600),
        Scope::Credential | Scope::Host => Duration::from_secs(900),
    }
}

/// One answer of one provider.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answer<'a> {
    /// `webpush`, `webpush.fcm`, `webpush.mozilla`, `webpush.apple`, `webpush.wns`, `webhook`, `http`,
    /// `fcm`, `apns`, `email.smtp.rcpt`, `sms.twilio`, `chat.slack` and so on. A name that no row knows
    /// is looked up without its last part.
    pub service: &'a str,
    pub status: u16,
    /// The provider's machine-readable code, or the start of its text where it has no codes.
    pub code: Option<&'a str>,
    /// The header as it came.
    pub retry_after: Option<&'a str>,
    /// How old the token of the request was, where it had one.
    pub token_age: Option<Duration>,
    /// The class's wish that a webhook's or HTTP server's refusal is retried, too.
    pub retry_all: bool,
}

/// Rows, and an index from service and status to those that can match, best first.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Row>,
    index: BTreeMap<Box<str>, Vec<Box<[u16]>>>,
}

const STATUSES: std::ops::RangeInclusive<u16> = 100..=599;

impl Table {
    pub fn built_in() -> Self {
        Self::with_overrides(Vec::new())
    }

    /// The built-in table with a user's rows on top: wherever one of them matches, it wins. Among
    /// themselves the more precise wins (service, then code, then status), then the earlier.
    pub fn with_overrides(rows: Vec<Row>) -> Self {
        let own = rows.len();
        let rows: Vec<Row> = rows.into_iter().chain(built_in::rows()).collect();
        let names: BTreeSet<&str> = rows.iter().map(|row| row.service.as_ref()).collect();
        let index = names.into_iter().map(|name| {
            let by_status = STATUSES.map(|status| candidates(&rows, own, name, status));
            (name.into(), by_status.collect())
        });
        Self { index: index.collect(), rows }
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row that decides about this answer.
    pub fn row(&self, answer: &Answer<'_>) -> Option<&Row> {
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

/// The rows that can match, best first: the user's before ours, then by precision.
fn candidates(rows: &[Row], own: usize, service: &str, status: u16) -> Box<[u16]> {
    let mut found: Vec<u16> = (0..)
        .zip(rows)
        .filter(|(_, row)| row.status.contains(status) && row.covers(service))
        .map(|(i, _)| i)
        .collect();
    found.sort_by_key(|&i| {
        let row = &rows[usize::from(i)];
        let precision = (row.service.len(), row.code.precision());
        (usize::from(i) >= own, std::cmp::Reverse(precision), row.status.width())
    });
    found.into()
}

/// What the answer means. `now` is for a `Retry-After` that is a date, and for what waits for tomorrow.
pub fn classify(table: &Table, answer: &Answer<'_>, now: Timestamp) -> Outcome {
    judge(table, answer, now).0
}

/// What the answer means, and what its row says beside that.
pub fn judge(table: &Table, answer: &Answer<'_>, now: Timestamp) -> (Outcome, AnswerTerms) {
    let row = table.row(answer);
    let verdict = row.map_or(const { Verdict::retry() }, |row| row.verdict);
    let retries_max = match verdict {
        Verdict::Retry { retries_max, .. } => retries_max,
        _ => None,
    };
    let terms = AnswerTerms { retries_max, strike: row.and_then(|row| row.strike) };
    (outcome(verdict, answer, now), terms)
}

fn outcome(verdict: Verdict, answer: &Answer<'_>, now: Timestamp) -> Outcome {
    match verdict {
        Verdict::Accepted => Outcome::Accepted,
        Verdict::Retry { scope, default, at_least, .. } => {
            retry(answer, now, scope, default, at_least)
        }
        Verdict::Tomorrow { scope } => Outcome::RetryAfter { after: until_tomorrow(now), scope },
        Verdict::Gone => Outcome::Gone,
        Verdict::DropMessage if answer.retry_all && takes_retry_all(answer.service) => {
            retry(answer, now, Scope::Target, None, Duration::ZERO)
        }
        Verdict::DropMessage => Outcome::DropMessage,
        Verdict::Config => Outcome::Config,
        Verdict::Ambiguous => Outcome::Ambiguous,
        Verdict::Expired => Outcome::Expired,
        Verdict::ResignOnce => Outcome::ResignOnce,
        Verdict::Reconnect => Outcome::Reconnect,
        Verdict::ResignIfStale => match answer.token_age {
            Some(age) if age > FRESH_TOKEN => Outcome::ResignOnce,
            _ => Outcome::Config,
        },
    }
}

/// Quotas of a day begin anew at midnight UTC; their clocks and ours may differ a little.
fn until_tomorrow(now: Timestamp) -> Duration {
    const DAY_MS: i64 = 86_400_000;
    let left_ms = DAY_MS - now.0.rem_euclid(DAY_MS);
    Duration::from_millis(left_ms.unsigned_abs()).max(SHORTEST_DAY)
}

fn takes_retry_all(service: &str) -> bool {
    matches!(service, "webhook" | "http")
}

fn retry(
    answer: &Answer<'_>,
    now: Timestamp,
    scope: Scope,
    default: Option<Duration>,
    at_least: Duration,
) -> Outcome {
    let asked = answer.retry_after.and_then(|text| retry_after::parse(text, now));
    let asked = asked.map(|wait| wait.clamp(SHORTEST_RETRY_AFTER, longest_retry_after(scope)));
    match asked.or(default) {
        Some(after) => Outcome::RetryAfter { after: after.max(at_least), scope },
        None => Outcome::RetryBackoff { at_least },
    }
}
