//! `content.email`: what a message says on this channel alone.

use std::borrow::Cow;

use postrider_core::FieldError;
use postrider_core::model::content::{Content, read_part};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::KIND;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmailContent<'a> {
    #[serde(borrow, default)]
    pub subject: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub html: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub text: Option<Cow<'a, str>>,
    /// Where answers go; the account's own if absent.
    #[serde(borrow, default)]
    pub reply_to: Option<Cow<'a, str>>,
    /// Takes the POST of a one-click unsubscription (RFC 8058); the account's own if absent.
    #[serde(borrow, default)]
    pub unsubscribe_url: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub unsubscribe_mailto: Option<Cow<'a, str>>,
}

impl<'a> EmailContent<'a> {
    /// The channel's part of a content; empty if it has none.
    pub fn of(content: &Content<'a>) -> Result<Self, FieldError> {
        content.part(KIND).map(Option::unwrap_or_default)
    }
}

pub(crate) fn check_part(raw: &RawValue) -> Result<(), FieldError> {
    read_part::<EmailContent<'_>>(KIND, raw).map(drop)
}
