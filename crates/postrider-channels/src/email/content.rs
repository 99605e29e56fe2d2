//! `content.email`: the fields of content for mails.

use std::borrow::Cow;

use serde::Deserialize;

use crate::definition::impl_content;

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
    /// For one-click unsubscribing by POST (RFC 8058); the account's own if absent.
    #[serde(borrow, default)]
    pub unsubscribe_url: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub unsubscribe_mailto: Option<Cow<'a, str>>,
}

impl_content!(EmailContent);
