//! Parameters of paths and queries, parsed into types. An error names the field and what is allowed.

use std::str::FromStr;

use postrider_channels::registry;
use postrider_core::model::id::IdError;
use postrider_core::{ChannelKind, DeadReason, State, Timestamp};

use super::problem::{ApiResult, Problem};

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 1000;

pub(crate) fn states() -> String {
    State::ALL.iter().map(|s| s.name()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn reasons() -> String {
    DeadReason::ALL.iter().map(|s| s.name()).collect::<Vec<_>>().join(", ")
}

pub(crate) fn name<T>(
    field: &str,
    text: Option<String>,
    parse: impl Fn(&str) -> Option<T>,
    allowed: impl Fn() -> String,
) -> ApiResult<Option<T>> {
    let Some(text) = text else { return Ok(None) };
    let value = parse(&text).ok_or_else(|| Problem::field(field, quoted(&text), allowed()))?;
    Ok(Some(value))
}

pub(crate) fn channel(text: Option<String>) -> ApiResult<Option<ChannelKind>> {
    let all = registry::kinds();
    let parse = |name: &str| all.iter().copied().find(|kind| kind.name() == name);
    name("channel", text, parse, || {
        all.iter().map(ChannelKind::name).collect::<Vec<_>>().join(", ")
    })
}

pub(crate) fn time(field: &str, text: Option<String>) -> ApiResult<Option<Timestamp>> {
    let parse = |text: &str| {
        let instant: jiff::Timestamp = text.parse().ok()?;
        Some(Timestamp(instant.as_millisecond()))
    };
    name(field, text, parse, || "a time such as 2026-11-15T06:00:00Z".to_owned())
}

pub(crate) fn optional_id<T: FromStr<Err = IdError>>(
    field: &str,
    text: Option<String>,
) -> ApiResult<Option<T>> {
    text.map(|text| id(field, &text)).transpose()
}

pub(crate) fn id<T: FromStr<Err = IdError>>(field: &str, text: &str) -> ApiResult<T> {
    text.parse().map_err(|e: IdError| {
        let allowed = format!("{}_ and 26 characters of base32", e.prefix);
        Problem::field(field, quoted(text), allowed)
    })
}

/// The size of a page.
pub(crate) fn limit(limit: Option<usize>) -> ApiResult<usize> {
    match limit {
        None => Ok(LIMIT_DEFAULT),
        Some(n @ 1..=LIMIT_MAX) => Ok(n),
        Some(n) => Err(Problem::field("limit", n.to_string(), format!("1 to {LIMIT_MAX}"))),
    }
}

/// The beginning of what a caller wrote, for an error.
pub(crate) fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text))
}

pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}
