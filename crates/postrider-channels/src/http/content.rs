//! `content.http`: what a message says on this channel alone.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::definition::impl_content;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpContent<'a> {
    /// The request's body: a string byte for byte, anything else as the JSON text it came in.
    #[serde(borrow, default)]
    pub body: Option<&'a RawValue>,
}

impl_content!(HttpContent);
