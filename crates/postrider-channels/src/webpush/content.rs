//! `content.webpush`: what a message says on this channel alone.

use std::borrow::Cow;

use serde::Deserialize;

use crate::definition::impl_content;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebpushContent<'a> {
    /// The plaintext as it is encrypted, byte for byte; empty for a push without a body.
    #[serde(borrow, default)]
    pub raw: Option<Cow<'a, str>>,
}

impl_content!(WebpushContent);
