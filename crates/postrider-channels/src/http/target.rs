//! An HTTP request's address as it is stored.

use std::borrow::Cow;
use std::collections::BTreeMap;

use postrider_core::ChannelKind;
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::target::ChannelTarget;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HttpTarget<'a> {
    #[serde(borrow)]
    pub method: Cow<'a, str>,
    #[serde(borrow)]
    pub url: Cow<'a, str>,
    #[serde(borrow, default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    /// A reference that the credential resolver turns into a header at send, never the secret.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Cow<'a, str>>,
}

impl<'a> ChannelTarget<'a> for HttpTarget<'a> {
    const KIND: ChannelKind = KIND;
    const IS_URL: bool = true;

    fn into_locator(self) -> Cow<'a, str> {
        self.url
    }
}
