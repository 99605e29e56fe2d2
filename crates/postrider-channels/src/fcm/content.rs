//! `content.fcm`: what a message says on this channel alone.

use postrider_core::FieldError;
use postrider_core::model::content::{Content, read_part};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::KIND;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FcmContent<'a> {
    /// A `Message` of FCM HTTP v1 without its target; `android.ttl` and `collapseKey` are added where it
    /// has none.
    #[serde(borrow, default)]
    pub message: Option<&'a RawValue>,
}

impl<'a> FcmContent<'a> {
    /// The channel's part of a content; empty if it has none.
    pub fn of(content: &Content<'a>) -> Result<Self, FieldError> {
        content.part(KIND).map(Option::unwrap_or_default)
    }
}

pub(crate) fn check_part(raw: &RawValue) -> Result<(), FieldError> {
    read_part::<FcmContent<'_>>(KIND, raw).map(drop)
}
