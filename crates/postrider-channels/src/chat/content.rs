//! `content.chat`: the fields of content for chat messages.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::definition::impl_content;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatContent<'a> {
    /// The body that is posted: the text of a string, or any other JSON as it was written.
    #[serde(borrow, default)]
    pub payload: Option<&'a RawValue>,
}

impl_content!(ChatContent);
