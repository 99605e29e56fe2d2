//! `content.apns`: what a message says on this channel alone.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::definition::impl_content;

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

impl_content!(ApnsContent);
