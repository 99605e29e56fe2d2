//! `content.webpush`: what a message says on this channel alone.

use std::borrow::Cow;

use postrider_core::FieldError;
use postrider_core::model::content::{Content, read_part};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::KIND;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebpushContent<'a> {
    /// The plaintext as it is encrypted, byte for byte; empty for a push without a body.
    #[serde(borrow, default)]
    pub raw: Option<Cow<'a, str>>,
}

impl<'a> WebpushContent<'a> {
    /// The channel's part of a content; empty if it has none.
    pub fn of(content: &Content<'a>) -> Result<Self, FieldError> {
        content.part(KIND).map(Option::unwrap_or_default)
    }
}

pub(crate) fn check_part(raw: &RawValue) -> Result<(), FieldError> {
    read_part::<WebpushContent<'_>>(KIND, raw).map(drop)
}
