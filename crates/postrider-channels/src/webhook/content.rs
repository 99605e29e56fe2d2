//! `content.webhook`: what a message says on this channel alone.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::definition::impl_content;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookContent<'a> {
    /// Replaces the webhook's body: a string byte for byte, anything else as the JSON text it came in.
    #[serde(borrow, default)]
    pub payload: Option<&'a RawValue>,
}

impl_content!(WebhookContent);
