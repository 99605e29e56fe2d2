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
    /// `apns-push-type`; if absent, the payload decides.
    #[serde(borrow, default)]
    pub push_type: Option<Cow<'a, str>>,
    /// `apns-priority`: 10, 5 or 1; if absent, push type and class decide.
    #[serde(default)]
    pub priority: Option<i64>,
}

impl_content!(ApnsContent);
