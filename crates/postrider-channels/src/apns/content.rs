//! `content.apns`: what a message says on this channel alone.

use std::borrow::Cow;

use postrider_core::FieldError;
use postrider_core::model::content::{Content, read_part};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::KIND;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApnsContent<'a> {
    /// The JSON object that Apple gets, `aps` included, as it came in.
    #[serde(borrow, default)]
    pub payload: Option<&'a RawValue>,
    /// `apns-push-type`; told from the payload where it is missing.
    #[serde(borrow, default)]
    pub push_type: Option<Cow<'a, str>>,
    /// `apns-priority`: 10, 5 or 1; by push type and class where it is missing.
    #[serde(default)]
    pub priority: Option<i64>,
}

impl<'a> ApnsContent<'a> {
    /// The channel's part of a content; empty if it has none.
    pub fn of(content: &Content<'a>) -> Result<Self, FieldError> {
        content.part(KIND).map(Option::unwrap_or_default)
    }
}

pub(crate) fn check_part(raw: &RawValue) -> Result<(), FieldError> {
    read_part::<ApnsContent<'_>>(KIND, raw).map(drop)
}
