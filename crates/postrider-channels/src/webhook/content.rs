//! `content.webhook`: what a message says on this channel alone.

use postrider_core::FieldError;
use postrider_core::model::content::{Content, read_part};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::KIND;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookContent<'a> {
    /// Replaces the webhook's body: a string byte for byte, anything else as the JSON text it came in.
    #[serde(borrow, default)]
    pub payload: Option<&'a RawValue>,
}

impl<'a> WebhookContent<'a> {
    /// The channel's part of a content; empty if it has none.
    pub fn of(content: &Content<'a>) -> Result<Self, FieldError> {
        content.part(KIND).map(Option::unwrap_or_default)
    }
}

pub(crate) fn check_part(raw: &RawValue) -> Result<(), FieldError> {
    read_part::<WebhookContent<'_>>(KIND, raw).map(drop)
}
