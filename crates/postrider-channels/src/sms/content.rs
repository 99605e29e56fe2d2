//! `content.sms`: the fields of content for text messages.

use std::borrow::Cow;

use serde::Deserialize;

use crate::definition::impl_content;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmsContent<'a> {
    #[serde(borrow, default)]
    pub text: Option<Cow<'a, str>>,
}

impl_content!(SmsContent);
