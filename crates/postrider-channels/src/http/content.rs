//! `content.http`: what a message says on this channel alone.

use postrider_core::FieldError;
use postrider_core::model::content::{Content, read_part};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::KIND;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpContent<'a> {
    /// The request's body: a string byte for byte, anything else as the JSON text it came in.
    #[serde(borrow, default)]
    pub body: Option<&'a RawValue>,
}

impl<'a> HttpContent<'a> {
    /// The channel's part of a content; empty if it has none.
    pub fn of(content: &Content<'a>) -> Result<Self, FieldError> {
        content.part(KIND).map(Option::unwrap_or_default)
    }
}

pub(crate) fn check_part(raw: &RawValue) -> Result<(), FieldError> {
    read_part::<HttpContent<'_>>(KIND, raw).map(drop)
}
